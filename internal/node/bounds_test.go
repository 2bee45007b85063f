package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// One key that etcd has otherwise is a wrong copy, two are another history, and being
// ahead of etcd counts as one. If etcd confirms all keys, the node that sent the data
// is wrong.
func TestWhoIsWrong(t *testing.T) {
	for _, c := range []struct {
		contradicted int
		ahead        bool
		source       string
		want         verdict
	}{
		{0, false, replica.Etcd, nothingWrong},
		{0, false, "other", wrongSource},
		{0, true, replica.Etcd, wrongCopy},
		{0, true, "other", wrongCopy},
		{1, false, "other", wrongCopy},
		{1, false, replica.Etcd, wrongCopy},
		{1, true, replica.Etcd, otherHistory},
		{2, false, "other", otherHistory},
		{9, true, "other", otherHistory},
	} {
		if got := judgeSource(c.contradicted, c.ahead, c.source); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The newest look at etcd is that of the newest lineage, then that which began last.
func TestTheNewestLookIsKept(t *testing.T) {
	c := newClock(nil)
	n := &Node{clock: c}
	if _, known := n.Looked(); known {
		t.Error("a look before the first")
	}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for i, step := range []struct {
		look  replica.Look
		newer bool
	}{
		{replica.Look{Lineage: 1, Revision: 10, At: at(10)}, true},
		{replica.Look{Lineage: 1, Revision: 11, At: at(10)}, false},
		{replica.Look{Lineage: 1, Revision: 12, At: at(9)}, false},
		{replica.Look{Lineage: 1, Revision: 13, At: at(11)}, true},
		{replica.Look{Lineage: 2, Revision: 5, At: at(1)}, true},
		{replica.Look{Lineage: 1, Revision: 14, At: at(20)}, false},
		{replica.Look{Lineage: 2, Revision: 6, At: at(2)}, true},
	} {
		before, _ := n.Looked()
		if got := c.keep(step.look); got != step.newer {
			t.Errorf("%d: newer %v", i, got)
		}
		want := before
		if step.newer {
			want = step.look
		}
		if got, known := n.Looked(); got != want || !known {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	c.revision, c.at = 7, at(7)
	c.forget()
	if look, known := n.Looked(); known {
		t.Errorf("a look of the lineage before: %+v", look)
	}
	if revision, at, _ := c.last(); revision != 0 || !at.IsZero() {
		t.Errorf("etcd's revision of the lineage before: %d at %v", revision, at)
	}
	select {
	case <-c.kick:
	default:
		t.Error("etcd is not read anew")
	}
}

// A source that is just slow enough, and a node that has just not been paused.
func TestLagIsExact(t *testing.T) {
	now := time.Unix(1000, 0)
	begin := func() *lag {
		l := &lag{seen: now}
		l.still(now, 5, 6)
		return l
	}
	if still := begin().still(now.Add(stuckAfter), 5, 6); still != stuckAfter {
		t.Errorf("still for %v, want %v", still, stuckAfter)
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
	l.still(now.Add(stuckAfter), 5, 6)
	if still := l.still(now.Add(stuckAfter+1), 5, 6); still != stuckAfter+1 {
		t.Errorf("just stuck, and not said before: %v", still)
	}
	if still := l.still(now.Add(stuckAfter+2), 5, 6); still != 1 {
		t.Errorf("said before: %v", still)
	}
}

// Caches that go tell what they have heard of their own lineage, once it is new.
func TestForebearsTellWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		n.Use(cachetest.Map(1, nil, "here"))
		<-n.Replica(1).Ready()
		from := h.Now() + 1
		f := &forebears{lineage: 1}
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

// A connection is to where gossip sees the node, and to none that is gone.
func TestConnectionsFollowGossip(t *testing.T) {
	m := shard.Member{Name: "other", PeerAddress: "127.0.0.1:1", State: shard.Alive}
	known := true
	p := newPeers(func(shard.NodeID) (shard.Member, bool) { return m, known }, func() string { return "" }, nil, nil, nil)
	defer p.close()
	first, err := p.conn("other")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.conn("other"); err != nil || again != first {
		t.Errorf("a second connection, %v", err)
	}
	p.prune()
	if again, _ := p.conn("other"); again != first {
		t.Error("the connection to a node that is there was closed")
	}
	m.PeerAddress = "127.0.0.1:2"
	moved, err := p.conn("other")
	if err != nil || moved == first || moved.address != m.PeerAddress {
		t.Errorf("to the node's address of before: %v", err)
	}
	gone := func(what string, err error) {
		t.Helper()
		var u *kv.UnavailableError
		if !errors.As(err, &u) || u.RetryAfter <= 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, state := range []shard.State{shard.Dead, shard.Left} {
		m.State = state
		_, err := p.conn("other")
		gone("a node that is gone", err)
		if again, err := p.reach("other"); err != nil || again != moved {
			t.Errorf("the sign of life of a node that may be gone: %v", err)
		}
	}
	for _, state := range []shard.State{shard.Dead, shard.Left} {
		m.State = state
		if p.prune(); len(p.conns) != 0 {
			t.Error("the connection to a node that is gone is kept")
		}
		if _, err := p.reach("other"); err != nil {
			t.Fatal(err)
		}
	}
	known = false
	_, err = p.conn("other")
	gone("an unknown node", err)
	if p.prune(); len(p.conns) != 0 {
		t.Error("the connection to an unknown node is kept")
	}
	known, m.State = true, shard.Alive
	p.close()
	_, err = p.conn("other")
	gone("of a node that stops", err)
}

// A part is stuck when just so many looks have found its touch under way.
func TestStuckAfterSoManyLooks(t *testing.T) {
	p := &pulse{touched: "the part", looks: stuckLooks - 1}
	if why := p.stuck(); why != "" {
		t.Errorf("too early: %s", why)
	}
	if p.looks++; !strings.HasPrefix(p.stuck(), "the part: no answer for 30s") {
		t.Errorf("too late: %q", p.stuck())
	}
}
