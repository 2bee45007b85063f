package copies

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A source that is just slow enough to be stuck, and a node whose pause is just too short to count.
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
		t.Errorf("after the longest pause that is none: %v", still)
	}
	if still := begin().still(now.Add(standstill+1), 5, 6); still != 0 {
		t.Errorf("after a pause of its own: %v", still)
	}
	if still := begin().still(now.Add(time.Second), 5, 5); still != 0 {
		t.Errorf("with nothing to come to: %v", still)
	}
	l := begin()
	l.still(now.Add(StuckAfter), 5, 6)
	if still := l.still(now.Add(StuckAfter+1), 5, 6); still != StuckAfter+1 {
		t.Errorf("just stuck, and not said before: %v", still)
	}
	if still := l.still(now.Add(StuckAfter+2), 5, 6); still != 1 {
		t.Errorf("said before: %v", still)
	}
}

// Ending caches yield the events of their own lineage, once new ones have come.
func TestPredecessorsTellWhatIsNew(t *testing.T) {
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
				t.Errorf("asked for %s: %v, %v", what, kinds, err)
			}
		}
		at := h.Commit(cachetest.Put("a", "1"))
		synctest.Wait()
		if kinds, progress, err := follow(kv.FollowRequest{Lineage: 1, From: from}); err != nil || progress != at || len(kinds) != 4 {
			t.Errorf("asked for a revision that is there: %v at %d, %v", kinds, progress, err)
		}
		var lineage *kv.LineageError
		if kinds, _, err := follow(kv.FollowRequest{Lineage: 2, From: from}); !errors.As(err, &lineage) || lineage.Requested != 2 || lineage.Current != 1 || len(kinds) > 0 {
			t.Errorf("asked for another lineage: %v, %v", kinds, err)
		}
	})
}
