package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// If two of three voters are dead, status and voters print the known state, report that the
// shard map cannot change, and exit with a special code.
func TestStatusReportsAMissingLeader(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{Cuts: []string{"/m"}, Replicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = execute(t.Context(), cli.Process{Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs},
			append(args, "--endpoints", strings.Join(c.Endpoints(), ",")))
		return code, out.String(), errs.String()
	}
	for _, dead := range []string{"", "n3", "n1"} {
		want := exitDone
		if dead != "" {
			c.Node(dead).Kill()
		}
		if dead == "n1" {
			want = exitNoLeader
		}
		for _, command := range []string{"status", "voters"} {
			for _, format := range []string{"table", "json"} {
				code, stdout, stderr := run(command, "-o", format)
				if code != want || !strings.Contains(stdout, "n2") || strings.Contains(stderr, "no leader") != (want == exitNoLeader) {
					t.Errorf("%s -o %s after the death of %q: exit code %d, want %d\n%s%s", command, format, dead, code, want, stdout, stderr)
				}
			}
		}
	}
}
