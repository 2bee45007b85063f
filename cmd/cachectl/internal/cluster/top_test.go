package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// Any output fits the terminal, and reports the number of omitted rows.
func TestTopFitsTheTerminal(t *testing.T) {
	m := moment{at: time.Now(), revision: 5000}
	for i := range 30 {
		name := fmt.Sprintf("node-%d.example.internal", i)
		m.cluster.Members = append(m.cluster.Members, admin.MemberStatus{Member: admin.Member{Name: name}, Status: &admin.NodeStatus{}})
		m.shards = append(m.shards, cli.ShardJSON{ID: uint64(i), Start: "/a/very/long/key/that/goes/on", Owner: name})
		m.watchers = append(m.watchers, admin.WatcherStatus{Client: "10.0.0.1:1234", Node: name, Range: client.Prefix("/a/very/long/key/that/goes/on")})
	}
	before := m
	before.at, before.revision = m.at.Add(-2*time.Second), 4000
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}, {80, 3}} {
		lines := topLines(m, before, size[0], size[1])
		if len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > size[0] {
				t.Errorf("%v: %d columns: %s", size, n, line)
			}
		}
		if all := strings.Join(lines, "\n"); size[1] > 20 && (!strings.Contains(all, "more") || !strings.Contains(all, "WATCH OF")) {
			t.Errorf("%v:\n%s", size, all)
		}
	}
	if head := topLines(m, before, 0, 0)[0]; !strings.Contains(head, "500 writes/s") {
		t.Error(head)
	}
}
