package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// killing closes a cluster when the first line of a shard is written.
type killing struct {
	bytes.Buffer

	cluster *clienttest.Cluster
}

func (k *killing) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("equal on")) {
		_ = k.cluster.Close()
	}
	return k.Buffer.Write(p)
}

// A verify whose node dies between two shards reports the lost node, not that no node answers.
func TestVerifyReportsALostNode(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{Cuts: []string{"/m"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	large := "/z" + strings.Repeat("z", 3<<20) // more than the client buffers: the second shard's answer is cut off
	c.Put(large, "1")
	c.Corrupt("n1", large)
	out := &killing{cluster: c}
	var errOut bytes.Buffer
	p := cli.Process{Getenv: func(string) string { return "" }, Stdout: out, Stderr: &errOut}
	code := execute(t.Context(), p, []string{"verify", "--endpoints", strings.Join(c.Endpoints(), ",")})
	if text := errOut.String(); code != exitFailed || !strings.HasPrefix(text, "cachectl: the node that compares went away before all shards were done; run verify again: ") {
		t.Errorf("exit code %d: %s%s", code, out, text)
	}
}
