package node

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestLag(t *testing.T) {
	type step struct {
		after              time.Duration
		progress, revision kv.Revision
		stuck              bool
	}
	for name, steps := range map[string][]step{
		"current":               {{0, 5, 5, false}, {time.Hour, 5, 5, false}},
		"behind and moving":     {{0, 5, 9, false}, {3 * time.Second, 6, 19, false}, {3 * time.Second, 7, 29, false}},
		"stuck":                 {{0, 5, 5, false}, {time.Second, 5, 6, false}, {2 * time.Second, 5, 7, true}},
		"not again at once":     {{0, 5, 6, false}, {3 * time.Second, 5, 7, true}, {time.Second, 5, 8, false}},
		"quiet, then one event": {{0, 5, 5, false}, {time.Hour, 5, 5, false}, {time.Second, 5, 6, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var l lag
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				if got := l.stuck(now, s.progress, s.revision); got != s.stuck {
					t.Errorf("step %d: %v", i, got)
				}
			}
		})
	}
}
