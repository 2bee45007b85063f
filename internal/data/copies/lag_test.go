package copies

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
	const look = LookEvery
	for name, steps := range map[string][]step{
		"current":                    {{0, 5, 5, false}, {look, 5, 5, false}, {look, 5, 5, false}, {look, 5, 5, false}},
		"late and moving":            {{0, 5, 9, false}, {look, 6, 19, false}, {look, 7, 29, false}, {look, 8, 39, false}},
		"stuck":                      {{0, 5, 5, false}, {look, 5, 6, false}, {look, 5, 7, true}},
		"checks in quick succession": {{0, 5, 6, false}, {look / 4, 5, 6, false}, {look / 4, 5, 7, false}},
		"not again at once":          {{0, 5, 6, false}, {look, 5, 6, false}, {look, 5, 7, true}, {look, 5, 8, false}},
		"quiet, then one event":      {{0, 5, 5, false}, {look, 5, 5, false}, {look, 5, 6, false}},
		"was paused itself":          {{0, 5, 6, false}, {time.Minute, 5, 7, false}, {look, 5, 8, false}, {look, 5, 8, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var l lag
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				if got := l.still(now, s.progress, s.revision) > StuckAfter; got != s.stuck {
					t.Errorf("step %d: stuck: %v", i, got)
				}
			}
		})
	}
}
