package server_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// together sets whether the client understands lists of watches.
func (s *stream) together(yes bool) {
	s.tb.Helper()
	s.send(allowWatchIDs(yes))
}

func allowWatchIDs(yes bool) *pb.WatchRequest {
	return &pb.WatchRequest{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{AllowWatchIds: &yes}}}
}

// about returns the IDs of the watches that a response addresses.
func about(m *pb.WatchResponse) []int64 {
	if m.GetWatchId() != 0 {
		return []int64{m.GetWatchId()}
	}
	return m.GetWatchIds()
}

// got has the events that a watch has received.
type got struct {
	rng     kv.Range
	prev    bool
	from    int64
	started bool
	batches []*pb.WatchResponse // complete revisions
	partial *pb.WatchResponse
}

// take adds a response with events.
func (g *got) take(m *pb.WatchResponse) error {
	switch {
	case !g.started:
		return fmt.Errorf("revision %d before the watch was created", m.GetRevision())
	case g.partial != nil && g.partial.GetRevision() != m.GetRevision():
		return fmt.Errorf("revision %d within revision %d", m.GetRevision(), g.partial.GetRevision())
	case g.partial == nil:
		g.partial = &pb.WatchResponse{Revision: m.GetRevision()}
	}
	g.partial.Events = append(g.partial.Events, m.GetEvents()...)
	if !m.GetFragment() {
		g.batches, g.partial = append(g.batches, g.partial), nil
	}
	return nil
}

// check compares the events with the history, of the shards before and after a cut. All revisions
// up to upTo must be there, and no later ones.
func (g *got) check(h *cachetest.Script, cut string, upTo kv.Revision) error {
	want := h.Batches(g.rng, kv.Revision(g.from)-1, upTo)
	if len(want) != len(g.batches) || g.partial != nil {
		return fmt.Errorf("%d revisions from %d up to %d, want %d; last one incomplete: %t", len(g.batches), g.from, upTo, len(want), g.partial != nil)
	}
	for i := range want {
		b, m := &want[i], g.batches[i]
		slices.SortStableFunc(b.Events, func(x, y kv.Event) int { // in the order of the shards
			return strings.Compare(fmt.Sprint(string(x.KV.Key()) >= cut), fmt.Sprint(string(y.KV.Key()) >= cut))
		})
		if int64(b.Revision) != m.GetRevision() || len(b.Events) != len(m.GetEvents()) {
			return fmt.Errorf("revision %d with %d events, want revision %d with %d", m.GetRevision(), len(m.GetEvents()), b.Revision, len(b.Events))
		}
		for at, e := range m.GetEvents() {
			if string(e.GetKv().GetKey()) != string(b.Events[at].KV.Key()) || int(e.GetType()) != int(b.Events[at].Type) {
				return fmt.Errorf("revision %d: event %d is %v", b.Revision, at, e)
			}
			var before int64
			if g.prev {
				if was := h.State(kv.Single(string(e.GetKv().GetKey())), b.Revision-1); len(was) > 0 {
					before = int64(was[0].ModRevision())
				}
			}
			if prev := e.GetPrevKv(); prev.GetModRevision() != before {
				return fmt.Errorf("revision %d: event %d has previous value %v, want that of %d", b.Revision, at, prev, before)
			}
		}
	}
	return nil
}

// A hundred watches of overlapping ranges share one stream, while others are created and cancelled.
// The client understands lists of watches, or does not, or changes its mind. Each watch gets every
// revision once, complete and in order, and neither progress nor an end overtakes the events that
// it covers.
func TestCrowdSeesEverythingOnce(t *testing.T) {
	const cut = "h"
	for _, c := range []struct {
		name             string
		together, change bool
		fragment         int
	}{
		{name: "each alone"},
		{name: "together", together: true},
		{name: "together/fragments", together: true, fragment: 1 << 10},
		{name: "alternating", together: true, change: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := testseed.Of(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			h := cachetest.New()
			r := start(t, h, options{server: func(cfg *server.Config) {
				if c.fragment > 0 {
					cfg.FragmentBytes = c.fragment
				}
			}})
			s := r.watch()
			s.together(c.together)
			watches := map[int64]*got{}
			lastID := int64(0)
			create := func() {
				lastID++
				g := &got{prev: rng.IntN(2) == 0, from: first + rng.Int64N(int64(h.Now())-first+3)}
				switch a, b := rng.IntN(16), rng.IntN(16); rng.IntN(4) {
				case 0:
				case 1:
					g.rng = kv.Single(string(rune('a' + a)))
				case 2:
					g.rng = kv.Prefix(string(rune('a' + a)))
				case 3:
					g.rng = kv.Range{Start: string(rune('a' + min(a, b))), End: string(rune('b' + max(a, b)))}
				}
				key, end := g.rng.Etcd()
				watches[lastID] = g
				s.create(&pb.CreateWatch{WatchId: lastID, Key: key, RangeEnd: end, PrevKv: g.prev, Start: &pb.CreateWatch_StartRevision{StartRevision: g.from}})
			}
			for range 100 {
				create()
			}
			const revisions = 150
			var writer sync.WaitGroup
			defer writer.Wait()
			writer.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 1))
				for range revisions {
					ops := map[string]cachetest.Op{}
					for range 1 + rng.IntN(6) {
						key := string(rune('a' + rng.IntN(16)))
						if ops[key] = cachetest.Put(key, strings.Repeat("v", rng.IntN(400))); rng.IntN(4) == 0 {
							ops[key] = cachetest.Delete(key)
						}
					}
					var list []cachetest.Op
					for _, op := range ops {
						list = append(list, op)
					}
					h.Commit(list...)
				}
			})
			s.requestProgress()
			live, lists, cancelled := 100, 0, map[int64]bool{}
			for n := 1; ; n++ {
				m := s.next()
				ids := about(m)
				if len(m.GetWatchIds()) > 0 {
					lists++
				}
				if len(m.GetEvents()) > 0 && len(ids) == 0 || len(m.GetWatchIds()) == 1 || m.GetWatchId() != 0 && len(m.GetWatchIds()) > 0 {
					t.Fatalf("a response that addresses no watch, or one watch twice: %v", m)
				}
				for _, id := range ids {
					g := watches[id]
					if g == nil {
						t.Fatalf("a response for watch %d, which has ended: %v", id, m)
					}
					var err error
					switch {
					case m.GetCreated() != nil:
						g.started = true
					case m.GetEnded() != nil:
						err = g.check(h, cut, kv.Revision(m.GetEnded().GetResumeRevision()-1))
						delete(watches, id)
						live--
					default:
						err = g.take(m)
					}
					if err != nil {
						t.Fatalf("watch %d of %v: %v", id, g.rng, err)
					}
				}
				if p := m.GetProgress(); p != nil {
					for id, g := range watches {
						if !g.started {
							continue
						}
						behind := slices.IndexFunc(g.batches, func(m *pb.WatchResponse) bool { return m.GetRevision() > p.GetRevision() })
						if behind < 0 {
							behind = len(g.batches)
						}
						if want := len(h.Batches(g.rng, kv.Revision(g.from)-1, kv.Revision(p.GetRevision()))); behind != want {
							t.Fatalf("progress %d: watch %d of %v has %d revisions, want %d", p.GetRevision(), id, g.rng, behind, want)
						}
					}
					if p.GetRevision() == int64(cachetest.Start)+revisions {
						break
					}
					s.requestProgress()
				}
				switch {
				case n%20 == 1 && live > 50:
					id := 1 + rng.Int64N(lastID)
					if g := watches[id]; g != nil && g.started && !cancelled[id] {
						cancelled[id] = true
						s.cancel(id)
						create()
						live++
					}
				case c.change && n%30 == 2:
					s.together(rng.IntN(2) == 0)
				}
			}
			for id, g := range watches {
				if err := g.check(h, cut, h.Now()); g.started && err != nil {
					t.Errorf("watch %d of %v: %v", id, g.rng, err)
				}
			}
			if !c.together && lists > 0 {
				t.Errorf("%d lists for a client that does not understand them", lists)
			}
		})
	}
}

// held is a stream whose client is the test. Messages wait while it is held.
type held struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // the stream's
	in   chan *pb.WatchRequest
	sent func(*wire.Encoded) // called with each message with events
	all  func(any)           // called with each other message

	mu   sync.Mutex
	gate chan struct{} // guarded by mu; nil: open
	at   chan struct{} // capacity 1: a message waits
}

func (p *held) Context() context.Context { return p.ctx }

func (p *held) Recv() (*pb.WatchRequest, error) {
	select {
	case r := <-p.in:
		return r, nil
	case <-p.ctx.Done():
		return nil, io.EOF
	}
}

func (p *held) Send(m *pb.WatchResponse) error { return p.SendMsg(m) }

func (p *held) SendMsg(m any) error {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		select {
		case p.at <- struct{}{}:
		default:
		}
		<-gate
	}
	if e, ok := m.(*wire.Encoded); ok {
		p.sent(e)
	} else if p.all != nil {
		p.all(m)
	}
	return nil
}

// hold makes the next message wait until release is called.
func (p *held) hold() (release func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.gate = nil
		p.mu.Unlock()
		close(gate)
	}
}

// hand serves a stream of the test until the test ends.
func (r *running) hand(p *held) {
	ctx, cancel := context.WithCancel(peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{}}))
	p.ctx, p.in, p.at = ctx, make(chan *pb.WatchRequest), make(chan struct{}, 1)
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.server.CacheService().Watch(p) }) // it ends with its context
	r.tb.Cleanup(func() {
		cancel()
		serving.Wait()
	})
}

// decode decodes a message as a client does.
func decode(e *wire.Encoded) (*pb.WatchResponse, error) {
	b, err := wire.NewCodec().Marshal(e)
	if err != nil {
		return nil, err
	}
	defer b.Free()
	m := &pb.WatchResponse{}
	return m, proto.Unmarshal(b.Materialize(), m)
}

// Several watches of a stream get one common message for each revision and set of events.
func TestCrowdGetsOneMessage(t *testing.T) {
	for _, c := range []struct {
		together bool
		messages map[int64]int // by revision
	}{
		// The first revision is for all ranges, the second for some of them, and the third has
		// another set of events for each range. All of that with and without previous values.
		{true, map[int64]int{first + 1: 2, first + 2: 2, first + 3: 6}},
		{false, map[int64]int{first + 1: 100, first + 2: 66, first + 3: 100}},
	} {
		t.Run(fmt.Sprintf("together=%t", c.together), func(t *testing.T) {
			h := cachetest.New()
			r := start(t, h, options{})
			messages, deliveries := map[int64]int{}, map[int64]int{}
			done := make(chan struct{})
			created := make(chan struct{}, 200)
			left := 266 // number of deliveries
			p := &held{
				sent: func(e *wire.Encoded) {
					m, err := decode(e)
					if err != nil {
						t.Error(err)
					}
					if m.GetRevision() == first {
						return
					}
					messages[m.GetRevision()]++
					for range about(m) {
						deliveries[m.GetRevision()]++
						if left--; left == 0 {
							close(done)
						}
					}
				},
				all: func(m any) {
					if m.(*pb.WatchResponse).GetCreated() != nil {
						created <- struct{}{}
					}
				},
			}
			r.hand(p)
			if c.together { // an old client sends no options
				p.in <- allowWatchIDs(true)
				p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{ProgressInterval: durationpb.New(time.Minute)}}} // no option for lists
			}
			create := func(id int64, prev bool, rng kv.Range) {
				key, end := rng.Etcd()
				p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
					WatchId: id, Key: key, RangeEnd: end, PrevKv: prev, Start: &pb.CreateWatch_StartRevision{StartRevision: first},
				}}}
				<-created
			}
			create(1000, false, kv.Single("z"))
			for id := range int64(100) {
				create(id+1, id%2 == 0, []kv.Range{kv.Single("b"), kv.Prefix("b"), {Start: "a", End: "c"}}[id%3])
			}
			release := p.hold()
			h.Commit(cachetest.Put("z", "1")) // in the other shard
			<-p.at
			h.Commit(cachetest.Put("b", "1"))
			h.Commit(cachetest.Put("bb", "2"))
			h.Commit(cachetest.Put("a", "3"), cachetest.Put("b", "3"), cachetest.Put("bb", "3"))
			// Once the following revision has arrived, all watches have been woken for the earlier ones.
			if err := r.node.Replica(1).WaitProgress(t.Context(), h.Commit(cachetest.Put("g", "4"))); err != nil {
				t.Fatal(err)
			}
			release()
			<-done
			for revision, want := range c.messages {
				if messages[revision] != want {
					t.Errorf("revision %d: %d messages for %d watches, want %d", revision, messages[revision], deliveries[revision], want)
				}
			}
		})
	}
}

// Watches without common events, and with more to read than a turn may send, get all events in
// order.
func TestCrowdWithABacklog(t *testing.T) {
	const watches, rounds = 200, 10
	h := cachetest.New()
	r := start(t, h, options{shards: cachetest.Map(1, nil, "here")})
	at := map[int64]int64{}
	left := watches * rounds
	done, created := make(chan struct{}), make(chan struct{}, watches+1)
	p := &held{
		sent: func(e *wire.Encoded) {
			m, err := decode(e)
			if err != nil {
				t.Error(err)
			}
			for _, id := range about(m) {
				want := at[id] + watches
				if at[id] == 0 {
					want = first + id
				}
				if at[id] = m.GetRevision(); id <= watches && at[id] != want {
					t.Errorf("watch %d: revision %d, want %d", id, at[id], want)
				} else if id <= watches {
					left--
				}
			}
			if left == 0 {
				close(done)
			}
		},
		all: func(any) { created <- struct{}{} },
	}
	r.hand(p)
	p.in <- allowWatchIDs(true)
	watch := func(id int64, key string) {
		p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{WatchId: id, Key: []byte(key), Start: &pb.CreateWatch_StartRevision{StartRevision: first}}}}
		<-created
	}
	watch(watches+1, "first")
	for id := range int64(watches) {
		watch(id+1, fmt.Sprint(id+1))
	}
	release := p.hold()
	h.Commit(cachetest.Put("first", "1"))
	<-p.at
	value := strings.Repeat("v", 4<<10)
	for range rounds {
		for id := range watches {
			h.Commit(cachetest.Put(fmt.Sprint(id+1), value))
		}
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), h.Commit(cachetest.Put("last", "1"))); err != nil {
		t.Fatal(err)
	}
	release()
	<-done
}

// A fragmented revision is complete for each of the watches that get it together.
func TestCrowdGetsFragments(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{server: func(c *server.Config) { c.FragmentBytes = 1 << 10 }})
	s := r.watch()
	s.together(true)
	for id := range int64(3) {
		s.create(all(id+1, first))
		s.created(id + 1)
	}
	var ops []cachetest.Op
	for i := range 8 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("a%d", i), strings.Repeat("v", 400)))
	}
	h.Commit(ops...)
	events := map[int64]int{}
	for events[1] < 8 || events[2] < 8 || events[3] < 8 {
		m := s.next()
		for _, id := range about(m) {
			if events[id] += len(m.GetEvents()); m.GetFragment() != (events[id] < 8) {
				t.Fatalf("watch %d has %d of 8 events: %v", id, events[id], m.GetFragment())
			}
		}
	}
}

// The statistics of each watch contain its share of the bytes sent to several watches.
func TestCrowdShareIsAccounted(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	s := r.watch()
	s.together(true)
	const watches = 10
	for id := range int64(watches) {
		s.create(all(id+1, first))
		s.created(id + 1)
	}
	h.Commit(cachetest.Put("a", strings.Repeat("v", 10_000)))
	size := 0
	for told := 0; told < watches; {
		m := s.next()
		told += len(about(m))
		size += proto.Size(m)
	}
	list, err := pb.NewAdminServiceClient(r.conn).ListWatchers(t.Context(), &pb.ListWatchersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for {
		m, err := list.Recv()
		if err != nil {
			break
		}
		for _, w := range m.GetWatchers() {
			sum += w.GetBytes()
		}
	}
	if sum < int64(size) || sum > int64(size)+watches*watches {
		t.Errorf("%d bytes were sent, and %d are in the watch statistics", size, sum)
	}
}
