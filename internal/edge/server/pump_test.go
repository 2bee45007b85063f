package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// takes reads the stream until each of its watches has received all revisions from first to last,
// in order.
func (s *stream) takes(watches int, first, last int64) error {
	at := make(map[int64]int64)
	for done := 0; done < watches; {
		m, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		if len(m.GetEvents()) == 0 {
			continue
		}
		for _, id := range about(m) {
			if at[id] == 0 {
				at[id] = first - 1
			}
			if at[id]++; m.GetRevision() != at[id] {
				return fmt.Errorf("watch %d: got revision %d, want %d", id, m.GetRevision(), at[id])
			}
			if at[id] == last {
				done++
			}
		}
	}
	return nil
}

// A stream that its client does not read does not delay other streams of the same connection, and
// uses little memory. When it is read, it gets all events, too.
func TestStreamThatIsNotRead(t *testing.T) {
	const streams, watches, revisions = 4, 10, 3000
	h := cachetest.New()
	r := start(t, h, options{})
	value := string(bytes.Repeat([]byte("v"), 900))
	// The stuck stream waits while the others get 300,000 deliveries.
	watch := func() *stream { return watchWithin(t, r.conn, 5*deadline) }
	stuck := watch()
	open := func(s *stream) {
		s.together(true)
		for id := range watches {
			s.create(all(int64(id)+1, first))
		}
	}
	open(stuck)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for half := range int64(2) { // the second time, the connection is known to block
		var readers sync.WaitGroup
		for range streams {
			s := watch()
			s.together(half == 0)
			for id := range watches {
				s.create(all(int64(id)+1, first+half*revisions))
			}
			readers.Go(func() {
				if err := s.takes(watches, first+half*revisions, first+(half+1)*revisions-1); err != nil {
					t.Error(err)
				}
				s.end()
			})
		}
		for range revisions {
			h.Commit(cachetest.Put("a", value))
		}
		readers.Wait()
	}
	// The history and its window take about 15 MB; a queue for the stuck stream would take 54 MB.
	if grown := int64(heap()) - int64(before); grown > 40<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if err := stuck.takes(watches, first, first+2*revisions-1); err != nil {
		t.Error(err)
	}
	stuck.end()
	testkit.Eventually(t, "all watches are gone", func() bool { return r.node.Idle() == nil && r.server.Status().GetWatches() == 0 })
}

// When a stuck stream is read again and its first watch has nothing to send, its other watches are
// still served.
func TestStuckStreamServesAllItsWatches(t *testing.T) {
	const watches = 50
	h := cachetest.New()
	r := start(t, h, options{})
	value := string(bytes.Repeat([]byte("v"), 8<<10))
	for i := range 6 {
		stuck, other := r.watch(), r.watch()
		stuck.together(i%2 == 0)
		next := int64(h.Now()) + 1
		for id := range watches {
			stuck.create(all(int64(id)+1, next))
		}
		other.create(all(1, next))
		other.created(1)
		testkit.Eventually(t, "all watches are open", func() bool { return r.server.Status().GetWatches() == watches+1 })
		h.Commit(cachetest.Put("a", value))
		// The other stream gets its event if another pump has taken over, or if it is served before
		// the stuck stream. It gets all events only in the former case.
		if err := other.takes(1, next, next); err != nil {
			t.Fatal(err)
		}
		h.Commit(cachetest.Put("a", value))
		if err := other.takes(1, next+1, next+1); err != nil {
			t.Fatal(err)
		}
		if err := stuck.takes(watches, next, next+1); err != nil {
			t.Fatal(err)
		}
		stuck.end()
		other.end()
		testkit.Eventually(t, "the streams are gone", func() bool { return r.server.Status().GetWatches() == 0 })
	}
}

// Streams that end in any way, at any time, leave no watches behind.
func TestStreamsThatEndAtAnyTime(t *testing.T) {
	seed := testseed.Of(t)
	h := cachetest.New()
	r := start(t, h, options{})
	value := string(bytes.Repeat([]byte("v"), 4<<10))
	stop := make(chan struct{})
	var writer, clients sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				h.Commit(cachetest.Put("a", value), cachetest.Put("p", value))
			}
			if h.Now()%50 == 0 {
				runtime.Gosched()
			}
			if h.Now() > 20_000 {
				return
			}
		}
	})
	for client := range uint64(6) {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, client))
			conn := dial(t, r.clients)
			for range 30 {
				s := watchOn(t, conn)
				s.together(rng.IntN(2) == 0)
				watches := 1 + rng.IntN(8)
				for id := range int64(watches) {
					c := all(id+1, first)
					switch rng.IntN(3) {
					case 0:
						c.Start = nil
					case 1:
						c.Start = &pb.CreateWatch_StateFirst{StateFirst: true}
					}
					s.create(c)
					if rng.IntN(3) == 0 {
						s.cancel(id + 1)
					}
					if rng.IntN(3) == 0 {
						s.requestProgress()
					}
				}
				for range rng.IntN(watches + 1) { // each watch has at least one answer
					s.next()
				}
				switch rng.IntN(3) {
				case 0:
					_ = s.rpc.CloseSend()
				case 1:
					_ = s.rpc.Send(&pb.WatchRequest{}) // ends the stream
				}
				s.end()
			}
		})
	}
	clients.Wait()
	close(stop)
	writer.Wait()
	testkit.Eventually(t, "all watches are gone", func() bool { return r.node.Idle() == nil && r.server.Status().GetWatches() == 0 })
}

// A client that has closed its sending side keeps its watches. The stream ends with the last of
// them.
func TestClientClosesItsSide(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	s := r.watch()
	s.create(all(1, first))
	s.created(1)
	if err := s.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	h.Commit(cachetest.Put("a", "1"))
	if m := s.next(); m.GetRevision() != first {
		t.Errorf("got %v", m)
	}
	r.node.Gate(1) // the stream is still open
	go r.server.Drain(t.Context())
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_DRAINING || e.GetResumeRevision() != first+1 {
		t.Errorf("got %v", e)
	}
	if _, err := s.rpc.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	empty := start(t, h, options{}).watch()
	_ = empty.rpc.CloseSend()
	if _, err := empty.rpc.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream without watches ended with %v", err)
	}
}

// Drain sends every watch its position, including watches that are created meanwhile,
// and does not wait for ended streams.
func TestDrain(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	h.Commit(cachetest.Put("a", "1"))
	var clients sync.WaitGroup
	drained := make(chan struct{})
	for client := range 4 {
		s := watchOn(t, dial(t, r.clients))
		s.create(all(1, first))
		s.created(1)
		if client == 0 { // disconnects without notice
			s.end()
			continue
		}
		clients.Go(func() {
			id, open, last := int64(1), 1, false
			for open > 0 || !last {
				select {
				case <-drained:
					last = true
				default:
				}
				if id < 2000 && (!last || open == 0) {
					id++
					open++
					s.create(all(id, first))
				}
				m, err := s.rpc.Recv()
				if err != nil {
					t.Error(err)
					return
				}
				if e := m.GetEnded(); e != nil {
					open--
					if e.GetReason() != pb.EndReason_END_REASON_DRAINING {
						t.Errorf("got %v", e)
					}
				}
				if id == 2000 && open == 0 {
					return
				}
			}
		})
	}
	r.server.Drain(t.Context())
	if err := t.Context().Err(); err != nil {
		t.Fatal(err)
	}
	close(drained)
	clients.Wait()
	s := r.watch()
	if _, err := s.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream on a drained node: %v", err)
	}
}
