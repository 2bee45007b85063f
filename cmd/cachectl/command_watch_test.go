package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client/clienttest"
)

// A watch that no node answers goes on, and does not look like a quiet one.
func TestWatchTellsThatNobodyAnswers(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Put("/demo/a", "x")

	ctx, stop := context.WithCancel(t.Context())
	out, outEnd := io.Pipe()
	errOut, errEnd := io.Pipe()
	code := make(chan int, 1)
	go func() {
		defer errEnd.Close()
		defer outEnd.Close()
		code <- execute(ctx, process{getenv: func(string) string { return "" }, stdout: outEnd, stderr: errEnd},
			[]string{"watch", "--prefix", "/demo/", "--state", "--endpoints", strings.Join(c.Endpoints(), ",")})
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the watch has begun: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	for _, n := range c.Nodes() {
		n.Kill()
	}
	told := false
	for lines := bufio.NewScanner(errOut); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "cachectl: no node answers; retrying") {
			told = true
			stop()
		}
	}
	stop()
	if !told {
		t.Errorf("not a word of it; exit code %d", <-code)
	}
}
