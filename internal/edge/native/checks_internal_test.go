package native

import (
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// The streams of a client share a turn, on all its connections. Other nodes, whose streams use no
// client's budget, have a turn for each connection.
func TestStreamsOfAClientShareItsTurn(t *testing.T) {
	at := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: port} }
	alice := budget.Client{Name: "alice"}
	a, b := &stream{holder: alice, from: at(1)}, &stream{holder: alice, from: at(2)}
	if a.turns() != b.turns() {
		t.Errorf("turns of %q and %q", a.turns(), b.turns())
	}
	m, n := &stream{from: at(1)}, &stream{from: at(2)}
	if m.turns() == n.turns() || m.turns() == a.turns() {
		t.Errorf("nodes have the turns of %q and %q", m.turns(), n.turns())
	}
	if unknown := (&stream{}).turns(); unknown != "" {
		t.Errorf("a stream without an address has the turn of %q", unknown)
	}
}

// While a unit is being sent, progress does not pass the client's position. A watch
// without a position in this history keeps progress at 0.
func TestProgressStaysAtTheClientsPosition(t *testing.T) {
	here := history{1, 1}
	for name, x := range map[string]struct {
		change func(*watch)
		want   kv.Revision
	}{
		"waits for a unit":          {func(*watch) {}, 20},
		"is sent a unit":            {func(w *watch) { w.resync.begun = true }, 10},
		"has had a unit":            {func(w *watch) { w.phase, w.resync.begun, w.resync.since, w.at = opening, true, 0, 30 }, 30},
		"live":                      {func(w *watch) { w.phase = live }, math.MaxInt64},
		"collects a conflated unit": {func(w *watch) { w.phase, w.latest.keys = live, map[string]*kv.KeyValue{} }, 20},
		"is sent a conflated unit":  {func(w *watch) { w.phase, w.latest.body = live, &router.Body{} }, 10},
		"is of another history":     {func(w *watch) { w.in = history{2, 1} }, 0},
		"is of another lineage":     {func(w *watch) { w.in = history{1, 7} }, 0},
		"begins with a state": {func(w *watch) {
			w.resync.batch, w.resync.key.Kind = &syncbatch.Batch{}, shardwatchv1.SyncKind_SYNC_KIND_STATE
		}, 0},
		"is resynced, and has not had": {func(w *watch) {
			w.resync.batch, w.resync.key.Kind = &syncbatch.Batch{}, shardwatchv1.SyncKind_SYNC_KIND_RESYNC
		}, 20},
	} {
		w := &watch{phase: syncing, at: 10, in: here, follows: here, resync: resync{since: 20}}
		if x.change(w); w.reached() != x.want {
			t.Errorf("%s: progress up to %d, want %d", name, w.reached(), x.want)
		}
	}
}

// A stream's progress is the progress of the created watch that is furthest behind.
func TestProgressOfAStream(t *testing.T) {
	at := func(p phase, revision kv.Revision) *watch { return &watch{phase: p, at: revision} }
	for name, x := range map[string]struct {
		watches []*watch
		want    reached
	}{
		"no watch":                          {nil, reached{idle: true}},
		"one that is not created yet":       {[]*watch{at(creating, 5)}, reached{}},
		"the one with the lowest position":  {[]*watch{at(syncing, 30), at(opening, 10), at(syncing, 20)}, reached{revision: 10}},
		"not the one that is being created": {[]*watch{at(syncing, 30), at(creating, 10)}, reached{revision: 30}},
		"not the one that is over":          {[]*watch{at(syncing, 30), at(over, 10)}, reached{revision: 30}},
	} {
		s := &stream{watches: map[int64]*watch{}}
		for i, w := range x.watches {
			s.watches[int64(i)] = w
		}
		if got := s.reached(); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	for p, want := range map[phase]kv.Revision{creating: 10, syncing: 20, opening: 20, live: 20, over: 10} {
		w := at(p, 10)
		if w.told(5); w.at != 10 {
			t.Errorf("a watch in phase %d goes back to %d", p, w.at)
		}
		if w.told(20); w.at != want {
			t.Errorf("a watch in phase %d is at %d, want %d", p, w.at, want)
		}
	}
}

// A request for progress is answered once the stream has reached etcd's current
// revision, and at once if there is no watch.
func TestProgressRequestIsAnswered(t *testing.T) {
	for name, x := range map[string]struct {
		known   bool
		r       reached
		answer  bool
		waiting kv.Revision
	}{
		"no request":                  {false, reached{revision: 9}, false, 0},
		"etcd has not answered":       {false, reached{revision: 10}, false, 0},
		"one revision is missing":     {true, reached{revision: 9}, false, 10},
		"all is sent":                 {true, reached{revision: 10}, true, 0},
		"more is sent":                {true, reached{revision: 11}, true, 0},
		"there is no watch":           {true, reached{idle: true}, true, 0},
		"a watch waits for its start": {true, reached{}, false, 10},
	} {
		p := &progress{known: x.known, asking: x.known, wanted: 10, poll: time.AfterFunc(math.MaxInt64, func() {})}
		answer, waiting := p.dueAt(x.r)
		if answer != x.answer || waiting != x.waiting || p.asking != (x.known && !x.answer) {
			t.Errorf("%s: answer %v, waits for %d, request open %v", name, answer, waiting, p.asking)
		}
		p.poll.Stop()
	}
}

// The age of a stream is the age of its oldest watch, and unknown while the age of any
// watch is unknown. Data that the watches have not been sent does not count.
func TestAgeOfAStreamIsThatOfItsOldestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		n.Use(cachetest.Map(1, []string{"m"}, "here"))
		r := router.New(router.Config{Shards: n, Clock: h, Self: "here"})
		s := &stream{watches: map[int64]*watch{9: {phase: syncing}}}
		for i, key := range []string{"a", "z"} {
			<-n.Replica(shard.ID(i + 1)).Ready()
			inner, err := r.Watch(t.Context(), router.WatchRequest{Range: kv.Single(key), From: h.Now() + 1}, silent{})
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			s.watches[int64(i)] = &watch{phase: live, inner: &reader{Watch: inner}}
		}
		time.Sleep(time.Minute)
		observe := func(id shard.ID, age time.Duration) {
			n.Replica(id).Observe(time.Now().Add(-age), n.Replica(id).Progress())
		}
		p := &progress{s: s}
		at := h.Now()
		want := func(what string, sent kv.Revision, want time.Duration) {
			t.Helper()
			age, known := p.sentAge(sent)
			if m := ageMessage(age, known); m.AsDuration() != want || (m != nil) != (want > 0) {
				t.Errorf("%s: the client gets %v, want %v", what, m, want)
			}
		}
		observe(1, time.Second)
		want("one watch's age is not known", at, 0)
		observe(2, 5*time.Second)
		want("everything is sent", at, 5*time.Second)
		time.Sleep(time.Second)
		want("as before", at, 6*time.Second)

		commit := func() kv.Revision {
			now := h.Commit(cachetest.Put("a", "new"), cachetest.Put("z", "new"))
			synctest.Wait()
			observe(1, 0)
			observe(2, 0)
			return now
		}
		next := commit()
		want("an event is unread, the earlier data is sent", at, 6*time.Second)
		time.Sleep(2 * time.Second)
		commit()
		want("no more has been sent", at, 0)
		last := commit()
		want("the first event is sent, others are unread", next, 2*time.Second)
		time.Sleep(3 * time.Second)
		want("everything is sent again", last, 3*time.Second)
		want("no watch has started", 0, 0)
		if m := ageMessage(0, false); m != nil {
			t.Errorf("an unknown age is sent as %v", m)
		}
	})
}

// Bounds of what a watch may ask for.
func TestBoundsOfAWatchsRequest(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		minWatchStaleness - 1: false, minWatchStaleness: true, time.Hour: true, 0: false, -1: false,
	} {
		if got, err := watchStaleness(durationpb.New(d)); (err == nil) != ok || ok && got != d {
			t.Errorf("max_staleness %v: %v, %v", d, got, err)
		}
	}
	for d, ok := range map[time.Duration]bool{
		minConflate - 1: false, minConflate: true, maxConflate: true, maxConflate + 1: false,
	} {
		if got, err := conflation(&shardwatchv1.CreateWatch{Conflate: durationpb.New(d), AllowSync: true}); (err == nil) != ok || ok && got != d {
			t.Errorf("conflate %v: %v, %v", d, got, err)
		}
	}
	for _, r := range []*shardwatchv1.CreateWatch{{AllowSync: false}, {AllowSync: true, PrevKv: true}} {
		r.Conflate = durationpb.New(time.Second)
		if _, err := conflation(r); err == nil {
			t.Errorf("%v is accepted", r)
		}
	}
}
