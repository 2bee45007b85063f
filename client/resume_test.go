package client_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// OnResume may close the watch, the mirror and the client.
func TestCloseWithinOnResume(t *testing.T) {
	for name, end := range map[string]func(*client.Client, *client.Watcher, *mirror.Mirror){
		"the watch":  func(_ *client.Client, w *client.Watcher, _ *mirror.Mirror) { w.Close() },
		"the mirror": func(_ *client.Client, _ *client.Watcher, m *mirror.Mirror) { _ = m.Close() },
		"the client": func(c *client.Client, _ *client.Watcher, _ *mirror.Mirror) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := start(t, clienttest.Config{Nodes: 1})
			c := connect(t, cluster)
			closed := make(chan struct{}, 2)
			var w *client.Watcher
			var m *mirror.Mirror
			began := make(chan struct{})
			onResume := client.OnResume(func(client.Resume) {
				<-began
				end(c, w, m)
				closed <- struct{}{}
			})
			w, m = c.Watch(t.Context(), demo, onResume), mirror.New(t.Context(), c, demo, onResume)
			close(began)
			waitStarted(t, w)
			<-m.Ready()
			cluster.Nodes()[0].Kill()
			if err := cluster.Nodes()[0].Restart(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-closed:
			case <-deadline(t).Done():
				t.Fatal("Close does not return")
			}
			switch name {
			case "the watch":
				if !errors.Is(w.Err(), client.ErrClosed) {
					t.Error(w.Err())
				}
			case "the mirror":
				<-m.Done()
			case "the client":
				if !errors.Is(w.Err(), client.ErrClosed) || !errors.Is(m.Err(), client.ErrClosed) {
					t.Error(w.Err(), m.Err())
				}
			}
		})
	}
}

// OnResume returns before the program gets updates of the new node. Other watches continue
// while it runs.
func TestUpdatesWaitForOnResume(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	c := connect(t, cluster)
	var told atomic.Bool
	var once sync.Once
	resumed, deal := make(chan struct{}), make(chan struct{})
	w := c.Watch(t.Context(), demo, client.FromRevision(2), client.OnResume(func(client.Resume) {
		once.Do(func() { close(resumed) })
		<-deal
		told.Store(true)
	}))
	other := c.Watch(t.Context(), demo, client.FromRevision(2))
	waitStarted(t, w)
	waitStarted(t, other)
	cluster.Nodes()[0].CutAfter(1)
	rev := cluster.Put("/demo/a", "1")
	select {
	case <-resumed:
	case <-deadline(t).Done():
		t.Fatal("not told")
	}
	follow(t, cluster, other, &seen{rng: demo}, rev, 1)
	eventually(t, "an update is pending", func() bool { return w.Stats().Updates == 1 })
	close(deal)
	if u, err := w.Next(deadline(t)); err != nil || u.Revision != rev || !told.Load() {
		t.Errorf("got %+v, %v; OnResume called: %v", u, err, told.Load())
	}
}
