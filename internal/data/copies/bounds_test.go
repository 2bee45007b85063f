package copies

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// The bounds are exact, both for a source that is just slow enough to be stuck, and for a node whose pause is just
// too short to count.
func TestLagIsExact(t *testing.T) {
	now := time.Unix(1000, 0)
	begin := func() *lag {
		l := &lag{seen: now}
		l.still(now, 5, 6)
		return l
	}
	if still := begin().still(now.Add(StuckAfter), 5, 6); still != StuckAfter {
		t.Errorf("still for %v, want %v", still, StuckAfter)
	}
	if still := begin().still(now.Add(standstill), 5, 6); still != standstill {
		t.Errorf("after the longest pause that does not count: %v", still)
	}
	if still := begin().still(now.Add(standstill+1), 5, 6); still != 0 {
		t.Errorf("after a pause of the node: %v, want 0", still)
	}
	if still := begin().still(now.Add(time.Second), 5, 5); still != 0 {
		t.Errorf("with no revision ahead: %v, want 0", still)
	}
	l := begin()
	l.still(now.Add(StuckAfter), 5, 6)
	if still := l.still(now.Add(StuckAfter+1), 5, 6); still != StuckAfter+1 {
		t.Errorf("the first report of a source that is just stuck: %v", still)
	}
	if still := l.still(now.Add(StuckAfter+2), 5, 6); still != 1 {
		t.Errorf("after the first report: %v, want 1", still)
	}
}

// Caches that end yield the events of their own lineage, as soon as new ones have arrived.
func TestPredecessorsDeliverNewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		n.Use(cachetest.Map(1, nil, "here"))
		<-n.Replica(1).Ready()
		from := h.Now() + 1
		f := &predecessors{lineage: 1}
		f.caches = append(f.caches, n.Replica(1))
		follow := func(req kv.FollowRequest) (kinds []kv.UpdateKind, progress kv.Revision, err error) {
			for u, e := range f.Follow(t.Context(), req) {
				if err = e; e == nil {
					kinds, progress = append(kinds, u.Kind), u.Revision
				}
			}
			return kinds, progress, err
		}
		var unavailable *kv.UnavailableError
		for what, from := range map[string]kv.Revision{"all": 0, "what is to come": from} {
			if kinds, _, err := follow(kv.FollowRequest{Lineage: 1, From: from}); !errors.As(err, &unavailable) || len(kinds) > 0 {
				t.Errorf("request for %s: %v, %v, want UnavailableError", what, kinds, err)
			}
		}
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		if kinds, progress, err := follow(kv.FollowRequest{Lineage: 1, From: from}); err != nil || progress != at || len(kinds) != 4 {
			t.Errorf("request for an existing revision: %v up to %d, %v", kinds, progress, err)
		}
		var lineage *kv.LineageError
		if kinds, _, err := follow(kv.FollowRequest{Lineage: 2, From: from}); !errors.As(err, &lineage) || lineage.Requested != 2 || lineage.Current != 1 || len(kinds) > 0 {
			t.Errorf("request for another lineage: %v, %v, want LineageError", kinds, err)
		}
	})
}
