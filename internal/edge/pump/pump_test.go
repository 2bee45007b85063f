package pump_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connection is one whose streams count what they send.
type connection struct {
	attached any
	flushes  atomic.Int64
	flushed  func() // may be nil
}

// transport is a stream of a connection.
type transport struct {
	c    *connection
	sent func(wait func(), bytes int) // may be nil
}

func (*transport) Method() string               { return "" }
func (*transport) SetHeader(metadata.MD) error  { return nil }
func (*transport) SendHeader(metadata.MD) error { return nil }
func (*transport) SetTrailer(metadata.MD) error { return nil }

func (t *transport) Flush() {
	if t.c.flushes.Add(1); t.c.flushed != nil {
		t.c.flushed()
	}
}

func (t *transport) Attach(create func() any) any {
	if t.c.attached == nil {
		t.c.attached = create()
	}
	return t.c.attached
}

func (t *transport) SendFramed(wait func(), parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if t.sent != nil {
		t.sent(wait, n)
	}
	return nil
}

// open returns a stream of the connection, or, if c is nil, a stream that sends each message by itself.
func open(p *pump.Pumps, c *connection, sent func(wait func(), bytes int)) *stream {
	ctx := context.Background()
	if c != nil {
		ctx = grpc.NewContextWithServerTransportStream(ctx, &transport{c, sent})
	}
	return &stream{Stream: p.Open(ctx, "", nil)}
}

// counter is a task that counts its runs, and fails if two tasks of its stream run at the same
// time.
type counter struct {
	task   pump.Task
	s      *stream
	wanted atomic.Int64 // wakes so far
	seen   int64        // owned by the pump: wakes that a run has seen
	again  int          // owned by the pump: further runs to request
	block  chan struct{}
	ran    chan int64 // receives the wakes that a run has seen; may be nil
}

type stream struct {
	*pump.Stream
	at atomic.Int32 // number of pumps that run a task of the stream
}

func (c *counter) run(*pump.Scratch) bool {
	if c.s.at.Add(1) != 1 {
		panic("two pumps run tasks of one stream")
	}
	defer c.s.at.Add(-1)
	if c.block != nil {
		<-c.block
	}
	c.seen = c.wanted.Load()
	if c.ran != nil {
		c.ran <- c.seen
	}
	c.again--
	return c.again > 0
}

func (c *counter) wake() {
	c.wanted.Add(1)
	c.task.Wake()
}

func newCounter(s *stream) *counter {
	c := &counter{s: s}
	c.task.Init(s.Stream, c.run)
	return c
}

// message returns an encoded message of the given size.
func message(size int) *wire.Encoded {
	return &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(make([]byte, size))}}
}

// A task does not run before it is started. Its first run sees all earlier wakes.
func TestStart(t *testing.T) {
	var pumps pump.Pumps
	s := open(&pumps, nil, nil)
	c := newCounter(s)
	c.ran = make(chan int64)
	c.wake()
	select {
	case <-c.ran:
		t.Error("the task ran before it was started")
	default:
	}
	c.task.Start()
	if n := <-c.ran; n != 1 {
		t.Errorf("the first run saw %d wakes, want 1", n)
	}
	s.Close()
	pumps.Wait()
}

// Streams whose sends block, more of them than there are pumps, do not delay the other streams of
// their connection or other connections, and continue when the sends return.
func TestSendsThatWait(t *testing.T) {
	for name, says := range map[string]bool{"and say so": true, "without a word": false} {
		t.Run(name, func(t *testing.T) {
			var pumps pump.Pumps
			var c *connection
			if says {
				c = new(connection)
			}
			goOn, waits := make(chan struct{}), make(chan struct{})
			var stuck []*stream
			var held, beside []*counter
			for range 2*runtime.GOMAXPROCS(0) + 1 {
				s := open(&pumps, c, func(wait func(), _ int) {
					wait()
					waits <- struct{}{}
					<-goOn
				})
				h, b := newCounter(s), newCounter(s)
				h.block = make(chan struct{})
				if says {
					close(h.block)
					h.task.Init(s.Stream, func(own *pump.Scratch) bool {
						if err := s.Send(message(64 << 10)); err != nil {
							t.Error(err)
						}
						return h.run(own)
					})
				}
				b.ran = make(chan int64, 1) // buffered, so that it does not block a pump
				h.task.Start()
				if says {
					<-waits
				}
				b.task.Start()
				stuck, held, beside = append(stuck, s), append(held, h), append(beside, b)
			}
			var free []*stream
			for _, of := range []*connection{c, new(connection), nil} {
				s := open(&pumps, of, nil)
				f := newCounter(s)
				f.ran = make(chan int64)
				for range 3 {
					f.task.Start()
					<-f.ran
				}
				free = append(free, s)
			}
			for _, b := range beside {
				select {
				case <-b.ran:
					t.Error("a task ran on a stream whose send is blocked")
				default:
				}
			}
			close(goOn)
			for _, h := range held {
				if !says {
					close(h.block)
				}
			}
			for _, b := range beside {
				<-b.ran
			}
			for _, s := range slices.Concat(stuck, free) {
				s.Close()
			}
			pumps.Wait()
		})
	}
}

// Each task that is woken runs afterwards, regardless of concurrent wakes and sends. No task runs
// after Close.
func TestWakesAreNotLost(t *testing.T) {
	seed := testseed.Of(t)
	var pumps pump.Pumps
	var wakers sync.WaitGroup
	var streams []*stream
	var tasks []*counter
	conns := []*connection{new(connection), new(connection), nil}
	for n := range 12 {
		s := open(&pumps, conns[n%len(conns)], nil)
		streams = append(streams, s)
		for range 8 {
			c := newCounter(s)
			tasks = append(tasks, c)
			c.task.Start()
		}
	}
	for n := range uint64(4) {
		wakers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, n))
			for range 5000 {
				tasks[rng.IntN(len(tasks))].wake()
			}
		})
	}
	wakers.Wait()
	// One more run of each task, after all queued runs.
	var turn sync.WaitGroup
	for _, s := range streams {
		turn.Add(1)
		var last pump.Task
		once := sync.OnceFunc(turn.Done)
		last.Init(s.Stream, func(*pump.Scratch) bool { once(); return false })
		last.Start()
	}
	turn.Wait()
	for _, s := range streams {
		s.Close()
	}
	pumps.Wait()
	for i, c := range tasks {
		if c.seen != c.wanted.Load() {
			t.Errorf("task %d saw %d of %d wakes", i, c.seen, c.wanted.Load())
		}
		c.task.Wake() // has no effect
	}
}

// A task that is woken while it runs, runs once more.
func TestATaskThatIsWokenWhileItRuns(t *testing.T) {
	var pumps pump.Pumps
	s := open(&pumps, new(connection), nil)
	left, done := 3, make(chan struct{})
	var task pump.Task
	task.Init(s.Stream, func(*pump.Scratch) bool {
		if left--; left == 0 {
			close(done)
		} else {
			task.Wake()
		}
		return false
	})
	task.Start()
	<-done
	s.Close()
	pumps.Wait()
	if left != 0 {
		t.Errorf("the task ran %d times more often than it was woken", -left)
	}
}

// A task runs if it is woken while the bytes of its connection are being written, after the last turn of a visit.
func TestATaskThatIsWokenAsAVisitEnds(t *testing.T) {
	var pumps pump.Pumps
	c := new(connection)
	s := open(&pumps, c, nil)
	done := make(chan struct{})
	var first, next pump.Task
	first.Init(s.Stream, func(*pump.Scratch) bool { return s.Send(message(1)) != nil })
	next.Init(s.Stream, func(*pump.Scratch) bool { close(done); return false })
	c.flushed = sync.OnceFunc(next.Start)
	first.Start()
	<-done
	s.Close()
	pumps.Wait()
}

// A task that has more to do runs again, after the other tasks.
func TestATaskWithMoreWorkRunsAgain(t *testing.T) {
	var pumps pump.Pumps
	s := open(&pumps, nil, nil)
	c := newCounter(s)
	c.again, c.ran = 3, make(chan int64)
	c.task.Start()
	for range 3 {
		<-c.ran
	}
	s.Close()
	pumps.Wait()
}

// The bytes that the streams of a connection send during a visit are passed to the connection
// stream by stream, and flushed once.
func TestAVisitIsWrittenTogether(t *testing.T) {
	const streams, tasks = 5, 10
	var pumps pump.Pumps
	c := new(connection)
	var got []int // bytes of each call
	done := make(chan struct{})
	var all []*stream
	for range streams {
		all = append(all, open(&pumps, c, func(_ func(), n int) {
			if got = append(got, n); len(got) == 1+streams {
				close(done)
			}
		}))
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	var first pump.Task
	first.Init(all[0].Stream, func(*pump.Scratch) bool {
		close(begun)
		<-goOn
		return all[0].Send(message(1)) != nil
	})
	first.Start()
	<-begun
	for _, s := range all { // while the first task runs
		for range tasks {
			task := new(pump.Task)
			task.Init(s.Stream, func(*pump.Scratch) bool { return s.Send(message(95)) != nil })
			task.Start()
		}
	}
	close(goOn)
	<-done
	for _, s := range all {
		s.Close()
	}
	pumps.Wait()
	if want := []int{6, 1000, 1000, 1000, 1000, 1000}; !slices.Equal(got, want) {
		t.Errorf("the connection got %v bytes, want %v", got, want)
	}
	if n := c.flushes.Load(); n != 1 {
		t.Errorf("flushed %d times, want once", n)
	}
}

// If the send of a stream blocks, the trace of a revision that other streams have sent does not
// wait for it.
func TestATraceDoesNotWaitForAClient(t *testing.T) {
	var trace revtrace.Trace
	trace.Applied(1, 7, revtrace.Hop{Shard: 1})
	pumps := pump.Pumps{Trace: &trace}
	c := new(connection)
	traced := make(chan int64, 1)
	read := open(&pumps, c, nil)
	unread := open(&pumps, c, func(wait func(), _ int) {
		wait()
		w, _ := trace.Of(7)
		traced <- w.Watches.Times
	})
	var first, next pump.Task
	next.Init(unread.Stream, func(*pump.Scratch) bool { return unread.Send(message(1)) != nil })
	first.Init(read.Stream, func(own *pump.Scratch) bool {
		next.Start()
		own.Trace.Sent(7, 3)
		return read.Send(message(1)) != nil
	})
	first.Start()
	if n := <-traced; n != 3 {
		t.Errorf("the trace has %d watches, want 3", n)
	}
	read.Close()
	unread.Close()
	pumps.Wait()
}

// A turn ends when it has sent enough. The tasks that did not run are the first of the next turn,
// even if other tasks always have more to do.
func TestATurnIsBounded(t *testing.T) {
	var pumps pump.Pumps
	c := new(connection)
	s := open(&pumps, c, nil)
	var order []int // owned by the pump
	done := make(chan struct{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	tasks := make([]pump.Task, 4)
	for i := range tasks {
		tasks[i].Init(s.Stream, func(*pump.Scratch) bool {
			if len(order) == 0 {
				close(begun)
				<-goOn
			}
			if order = append(order, i); len(order) == 13 {
				close(done)
			}
			if err := s.Send(message(256 << 10)); err != nil {
				t.Error(err)
			}
			tasks[(i+1)%len(tasks)].Wake() // the task is queued already, and is not queued twice
			tasks[i].Wake()
			return true
		})
	}
	tasks[0].Start()
	<-begun
	for i := range tasks[1:] {
		tasks[i+1].Start()
	}
	close(goOn)
	<-done
	s.Close()
	pumps.Wait()
	if want := []int{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0}; !slices.Equal(order[:13], want) {
		t.Errorf("ran in the order %v, want %v", order[:13], want)
	}
	if n := int(c.flushes.Load()); n < len(order) {
		t.Errorf("%d turns for %d runs, want at least one turn for each run", n, len(order))
	}
}

// Many streams that are opened and closed one after the other leave no pump goroutines behind.
func TestStreamsThatComeAndGoLeaveNoPumps(t *testing.T) {
	var pumps pump.Pumps
	c := new(connection)
	before, most := runtime.NumGoroutine(), 0
	for range 10_000 {
		s := open(&pumps, c, nil)
		newCounter(s).task.Start()
		s.Close()
		most = max(most, runtime.NumGoroutine())
	}
	pumps.Wait()
	if most > before+2*runtime.GOMAXPROCS(0) {
		t.Errorf("%d goroutines, %d at the beginning", most, before)
	}
}

// A task that is woken after its stream was closed, for example by a concurrent event, starts no
// pump. A pump started then would race with Wait, and the race detector would report it. Streams
// opened later are served, on the same connection or another, with gRPC or without.
func TestAWakeAfterTheLastStream(t *testing.T) {
	var pumps pump.Pumps
	c := new(connection)
	for i := range 400 {
		var s *stream
		if i < 200 {
			s = open(&pumps, c, nil)
		} else {
			s = &stream{Stream: pumps.OpenAt("", &transport{c: c})}
		}
		tasks := [2]*counter{newCounter(s), newCounter(s)}
		for _, task := range tasks {
			task.ran = make(chan int64)
			task.task.Start()
			<-task.ran
		}
		s.Close()
		if i%2 > 0 {
			c = new(connection)
		}
		var late sync.WaitGroup
		late.Go(tasks[0].task.Wake)
		pumps.Wait()
		late.Wait()
		tasks[1].task.Wake() // no pump is left to run the task
	}
}

// Clients take turns. A client with one connection waits for one or two visits to another client's connections, of
// which there may be a thousand. The connections of one client are visited in the order in which they become due.
func TestClientsOfPumpsTakeTurns(t *testing.T) {
	small := func(string) int { return 0 }
	if got, want := visited(t, small, "a1", "a2", "a3", "a4", "b1", "b2"), []string{"a1", "b1", "a2", "b2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("visited in the order %q, want %q", got, want)
	}
}

// A visit that sends many bytes, or runs many tasks, counts as several turns of its client. A single
// client never waits for a turn.
func TestALargeVisitCountsAsSeveralTurns(t *testing.T) {
	large := func(name string) int {
		if name[0] == 'a' {
			return 17 << 10 // costs two additional turns
		}
		return 0
	}
	if got, want := visited(t, large, "a1", "a2", "a3", "b1", "b2", "b3", "b4"), []string{"a1", "b1", "b2", "b3", "a2", "b4", "a3"}; !slices.Equal(got, want) {
		t.Errorf("visited in the order %q, want %q", got, want)
	}
	if got, want := visited(t, large, "a1", "a2", "a3"), []string{"a1", "a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("visited in the order %q, want %q", got, want)
	}
}

// visited makes connections due while the only pump visits another connection, and returns the order of
// the visits. The first letter of a name is the client; size returns the bytes that a connection sends.
func visited(t *testing.T, size func(name string) int, names ...string) []string {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var pumps pump.Pumps
	order := make(chan string, len(names))
	held, release := make(chan struct{}), make(chan struct{})
	var all []*pump.Stream
	add := func(client string, run func(s *pump.Stream)) *pump.Task {
		ctx := grpc.NewContextWithServerTransportStream(t.Context(), &transport{c: new(connection)})
		s := pumps.Open(ctx, client, nil)
		all = append(all, s)
		task := new(pump.Task)
		task.Init(s, func(*pump.Scratch) bool {
			run(s)
			return false
		})
		return task
	}
	first := add("x", func(*pump.Stream) { close(held); <-release })
	var tasks []*pump.Task
	for _, name := range names {
		tasks = append(tasks, add(name[:1], func(s *pump.Stream) {
			if n := size(name); n > 0 {
				if err := s.Send(message(n)); err != nil {
					t.Error(err)
				}
			}
			order <- name
		}))
	}
	first.Start()
	<-held // the only pump is busy
	for _, task := range tasks {
		task.Start()
	}
	close(release)
	var got []string
	for range names {
		got = append(got, <-order)
	}
	for _, s := range all {
		s.Close()
	}
	pumps.Wait()
	return got
}

// Pumps leave one processor to all other work: with two processors, only one pump visits a
// connection at a time, unless a send blocks.
func TestPumpsLeaveAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var pumps pump.Pumps
	var at, most, ran atomic.Int64
	var all []*pump.Stream
	const streams, rounds = 20, 50
	for range streams {
		ctx := grpc.NewContextWithServerTransportStream(t.Context(), &transport{c: new(connection)})
		s := pumps.Open(ctx, "", nil)
		all = append(all, s)
		left := rounds
		task := new(pump.Task)
		task.Init(s, func(*pump.Scratch) bool {
			if n := at.Add(1); n > most.Load() {
				most.Store(n)
			}
			runtime.Gosched()
			at.Add(-1)
			ran.Add(1)
			left--
			return left > 0
		})
		task.Start()
	}
	for ran.Load() < streams*rounds {
		runtime.Gosched()
	}
	for _, s := range all {
		s.Close()
	}
	pumps.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d pumps ran on two processors, want 1", n)
	}
}

// While a pump sends many bytes, other goroutines run after each visit.
func TestPumpsThatSendMuchYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var pumps pump.Pumps
	s := open(&pumps, new(connection), nil)
	var others atomic.Int64
	const visits = 50
	left, first, last := visits, int64(0), make(chan int64, 1)
	var task pump.Task
	task.Init(s.Stream, func(*pump.Scratch) bool {
		if err := s.Send(message(256 << 10)); err != nil {
			t.Error(err)
		}
		if left--; left == visits-1 {
			first = others.Load()
		}
		if left == 0 {
			last <- others.Load()
		}
		return left > 0
	})
	task.Start()
	var end int64
	for over := false; !over; {
		select {
		case end = <-last:
			over = true
		default:
			others.Add(1)
			runtime.Gosched()
		}
	}
	s.Close()
	pumps.Wait()
	if end-first < visits/2 {
		t.Errorf("another goroutine ran %d times during %d visits", end-first, visits)
	}
}
