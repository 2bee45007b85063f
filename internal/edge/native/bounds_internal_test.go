package native

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A position is valid only in its own cluster and lineage. A position without a lineage
// is valid in any lineage of its cluster.
func TestJudgeAPosition(t *testing.T) {
	here := historyOf(kv.HistoryID{Cluster: "one", Lineage: 3})
	other := wire.ClusterKey("other")
	for _, c := range []struct {
		in      history
		wrong   bool
		foreign string
	}{
		{history{here.cluster, 3}, false, ""},
		{history{here.cluster, 0}, false, ""},
		{history{here.cluster, 2}, true, ""},
		{history{here.cluster, 4}, true, ""},
		{history{other, 3}, true, "resume token"},
		{history{other, 0}, true, "resume token"},
		{claimed("", 0, here), false, ""},
		{claimed("", 3, here), false, ""},
		{claimed("", 2, here), true, ""},
		{claimed("one", 3, here), false, ""},
		{claimed("one", 2, here), true, ""},
		{claimed("other", 3, here), true, "resume token"},
	} {
		err := c.in.judge(here, "resume token")
		l, ok := err.(*kv.LineageError) //nolint:errorlint // it is not wrapped
		if ok != c.wrong || ok && (l.Foreign != c.foreign || l.Requested != c.in.lineage || l.Current != 3) {
			t.Errorf("%+v: %v", c.in, err)
		}
	}
}

type silent struct{}

func (silent) Wake() {}

// A watch is stale once its data is older than the bound of the watch, and not before. The age of
// its data grows while it has no source.
func TestAWatchIsStaleAfterItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10 * time.Second
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		n.Use(cachetest.Map(1, nil, "here"))
		<-n.Replica(1).Ready()
		r := router.New(router.Config{Shards: n, Clock: h, Self: "here"})
		inner, err := r.Watch(t.Context(), router.WatchRequest{From: h.Now() + 1}, silent{})
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		here := &reader{Watch: inner}
		w := &watch{inner: here, maxStaleness: bound}
		stale := func(what string, want bool) {
			t.Helper()
			err := w.stale(time.Now())
			var u *kv.UnavailableError
			if (err != nil) != want || want && (!errors.As(err, &u) || u.Why != kv.Stale) {
				t.Errorf("%s: %v", what, err)
			}
			if (&watch{inner: here}).stale(time.Now()) != nil {
				t.Errorf("%s: a watch without a bound is stale", what)
			}
		}
		stale("of an age that is not known", true)
		n.Replica(1).Observe(time.Now(), n.Replica(1).Progress())
		stale("fresh", false)
		time.Sleep(bound)
		stale("at the bound", false)
		time.Sleep(time.Nanosecond)
		stale("after the bound", true)
		n.Replica(1).Observe(time.Now(), n.Replica(1).Progress())
		stale("fresh again", false)
		time.Sleep(bound / 2)
		stale("half of the bound", false)
		half := time.Now()
		n.Stop()
		if _, _, err := inner.Next(nil); err != nil {
			t.Fatal(err)
		}
		if _, known := inner.Age(); known {
			t.Fatal("the age is known without a home")
		}
		time.Sleep(bound/2 - time.Since(half))
		stale("at the bound, without a home", false)
		time.Sleep(time.Nanosecond)
		stale("after the bound, without a home", true)
	})
}
