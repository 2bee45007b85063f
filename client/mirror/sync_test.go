package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// Sync returns once the mirror has the state, or returns the reason why it does not.
func TestSyncReturnsTheReasonThatAMirrorIsNotReady(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Put("/demo/a", "1")
	c := connect(t, cluster)
	m := mirror.New(t.Context(), c, demo)
	if err := m.Sync(deadline(t)); err != nil || m.Len() != 1 {
		t.Errorf("got %d keys, %v", m.Len(), err)
	}
	_ = m.Close()
	if err := m.Sync(deadline(t)); err != nil {
		t.Errorf("a mirror that ended with its state: %v", err)
	}

	cluster.Nodes()[0].Kill()
	m = mirror.New(t.Context(), c, demo)
	eventually(t, "the watch has failed", func() bool { return m.Stats().LastError != nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Sync(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "last error: ") {
		t.Errorf("no node serves: %v", err)
	}
	_ = m.Close()
	if err := m.Sync(deadline(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("a mirror that was closed without a state: %v", err)
	}
	wrong := mirror.New(t.Context(), c, client.Between("b", "a"))
	if err := wrong.Sync(deadline(t)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty range: %v", err)
	}
	_ = wrong.Close()
}

// A resync is reported as a change even if no key changes: a program learns that the
// history may be another one.
func TestChangesNameTheFirstAndResyncs(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	at := cluster.Put("/demo/a", "1")
	m := mirror.New(t.Context(), connect(t, cluster), demo)
	defer func() { _ = m.Close() }()
	var got []mirror.Change
	for ch, err := range m.Changes(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		switch got = append(got, ch); len(got) {
		case 1:
			cluster.Put("/elsewhere", "x")
			cluster.Restore(at)
		case 2:
			cluster.Put("/demo/b", "1")
		}
		if len(got) == 3 {
			break
		}
	}
	for i, want := range []mirror.Change{{Initial: true}, {Resync: true}, {}} {
		if ch := got[i]; ch.Initial != want.Initial || ch.Resync != want.Resync {
			t.Errorf("change %d: initial %v, resync %v", i, ch.Initial, ch.Resync)
		}
	}
	if len(got[0].Events) != 1 || len(got[1].Events) != 0 || len(got[2].Events) != 1 || got[1].View.Position().Lineage != cluster.Lineage() {
		t.Errorf("changes: %+v", got)
	}
}
