package pump_test

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/pump"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a task that counts its runs and fails when two tasks of its stream
// run at a time.
type counter struct {
	task   pump.Task
	s      *stream
	wanted atomic.Int64 // wakes so far
	seen   int64        // owned by the pump: wakes that a run has seen
	again  int          // owned by the pump: runs to ask for
	block  chan struct{}
	ran    chan int64 // what a run has seen; may be nil
}

type stream struct {
	*pump.Stream
	at atomic.Int32 // pumps at it
}

func (c *counter) run(*pump.Scratch) bool {
	if c.s.at.Add(1) != 1 {
		panic("two pumps at a stream")
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

// Streams of a connection share a pump, and others do not.
func TestConnections(t *testing.T) {
	var c pump.Connections
	from := func(addr net.Addr) context.Context { return peer.NewContext(t.Context(), &peer.Peer{Addr: addr}) }
	// Two connections may come from what looks the same.
	one, two := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 1}
	if _, err := c.Open(t.Context()); err == nil {
		t.Error("a stream without a connection")
	}
	for range 2 { // the second time, they are new
		var opened []*stream
		for _, addr := range []net.Addr{one, one, two} {
			s, err := c.Open(from(addr))
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, &stream{Stream: s})
		}
		held, same, other := newCounter(opened[0]), newCounter(opened[1]), newCounter(opened[2])
		held.block = make(chan struct{})
		same.ran, other.ran = make(chan int64, 1), make(chan int64, 1)
		held.task.Start()
		other.task.Start()
		<-other.ran
		same.task.Start()
		<-same.ran // thanks to the watchdog
		close(held.block)
		for _, s := range opened {
			s.Close()
		}
	}
	c.Wait()
}

// A task does not run before it is started, and then sees what came before.
func TestStart(t *testing.T) {
	var pumps sync.WaitGroup
	s := &stream{Stream: pump.New(&pumps, new(wire.Fan)).Open()}
	c := newCounter(s)
	c.ran = make(chan int64)
	c.wake()
	select {
	case <-c.ran:
		t.Error("ran before it was started")
	default:
	}
	c.task.Start()
	if n := <-c.ran; n != 1 {
		t.Errorf("saw %d wakes", n)
	}
	s.Close()
	pumps.Wait()
}

// A stream that stands still does not keep the connection's others from their
// turns, and gets all of its own when it goes on.
func TestStuckStream(t *testing.T) {
	var pumps sync.WaitGroup
	conn := pump.New(&pumps, new(wire.Fan))
	stuck, other := &stream{Stream: conn.Open()}, &stream{Stream: conn.Open()}
	held, beside, free := newCounter(stuck), newCounter(stuck), newCounter(other)
	held.block = make(chan struct{})
	beside.ran, free.ran = make(chan int64), make(chan int64)
	held.task.Start()
	beside.task.Start()
	for range 3 { // needs another pump each time that the last one is held
		free.task.Start()
		<-free.ran
	}
	select {
	case <-beside.ran:
		t.Error("another task of the stuck stream ran")
	default:
	}
	close(held.block)
	<-beside.ran
	stuck.Close()
	other.Close()
	pumps.Wait()
}

// Whoever is woken runs afterwards, whatever else goes on; after Close, nobody
// runs.
func TestWakesAreNotLost(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var pumps sync.WaitGroup
	conn := pump.New(&pumps, new(wire.Fan))
	var wakers sync.WaitGroup
	var streams []*stream
	var tasks []*counter
	for range 8 {
		s := &stream{Stream: conn.Open()}
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
	// Behind everything that was queued: one more turn for each.
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
		c.task.Wake() // does nothing
	}
}

// A task that has more to do comes again, behind the others.
func TestAgain(t *testing.T) {
	var pumps sync.WaitGroup
	s := &stream{Stream: pump.New(&pumps, new(wire.Fan)).Open()}
	c := newCounter(s)
	c.again, c.ran = 3, make(chan int64)
	c.task.Start()
	for range 3 {
		<-c.ran
	}
	s.Close()
	pumps.Wait()
}

type flusher func()

func (f flusher) Flush() { f() }

// What the tasks of a turn leave is sent at its end, also when the stream is
// closed in the middle.
func TestAfter(t *testing.T) {
	var pumps sync.WaitGroup
	s := &stream{Stream: pump.New(&pumps, new(wire.Fan)).Open()}
	var left, sent int // owned by the pump
	flushed := make(chan int)
	s.After(flusher(func() {
		sent += left
		left = 0
		flushed <- sent
	}))
	begun, goOn := make(chan struct{}), make(chan struct{})
	tasks := make([]pump.Task, 10)
	for i := range tasks {
		tasks[i].Init(s.Stream, func(*pump.Scratch) bool {
			if i == 0 {
				begun <- struct{}{}
				<-goOn
			}
			left++
			return false
		})
	}
	tasks[0].Start()
	<-begun
	for i := range tasks[1:] { // while the first one runs: all of them are the next turn
		tasks[i+1].Start()
	}
	goOn <- struct{}{}
	for _, want := range []int{1, 10} {
		if n := <-flushed; n != want {
			t.Errorf("%d were sent, want %d", n, want)
		}
	}
	tasks[0].Wake()
	<-begun
	var closing sync.WaitGroup
	closing.Go(s.Close)
	goOn <- struct{}{}
	if n := <-flushed; n != 11 {
		t.Errorf("%d were sent in the end, want 11", n)
	}
	closing.Wait()
	pumps.Wait()
}

// Streams that come and go in a flood, one after the other, leave no pumps behind.
func TestStreamsThatComeAndGoLeaveNoPumps(t *testing.T) {
	var pumps sync.WaitGroup
	c := pump.New(&pumps, new(wire.Fan))
	before, most := runtime.NumGoroutine(), 0
	for range 10_000 {
		c.Open().Close()
		most = max(most, runtime.NumGoroutine())
	}
	pumps.Wait()
	if most > before+100 {
		t.Errorf("%d goroutines, at first %d", most, before)
	}
}
