package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// A watch that no node answers retries, and reports that no node answers.
func TestWatchReportsThatNoNodeAnswers(t *testing.T) {
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
		code <- execute(ctx, cli.Process{Getenv: func(string) string { return "" }, Stdout: outEnd, Stderr: errEnd},
			[]string{"watch", "--prefix", "/demo/", "--state", "--endpoints", strings.Join(c.Endpoints(), ",")})
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the watch did not begin: %v", err)
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
		t.Errorf("the watch does not report that no node answers; exit code %d", <-code)
	}
}

// With --zone or its variable, the watch is at the node of that zone.
func TestZoneOfAWatch(t *testing.T) {
	zones := []string{"z1", "z2", "z3"}
	for i, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			c, err := clienttest.Start(clienttest.Config{Zones: zones})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Put("/demo/a", "x")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out, outEnd := io.Pipe()
			args := []string{"watch", "--prefix", "/demo/", "--state", "--endpoints", strings.Join(c.Endpoints(), ",")}
			env := map[string]string{}
			if i == 0 {
				env["CACHECTL_ZONE"] = zone
			} else {
				args = append(args, "--zone", zone)
			}
			go func() {
				execute(ctx, cli.Process{Getenv: func(name string) string { return env[name] }, Stdout: outEnd, Stderr: io.Discard}, args)
				outEnd.Close()
			}()
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatalf("the watch did not begin: %v", err)
			}
			for k, n := range c.Nodes() {
				if got := n.Watches(); (got > 0) != (k == i) {
					t.Errorf("%d watches at %s of zone %s", got, n.Name, zones[k])
				}
			}
			stop()
			_, _ = io.Copy(io.Discard, out) // until it has ended
		})
	}
}
