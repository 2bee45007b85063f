package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Watches are told at the pace, or faster if half of the time that is left asks for it; what
// is left when the time is over is returned, not forgotten.
func TestTheTimeThatAFarewellTakes(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, want time.Duration
		told           int
	}{
		"without a deadline":                 {0, 10 * time.Second, 100},
		"with time to spare":                 {time.Hour, 10 * time.Second, 100},
		"in half of the time":                {8 * time.Second, 4 * time.Second, 100},
		"when the time is over in the midst": {-3 * time.Second, 3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{pace: 10}
				ended := 0
				var all []farewell
				for range 50 { // of two watches each
					all = append(all, farewell{client: &net.TCPAddr{}, watches: 2, end: func() { ended += 2 }})
				}
				ctx := t.Context()
				var cancel context.CancelFunc
				switch {
				case c.deadline > 0:
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				case c.deadline < 0: // nothing says so before
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(-c.deadline, cancel)
				}
				began := time.Now()
				told, left := s.sayGoodbye(ctx, all)
				if took := time.Since(began).Round(time.Second / 2); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
				if told != ended || (c.told > 0 && told != c.told) || told+2*len(left) != 100 {
					t.Errorf("%d told, %d ended, %d farewells left", told, ended, len(left))
				}
				if c.told == 0 && (told < 28 || told > 34) {
					t.Errorf("%d told in 3 s of 10", told)
				}
				if n := endAll(left); n != 2*len(left) || ended != 100 {
					t.Errorf("%d at the end, %d in all", n, ended)
				}
			})
		})
	}
}

// One client's watches are told one after the other.
func TestFarewellsGoClientByClient(t *testing.T) {
	var all []farewell
	for i := range 60 {
		all = append(all, farewell{client: &net.TCPAddr{Port: i % 3}})
	}
	clients := []net.Addr{all[0].client, all[1].client, all[2].client}
	for i := range all {
		all[i].client = clients[i%3]
	}
	changes := 0
	for i, f := range clientByClient(all) {
		if i > 0 && f.client != all[i-1].client {
			changes++
		}
	}
	if changes != 2 {
		t.Errorf("%d changes between three clients", changes)
	}
}

// A position is good in its own cluster and lineage only; one that names no lineage
// is of any lineage of its cluster.
func TestJudgeAPosition(t *testing.T) {
	here := historyOf(kv.History{Cluster: "one", Lineage: 3})
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

// A watch is stale when its data is older than it allows, and not before; while it has
// no home its data grows older.
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
		w := &watch{inner: inner, maxStaleness: bound}
		stale := func(what string, want bool) {
			t.Helper()
			err := w.stale(time.Now())
			var u *kv.UnavailableError
			if (err != nil) != want || want && (!errors.As(err, &u) || u.Why != kv.Stale) {
				t.Errorf("%s: %v", what, err)
			}
			if (&watch{inner: inner}).stale(time.Now()) != nil {
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
