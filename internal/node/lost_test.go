package node_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/node"
)

// While one of five nodes drains, no other node logs the loss of a source there, and none
// reports more shards than exist. (On a busy machine a node may be silent for a moment,
// which is not due to the drain.)
func TestADrainLogsNoLostSources(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 3, func(cfg *node.Config) {
		shards(16, 3)(cfg)
		cfg.Self.BootstrapExpect = 3
		cfg.TunePlacement = nil // default settings
	})
	c.put(keys(64)...)
	c.ready()
	c.settled(16, 3)
	w := newCrowd(c)
	for _, m := range c.nodes {
		if m != c.nodes[1] && m != c.nodes[3] {
			w.watch(c.client(m), "watch at "+m.name, client.Range{}, 0)
		}
	}
	w.reach(c.put("/a"))
	for _, m := range []*machine{c.nodes[1], c.nodes[3]} {
		told := len(c.log.tail(1 << 30))
		m.drain()
		w.reach(c.put("/a"))
		lines := c.log.tail(1 << 30)[told:]
		if !strings.Contains(lines, "msg=drained node="+m.name) {
			t.Errorf("%s does not log its drain", m.name)
		}
		for line := range strings.Lines(lines) {
			if !strings.Contains(line, "level=INFO") {
				continue
			}
			if strings.Contains(line, "source lost") && strings.Contains(line, "source="+m.name+" ") && !strings.Contains(line, "silent") {
				t.Errorf("logged: %s", line)
			}
			if n := regexp.MustCompile(` shards=(\d+)`).FindStringSubmatch(line); n != nil {
				if many, _ := strconv.Atoi(n[1]); many > 16 {
					t.Errorf("logged: %s", line)
				}
			}
		}
	}
}
