package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func closed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: still waiting", what)
	}
}

// A program that waits for the start of a watch, or for the first state of a mirror,
// continues if the watch ends before that, and can read the reason.
func TestWaitForTheStartOfAWatchThatEndsFirst(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Nodes()[0].Kill()
	c := connect(t, cluster)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	w, m := c.Watch(ctx, demo), mirror.New(ctx, c, demo)
	byClose := c.Watch(t.Context(), demo)
	lost, lostMirror := c.Watch(t.Context(), demo), mirror.New(t.Context(), c, demo)
	if w.Err() != nil {
		t.Errorf("a watch that has not ended: %v", w.Err())
	}
	cancel(why)
	byClose.Close()
	closed(t, "context", w.Started())
	closed(t, "mirror's context", m.Ready())
	closed(t, "close", byClose.Started())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	closed(t, "client", lost.Started())
	closed(t, "mirror's client", lostMirror.Ready())
	late, lateMirror := c.Watch(t.Context(), demo), mirror.New(t.Context(), c, demo)
	closed(t, "after the client", late.Started())
	closed(t, "mirror after the client", lateMirror.Ready())
	wrong := connect(t, cluster).Watch(t.Context(), client.Key(""))
	closed(t, "wrong", wrong.Started())
	for name, c := range map[string]struct{ got, want error }{
		"context": {w.Err(), why}, "mirror's context": {m.Err(), why}, "close": {byClose.Err(), client.ErrClosed},
		"client": {lost.Err(), client.ErrClosed}, "mirror's client": {lostMirror.Err(), client.ErrClosed},
		"after the client": {late.Err(), client.ErrClosed}, "mirror after the client": {lateMirror.Err(), client.ErrClosed},
		"wrong": {wrong.Err(), client.ErrInvalid},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// The first change of a mirror is its whole content, even if it is empty: a program learns
// that the range is empty.
func TestChangesOfAnEmptyRangeBegin(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	rev := cluster.Put("/elsewhere", "x")
	m := mirror.New(t.Context(), connect(t, cluster), demo)
	defer func() { _ = m.Close() }()
	var got []int
	for ch, err := range m.Changes(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, len(ch.Events)); len(got) == 1 {
			if ch.View.Revision() < rev {
				t.Errorf("the first change is at revision %d", ch.View.Revision())
			}
			if err := m.WaitFor(deadline(t), cluster.At(cluster.Put("/elsewhere", "y"))); err != nil { // progress without events is no change
				t.Fatal(err)
			}
			cluster.Put("/demo/a", "1")
		} else {
			break
		}
	}
	if len(got) != 2 || got[0] != 0 || got[1] != 1 {
		t.Errorf("changes of %d events", got)
	}
}
