package server

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// The streams of a client share its turn, by whatever connections they come; other nodes,
// whose streams hold nothing for a client, have one for each connection.
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
		t.Errorf("a stream from nowhere has the turn of %q", unknown)
	}
}

// While a unit is on its way, progress does not pass the client's position, and a
// watch without a position in this history holds progress back altogether.
func TestProgressStaysAtTheClientsPosition(t *testing.T) {
	here := history{1, 1}
	for name, x := range map[string]struct {
		change func(*watch)
		want   kv.Revision
	}{
		"waits for a unit":             {func(*watch) {}, 20},
		"is sent a unit":               {func(w *watch) { w.climb.begun = true }, 10},
		"has had a unit":               {func(w *watch) { w.phase, w.climb.begun, w.climb.since, w.at = landing, true, 0, 30 }, 30},
		"live":                         {func(w *watch) { w.phase = live }, math.MaxInt64},
		"collects a conflated unit":    {func(w *watch) { w.phase, w.latest.keys = live, map[string]*kv.KeyValue{} }, 20},
		"is sent a conflated unit":     {func(w *watch) { w.phase, w.latest.body = live, &router.Body{} }, 10},
		"comes from another history":   {func(w *watch) { w.in = history{2, 1} }, 0},
		"comes from another lineage":   {func(w *watch) { w.in = history{1, 7} }, 0},
		"begins with a state":          {func(w *watch) { w.climb.unit, w.climb.key.kind = &unit{}, shardwatchv1.SyncKind_SYNC_KIND_STATE }, 0},
		"is resynced, and has not had": {func(w *watch) { w.climb.unit, w.climb.key.kind = &unit{}, shardwatchv1.SyncKind_SYNC_KIND_RESYNC }, 20},
	} {
		w := &watch{phase: syncing, at: 10, in: here, follows: here, climb: climb{since: 20}}
		if x.change(w); w.reached() != x.want {
			t.Errorf("%s: progress up to %d, want %d", name, w.reached(), x.want)
		}
	}
}

// A stream's progress is that of the watch that is furthest behind, among those that
// were created.
func TestProgressOfAStream(t *testing.T) {
	at := func(p phase, revision kv.Revision) *watch { return &watch{phase: p, at: revision} }
	for name, x := range map[string]struct {
		watches []*watch
		want    reached
	}{
		"no watch":                    {nil, reached{idle: true}},
		"one that is not created yet": {[]*watch{at(creating, 5)}, reached{}},
		"the furthest behind":         {[]*watch{at(syncing, 30), at(landing, 10), at(syncing, 20)}, reached{revision: 10}},
		"not the one that comes":      {[]*watch{at(syncing, 30), at(creating, 10)}, reached{revision: 30}},
		"not the one that is over":    {[]*watch{at(syncing, 30), at(over, 10)}, reached{revision: 30}},
	} {
		s := &stream{watches: map[int64]*watch{}}
		for i, w := range x.watches {
			s.watches[int64(i)] = w
		}
		if got := s.reached(); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	for p, want := range map[phase]kv.Revision{creating: 10, syncing: 20, landing: 20, live: 20, over: 10} {
		w := at(p, 10)
		if w.told(5); w.at != 10 {
			t.Errorf("a watch in phase %d goes back to %d", p, w.at)
		}
		if w.told(20); w.at != want {
			t.Errorf("a watch in phase %d is at %d, want %d", p, w.at, want)
		}
	}
}

// A request for progress is answered once the stream has all of etcd's present
// revision, and at once when there is no watch.
func TestProgressRequestIsAnswered(t *testing.T) {
	for name, x := range map[string]struct {
		known   bool
		r       reached
		answer  bool
		waiting kv.Revision
	}{
		"nobody asks":                 {false, reached{revision: 9}, false, 0},
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

// A watch shares a unit that has begun only if the unit is not older than it needs, has
// begun a short time ago, and is no state that was asked for: such a state must be of
// after the question.
func TestUnitsThatAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			kind  shardwatchv1.SyncKind
			least kv.Revision
			after time.Duration
			want  bool
		}{
			"as new as needed":     {shardwatchv1.SyncKind_SYNC_KIND_RESYNC, 10, 0, true},
			"one revision too old": {shardwatchv1.SyncKind_SYNC_KIND_RESYNC, 11, 0, false},
			"a delta":              {shardwatchv1.SyncKind_SYNC_KIND_DELTA, 10, usualPatience().share - 1, true},
			"begun too long ago":   {shardwatchv1.SyncKind_SYNC_KIND_DELTA, 10, usualPatience().share, false},
			"a state":              {shardwatchv1.SyncKind_SYNC_KIND_STATE, 10, 0, false},
		} {
			u := newUnits(&Config{MaxResyncs: 1})
			key := unitKey{kind: x.kind}
			begun := &unit{key: key, riders: map[*watch]time.Time{}, state: unitReady, begun: time.Now(), body: router.NewBody(1, 10, nil, nil)}
			u.shared[key] = begun
			time.Sleep(x.after)
			if got := u.board(&watch{}, key, x.least, "") == begun; got != x.want {
				t.Errorf("%s: shared %v, want %v", name, got, x.want)
			}
		}
		u := newUnits(&Config{MaxResyncs: 1})
		first := u.board(&watch{}, unitKey{}, 7, "")
		u.board(&watch{}, unitKey{}, 9, "")
		if again := u.board(&watch{}, unitKey{}, 8, ""); again != first || first.least != 9 || u.stats.Waiting != 3 {
			t.Errorf("three wait for the same unit: at least %d, %d waiting", first.least, u.stats.Waiting)
		}
	})
}

// A unit that no watch takes more of gives its place to another one, is held for a while,
// and is dropped then, or when too many are held. One that is at work stays.
func TestWhichUnitsStall(t *testing.T) {
	now := time.Now()
	p := usualPatience()
	newUnit := func(u *units, idle time.Duration) *unit {
		x := &unit{
			key: unitKey{kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}, riders: map[*watch]time.Time{{}: now},
			state: unitReady, placed: true, begun: now, taken: now.Add(-idle), cancel: func() {},
		}
		u.begun[x] = struct{}{}
		u.lanes[x.key.lane()].running++
		return x
	}
	for name, test := range map[string]struct {
		idle          time.Duration
		change        func(*unit)
		placed, begun bool
	}{
		"it is read":            {p.stalled, func(*unit) {}, true, true},
		"it has stalled":        {p.stalled + 1, func(*unit) {}, false, true},
		"for long":              {p.hold, func(*unit) {}, false, true},
		"for too long":          {p.hold + 1, func(*unit) {}, false, false},
		"a part is being made":  {p.hold + 1, func(x *unit) { x.making = 1 }, true, true},
		"it is being loaded":    {p.hold + 1, func(x *unit) { x.state = unitLoads }, true, true},
		"no watch, others may":  {0, func(x *unit) { clear(x.riders) }, true, true},
		"no watch, none may":    {0, func(x *unit) { clear(x.riders); x.begun = now.Add(-p.share) }, false, false},
		"a watch, no other may": {0, func(x *unit) { x.begun = now.Add(-p.share) }, true, true},
	} {
		u := newUnits(&Config{MaxResyncs: 9})
		x := newUnit(u, test.idle)
		test.change(x)
		u.sweep(now)
		if _, begun := u.begun[x]; x.placed != test.placed || begun != test.begun || u.lanes[1].running > 0 != test.placed {
			t.Errorf("%s: has a place %v, is there %v, %d run", name, x.placed, begun, u.lanes[1].running)
		}
	}
	u := newUnits(&Config{MaxResyncs: 2})
	var held []*unit
	for i := range 2*holdFactor + 3 {
		held = append(held, newUnit(u, p.stalled+time.Duration(1+i)))
	}
	u.sweep(now)
	for i, x := range held {
		if _, begun := u.begun[x]; begun != (i < 2*holdFactor) {
			t.Errorf("unit %d of %d, the newest first: there %v", i, len(held), begun)
		}
	}
}

// The place of a unit is given back once: when a watch has had all of it, or when no
// watch is left on it.
func TestPlaceOfAUnitIsGivenBackOnce(t *testing.T) {
	for name, x := range map[string]struct {
		through [2]bool
		running [2]int // after the first and the second watch has left
	}{
		"both have had it":  {[2]bool{true, true}, [2]int{0, 0}},
		"both leave":        {[2]bool{false, false}, [2]int{1, 0}},
		"the first leaves":  {[2]bool{false, true}, [2]int{1, 0}},
		"the second leaves": {[2]bool{true, false}, [2]int{0, 0}},
	} {
		u := newUnits(&Config{MaxResyncs: 1})
		riders := []*watch{{}, {}}
		key := unitKey{kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}
		for _, w := range riders {
			u.board(w, key, 0, "")
		}
		l := &u.lanes[key.lane()]
		begun, _ := l.Pop()
		delete(u.waiting, key)
		begun.state, begun.placed, begun.begun, begun.cancel = unitReady, true, time.Now(), func() {}
		begun.body = router.NewBody(1, 10, nil, nil)
		u.shared[key], u.begun[begun], l.running = begun, struct{}{}, 1
		for i, w := range riders {
			for range 2 { // again: it has left already
				if u.leave(begun, w, x.through[i]); l.running != x.running[i] {
					t.Errorf("%s: %d units have a place after %d watches left, want %d", name, l.running, i+1, x.running[i])
				}
			}
		}
	}
	u := newUnits(&Config{MaxResyncs: 1})
	w := &watch{}
	other := &watch{}
	waits := u.board(w, unitKey{}, 0, "")
	u.board(other, unitKey{}, 0, "")
	for range 2 {
		if u.leave(waits, w, false); u.stats.Waiting != 1 || len(u.waiting) != 1 {
			t.Errorf("%d watches and %d units wait, want the other watch with its unit", u.stats.Waiting, len(u.waiting))
		}
	}
	for range 2 {
		if u.leave(waits, other, false); u.stats.Waiting != 0 || len(u.waiting) != 0 || u.lanes[1].running != 0 {
			t.Errorf("%d watches wait, %d units wait, %d have a place", u.stats.Waiting, len(u.waiting), u.lanes[1].running)
		}
	}
}

// A unit is of the lineage that the watch was promised, and not older than the watch
// needs.
func TestUnitIsOfThePromisedHistory(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	was := h.Now()
	n.Gate(1).Limit(was)
	now := h.Commit(cachetest.Put("a", "1")) // the shard does not have it
	cfg := &Config{Router: router.New(router.Config{Shards: n, Clock: h, Self: "here"})}
	for _, kind := range []shardwatchv1.SyncKind{shardwatchv1.SyncKind_SYNC_KIND_RESYNC, shardwatchv1.SyncKind_SYNC_KIND_DELTA} {
		key := unitKey{kind: kind, lineage: 1, since: was}
		if body, err := cfg.find(t.Context(), key, 0, budget.Client{}); err != nil || body.Revision != was {
			t.Errorf("%v: %+v, %v", kind, body, err)
		}
		key.lineage = 2
		var other *kv.LineageError
		if _, err := cfg.find(t.Context(), key, 0, budget.Client{}); !errors.As(err, &other) || *other != (kv.LineageError{Requested: 2, Current: 1}) {
			t.Errorf("%v of another lineage: %v", kind, err)
		}
	}
	n.Gate(1).Limit(0)
	body, err := cfg.find(t.Context(), unitKey{kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, lineage: 1}, now, budget.Client{})
	if err != nil || body.Revision < now {
		t.Errorf("at least %d: %+v, %v", now, body, err)
	}
}

// The age of a stream is that of its oldest watch, and not known while that of one is
// not.
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
			s.watches[int64(i)] = &watch{phase: live, inner: inner}
		}
		time.Sleep(time.Minute)
		observe := func(id shard.ID, age time.Duration) {
			n.Replica(id).Observe(time.Now().Add(-age), n.Replica(id).Progress())
		}
		observe(1, time.Second)
		if age, known := s.age(); known {
			t.Errorf("%v, though one watch's age is not known", age)
		}
		observe(2, 5*time.Second)
		if age, known := s.age(); !known || age != 5*time.Second {
			t.Errorf("%v, known %v; want 5s", age, known)
		}
		if m := ageMessage(s.age()); m.AsDuration() != 5*time.Second {
			t.Errorf("the client is told %v", m)
		}
		if m := ageMessage(0, false); m != nil {
			t.Errorf("an age that is not known is told as %v", m)
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

// failing is a handshake that fails.
type failing struct {
	credentials.TransportCredentials
	err error
}

func (f failing) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, f.err
}
func (f failing) Clone() credentials.TransportCredentials { return f }

// The operator is told of a certificate that is refused, also by a copy of the
// credentials, and not of every probe that connects and goes.
func TestFailedHandshakesAreReported(t *testing.T) {
	bad := errors.New("bad certificate")
	for _, x := range []struct {
		err    error
		report bool
	}{
		{nil, false},
		{bad, true},
		{fmt.Errorf("tls: %w", bad), true},
		{io.ErrUnexpectedEOF, true},
		{io.EOF, false},
		{fmt.Errorf("read: %w", io.EOF), false},
		{net.ErrClosed, false},
		{credentials.ErrConnDispatched, false},
	} {
		a, b := net.Pipe()
		var reported []error
		h := &handshakes{failing{err: x.err}, func(from net.Addr, err error) {
			if from != a.RemoteAddr() {
				t.Errorf("from %v", from)
			}
			reported = append(reported, err)
		}}
		for _, one := range []credentials.TransportCredentials{h, h.Clone()} {
			if _, _, err := one.ServerHandshake(a); !errors.Is(err, x.err) {
				t.Errorf("the caller gets %v, want %v", err, x.err)
			}
		}
		if want := map[bool]int{true: 2}[x.report]; len(reported) != want {
			t.Errorf("%v: reported %d times, want %d", x.err, len(reported), want)
		}
		_, _ = a.Close(), b.Close()
	}
}
