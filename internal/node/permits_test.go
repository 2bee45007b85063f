package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Permits go to the node with the fewest, then to the first request. An
// abandoned request leaves nothing behind.
func TestGrants(t *testing.T) {
	for name, x := range map[string]struct {
		most  int
		steps string // "a": node a asks · "-a": its oldest permit comes back · "!a": its youngest asker gives up
		want  string // the nodes that received a permit, in order
	}{
		"first come":                {1, "a b c -a -b -c", "abc"},
		"two at a time":             {2, "a b c d", "ab"},
		"in order among equals":     {1, "a a a b -a -a -a -b", "aaab"},
		"not one node's alone":      {2, "a c a a b -c -b", "acba"},
		"a node that has one waits": {2, "a a a b c -a", "aab"},
		"given up while waiting":    {1, "a b c !b -a", "ac"},
		"the last one":              {1, "a -a a", "aa"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGrants(x.most)
			var mu sync.Mutex
			var got strings.Builder
			release := map[string][]func(){}
			giveUp := map[string][]context.CancelFunc{}
			for _, step := range strings.Fields(x.steps) {
				node := step[len(step)-1:]
				mu.Lock()
				switch step[0] {
				case '-':
					back := release[node][0]
					back()
					back() // a second release has no effect
					release[node] = release[node][1:]
				case '!':
					giveUp[node][len(giveUp[node])-1]()
				default:
					ctx, cancel := context.WithCancel(t.Context())
					giveUp[node] = append(giveUp[node], cancel)
					go func() {
						back, err := g.acquire(ctx, shard.NodeID(node))
						if errors.Is(err, context.Canceled) {
							return
						}
						mu.Lock()
						defer mu.Unlock()
						got.WriteString(node)
						release[node] = append(release[node], back)
					}()
				}
				mu.Unlock()
				synctest.Wait()
			}
			if got.String() != x.want {
				t.Errorf("%s: %q, want %q", name, got.String(), x.want)
			}
			for _, all := range giveUp {
				for _, cancel := range all {
					cancel()
				}
			}
			synctest.Wait()
			for len(release) > 0 {
				for node, all := range release {
					for _, back := range all {
						back()
					}
					delete(release, node)
				}
				synctest.Wait()
			}
			if out, waiting := g.count(); out != 0 || waiting != 0 || len(g.out) != 0 {
				t.Errorf("%s: %s", name, fmt.Sprintf("%d granted, %d waiting, %v", out, waiting, g.out))
			}
		})
	}
}
