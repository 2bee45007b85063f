package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// unread returns a watch from a revision on with updates that the program has not taken.
func unread(t *testing.T, c *client.Client, updates int, opts ...client.WatchOption) *client.Watcher {
	t.Helper()
	w := c.Watch(t.Context(), demo, opts...)
	eventually(t, "the updates are pending", func() bool { return w.Stats().Updates == updates })
	return w
}

// The position and the token of a watch do not cover pending updates, wherever it started.
// A watch from the token gets these updates.
func TestAPositionDoesNotCoverPendingUpdates(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	for range 4 {
		cluster.Put("/demo/a", "x") // revisions 2 to 5
	}
	c := connect(t, cluster)
	begun := c.Watch(t.Context(), demo, client.FromRevision(3))
	if _, err := begun.Next(deadline(t)); err != nil {
		t.Fatal(err)
	}
	at3 := begun.Token()
	begun.Close()
	for name, s := range map[string]struct {
		opts  []client.WatchOption
		first int64 // the revision of the first taken update
	}{
		"from a revision":          {[]client.WatchOption{client.FromRevision(4)}, 4},
		"from the first":           {[]client.WatchOption{client.FromRevision(2)}, 2},
		"from a revision, history": {[]client.WatchOption{client.FromPosition(cluster.At(3))}, 4},
		"from a token":             {[]client.WatchOption{client.FromToken(at3)}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := unread(t, c, int(6-s.first), s.opts...)
			for next := s.first; ; next++ {
				if got := w.Revision(); got >= next || w.Position().Revision != got || w.Position().Lineage != 1 {
					t.Errorf("before revision %d is taken the position is %v", next, w.Position())
				}
				resumed := c.Watch(t.Context(), demo, client.FromToken(w.Token()))
				u, err := resumed.Next(deadline(t))
				if err != nil || u.Kind != client.KindBatch || u.Revision != next {
					t.Fatalf("from the token before revision %d: %v at %d, %v", next, u.Kind, u.Revision, err)
				}
				resumed.Close()
				if next == 5 {
					break
				}
				if u, err := w.Next(deadline(t)); err != nil || u.Revision != next {
					t.Fatalf("got %v at %d, %v", u.Kind, u.Revision, err)
				}
			}
			w.Close()
		})
	}
}

// The position does not cover pending updates even if the watch resumes on another node meanwhile.
func TestAMoveDoesNotMoveTheProgramsPosition(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	for range 3 {
		cluster.Put("/demo/a", "x")
	}
	c := connect(t, cluster)
	w := unread(t, c, 3, client.FromRevision(2))
	before := w.Token()
	serving(t, cluster, w).Kill()
	eventually(t, "the watch has moved", func() bool { return w.Stats().Resumes > 0 })
	if w.Revision() != 1 || string(w.Token()) != string(before) {
		t.Errorf("at revision %d", w.Revision())
	}
	follow(t, cluster, w, &seen{rng: demo}, 4, 1)
	if w.Revision() != 4 {
		t.Errorf("after all updates: at revision %d", w.Revision())
	}
}

// A running watch has a token, even if it began before the client had a map because one of
// its endpoints is dead.
func TestARunningWatchHasAToken(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 2})
	cluster.Nodes()[0].Kill()
	for range 10 { // the first endpoint varies
		c := connect(t, cluster)
		w := c.Watch(t.Context(), demo)
		waitStarted(t, w)
		token := w.Token()
		if len(token) == 0 {
			t.Fatal("no token")
		}
		rev := cluster.Put("/demo/a", "1")
		again := c.Watch(t.Context(), demo, client.FromToken(token))
		if u, err := again.Next(deadline(t)); err != nil || u.Revision != rev {
			t.Errorf("got %+v, %v", u, err)
		}
		_ = c.Close()
	}
}

// If the revision of a token is compacted, the error names the oldest available revision,
// and no revision that the program has not requested.
func TestATokenBelowTheFloorIsNoRevision(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	first := cluster.Put("/demo/a", "1")
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(first))
	if _, err := w.Next(deadline(t)); err != nil {
		t.Fatal(err)
	}
	token := w.Token()
	w.Close()
	floor := cluster.Put("/demo/a", "2") + 1
	cluster.Compact(floor)
	_, err := c.Watch(t.Context(), demo, client.FromToken(token), client.WithoutResync()).Next(deadline(t))
	compacted, ok := errors.AsType[*client.CompactedError](err)
	if !ok || *compacted != (client.CompactedError{Floor: floor}) || strings.Contains(err.Error(), "revision 0") || strings.Contains(err.Error(), "revision 1 ") {
		t.Errorf("got %v", err)
	}
}

// A program that saved the token of a watch before it had started gets the whole state
// first, because it may have missed events.
func TestASavedEmptyTokenStartsWithAResync(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	rev := cluster.Put("/demo/a", "1")
	c := connect(t, cluster)
	for _, token := range [][]byte{nil, {}} {
		w := c.Watch(t.Context(), demo, client.FromToken(token))
		if u, err := w.Next(deadline(t)); err != nil || u.Kind != client.KindResync || u.Revision != rev || len(u.KVs) != 1 {
			t.Errorf("got %+v, %v", u, err)
		}
		if len(w.Token()) == 0 {
			t.Error("no token")
		}
		w.Close()
		if _, err := c.Watch(t.Context(), demo, client.FromToken(token), client.WithoutResync()).Next(deadline(t)); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("with WithoutResync: %v", err)
		}
	}
}
