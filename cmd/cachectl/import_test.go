package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// An import ends at a key that has changed since the import read it, and does not overwrite the key.
func TestAnImportEndsAtAKeyThatChangesMeanwhile(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Put("/b", "old")
	in, feed := io.Pipe()
	var out, errOut bytes.Buffer
	code := make(chan int, 1)
	go func() {
		p := cli.Process{Getenv: func(string) string { return "" }, Stdin: in, Stdout: &out, Stderr: &errOut}
		code <- execute(t.Context(), p, []string{"import", "-", "--batch", "1", "--endpoints", c.Endpoints()[0]})
		_ = in.Close()
	}()
	write := func(s string) {
		if _, err := io.WriteString(feed, s); err != nil {
			t.Error(err)
		}
	}
	write(`{"export":1,"start":"","end":""}` + "\n" + `{"key":"/a","value":"new"}` + "\n" + `{"key":"/aa","value":"new"}` + "\n")
	for end := time.Now().Add(time.Minute); c.Revision() < 3; time.Sleep(time.Millisecond) { // the import has read /b, and written /a
		if time.Now().After(end) {
			t.Fatal("nothing was imported")
		}
	}
	c.Put("/b", "newer")
	write(`{"key":"/b","value":"new"}` + "\n" + `{"exported":3}` + "\n")
	_ = feed.Close()
	if got := <-code; got != exitUnmet || !strings.Contains(errOut.String(), `key "/b" should have mod revision 2 and has`) {
		t.Errorf("exit code %d: %s", got, errOut.String())
	}
	for _, kv := range c.State(1, c.Revision()) {
		if string(kv.GetKey()) == "/b" && string(kv.GetValue()) != "newer" {
			t.Errorf("/b is %s", kv.GetValue())
		}
	}
}
