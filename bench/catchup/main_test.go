package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A complete small run: all writes since the nodes last saved their history fit into 64 MiB, their
// bound on reads of etcd's log.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and three nodes")
	}
	var out, log bytes.Buffer
	code := execute([]string{
		"--keys", "2000", "--value-size", "1024", "--changed", "100", "--revisions", "12000", "--clients", "1,2", "--dir", t.TempDir(),
	}, &out, &log)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, log.String())
	}
	if n := strings.Count(out.String(), "\n| "); n != 2+2*len(ways()) {
		t.Errorf("%d rows\n%s", n, out.String())
	}
	t.Log(out.String())
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--keys", "1"}, {"--changed", "2000", "--keys", "1000"}, {"--revisions", "10"}, {"--clients", "0"}, {"--nothing"}, {"word"},
	} {
		var out, log bytes.Buffer
		if code := execute(args, &out, &log); code != 2 || log.Len() == 0 {
			t.Errorf("%v: exit code %d, %q", args, code, log.String())
		}
	}
}
