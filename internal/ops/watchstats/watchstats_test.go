package watchstats_test

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

type nobody struct{}

func (nobody) Wake() {}

func TestFigures(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	c := n.Replica(1)
	<-c.Ready()
	inner, err := router.New(router.Config{Shards: n, Clock: h, Self: "here"}).
		Watch(t.Context(), router.WatchRequest{Range: kv.Single("a"), From: cachetest.Start + 1}, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	var w watchstats.Watch
	began := time.Now()
	w.Open(began)
	w.Follow(inner)
	for range 5 {
		h.Commit(cachetest.Put("a", "1"))
	}
	if err := c.WaitProgress(t.Context(), h.Now()); err != nil {
		t.Fatal(err)
	}
	// A young watch's rate is the rate since its beginning.
	w.Sent(1000)
	now := began.Add(10 * time.Minute)
	f := w.Figures(now, 0, time.Time{})
	if f.Mode != watchstats.Window || f.Lag != 5 || f.Revision != cachetest.Start || f.Behind <= 0 || f.Bytes != 1000 || f.Rate != 1000./600 || !f.Since.Equal(began) {
		t.Errorf("unread: %+v", f)
	}
	for {
		revision, _, err := inner.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if revision == 0 {
			break
		}
	}
	w.Sample()
	w.Sent(500)
	w.Sample()
	w.Sent(500)
	if f = w.Figures(now, 0, now.Add(-10*time.Second)); f.Lag != 0 || f.Behind != 0 || f.Revision != h.Now() || f.Rate != 100 {
		t.Errorf("read: %+v", f)
	}
	w.Leave(h.Now()-2, now)
	w.Begin(watchstats.Delta)
	if f = w.Figures(now.Add(time.Second), h.Now(), now); f.Mode != watchstats.Delta || f.Lag != 2 || f.Behind != time.Second || f.Deltas != 1 || f.Resyncs != 0 {
		t.Errorf("in mode delta: %+v", f)
	}
	w.Begin(watchstats.Resync)
	w.Follow(inner)
	if f = w.Figures(now, 0, now); f.Mode != watchstats.Window || f.Lag != 0 || f.Resyncs != 1 {
		t.Errorf("back: %+v", f)
	}
}

func TestServeModesHaveNames(t *testing.T) {
	seen := map[string]bool{"none": true}
	for _, r := range watchstats.Modes() {
		if seen[r.String()] {
			t.Errorf("mode %d has the name of another mode: %s", r, r)
		}
		seen[r.String()] = true
	}
	if watchstats.Mode(99).String() != "none" || watchstats.Mode(0).String() != "none" {
		t.Error("an invalid mode has a name")
	}
}
