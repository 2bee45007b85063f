package etcdclock

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A lineage is adopted while a caller waits for a look at etcd. The data that the caller received belongs to the
// previous lineage, whatever the look returns.
func TestLineageChangesDuringTheCheckOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Reader{}
		c.Adopt(1, kv.Mark{})
		look := newQuestion[sight](nil, 0)
		defer look.cancel()
		c.looks.next, c.looks.asking = look, true // the test answers this look
		checked := make(chan error)
		go func() { checked <- c.Admit(t.Context(), 1) }()
		synctest.Wait() // the caller waits for the look
		c.Adopt(2, kv.Mark{})
		close(look.done)
		if err := <-checked; !errors.Is(err, errMoved) {
			t.Errorf("got %v", err)
		}
	})
}

var before = kv.Mark{Cluster: 1, Term: 4, Index: 50, Revision: 30}

// Claims about one lineage do not affect another. The end of a history is revoked only by Retract and by the same
// cluster ID.
func TestEndOfALineage(t *testing.T) {
	c := &Reader{}
	want := func(step string, ended bool, mark kv.Mark) {
		t.Helper()
		_, why, _ := c.Ended()
		if _, known := c.Known(); (why != nil) != ended || known != mark {
			t.Errorf("%s: ended %v, known %+v; want %v, %+v", step, why, known, ended, mark)
		}
	}
	told := func(step string, changed <-chan struct{}) {
		t.Helper()
		select {
		case <-changed:
		default:
			t.Errorf("%s: callers that wait for a change are not notified", step)
		}
	}
	moved := &kv.HistoryError{Cause: kv.CauseCluster, Is: kv.Mark{Cluster: 9}}
	c.Adopt(1, before)
	c.past.compacted(5)
	c.Adopt(1, kv.Mark{Term: 9, Revision: 10})
	known := before
	known.Term = 9
	want("adopted again", false, known)
	if c.past.floor() != 5 {
		t.Error("the compact revision was forgotten in the same lineage")
	}
	c.Suspect(2, kv.ErrOtherHistory)
	want("another lineage is suspect", false, known)
	c.Retract(1, kv.Mark{Revision: 3})
	want("retracted before its end", false, known)

	_, _, changed := c.Ended()
	c.Suspect(1, kv.ErrOtherHistory)
	told("suspect", changed)
	want("suspect", true, known)
	c.Suspect(1, moved)
	c.lineage.resume(1)
	want("the first reason stays", true, known)
	c.Saw(1, kv.Mark{Revision: 999})
	want("read behind its end", true, known)
	c.Adopt(1, kv.Mark{})
	want("adopted again after its end", true, known)
	c.Retract(2, kv.Mark{Revision: 3})
	want("another lineage is retracted", true, known)
	_, _, changed = c.Ended()
	c.Retract(1, kv.Mark{Cluster: 9, Revision: 20})
	told("retracted", changed)
	known = kv.Mark{Cluster: before.Cluster, Revision: 20}
	want("retracted", false, known)

	c.Adopt(2, kv.Mark{})
	if c.past.floor() != 0 {
		t.Error("the compact revision of another lineage is remembered")
	}
	if cluster, _ := c.Identity(); cluster != before.Cluster && cluster != 0 {
		t.Errorf("cluster %d", cluster)
	}
	c.Suspect(2, moved)
	c.lineage.resume(1)
	want("another lineage is resumed", true, kv.Mark{})
	c.lineage.resume(2)
	want("resumed", false, kv.Mark{})
}
