package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// shared is a stream whose watches all read key a. It checks that each of them gets each revision once, in order.
type shared struct {
	*stream
	r    *running
	next map[int64]int64 // next revision of each open watch
}

func (s *shared) open(id, from int64, prev bool) {
	s.tb.Helper()
	s.create(&pb.CreateWatch{WatchId: id, Key: []byte("a"), PrevKv: prev, Start: &pb.CreateWatch_StartRevision{StartRevision: from}})
	s.next[id] = from
}

func (s *shared) put() int64 { return int64(s.r.h.Commit(cachetest.Put("a", "v"))) }

// one reads and checks one response.
func (s *shared) one() {
	s.tb.Helper()
	m := s.stream.next()
	for _, id := range about(m) {
		switch e := m.GetEnded(); {
		case m.GetCreated() != nil:
		case e != nil && (e.GetReason() != pb.EndReason_END_REASON_CANCELED || e.GetResumeRevision() != s.next[id]):
			s.tb.Fatalf("watch %d ended before revision %d with %v", id, s.next[id], m)
		case e != nil:
			delete(s.next, id)
		case m.GetRevision() != s.next[id] || len(m.GetEvents()) != 1:
			s.tb.Fatalf("watch %d got %v, want revision %d", id, m, s.next[id])
		default:
			s.next[id]++
		}
	}
}

// upTo reads until each watch has received everything up to a revision.
func (s *shared) upTo(last int64) {
	s.tb.Helper()
	for behind := true; behind; {
		behind = false
		for _, next := range s.next {
			behind = behind || next <= last
		}
		if behind {
			s.one()
		}
	}
}

// stop cancels a watch and reads until it has ended.
func (s *shared) stop(id int64) {
	s.tb.Helper()
	s.cancel(id)
	for s.next[id] > 0 {
		s.one()
	}
}

func (s *shared) status() cache.Status { return s.r.node.Replica(1).Status() }

// readBy reads until the given number of readers is left.
func (s *shared) readBy(readers int) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), deadline)
	defer cancel()
	for s.upTo(s.put()); s.status().Readers != readers && ctx.Err() == nil; {
		s.upTo(s.put())
	}
	if got := s.status(); got.Readers != readers || got.Watchers != len(s.next) {
		s.tb.Fatalf("%d watches count as %d, and have %d readers, want %d", len(s.next), got.Watchers, got.Readers, readers)
	}
}

// Watches of one stream with the same range share a reader once they reach the same revision,
// however they begin, whether or not the client understands lists of watches. Each still gets every
// revision once, ends at its position, and counts as a watch.
func TestWatchesOfAStreamShareAReader(t *testing.T) {
	for _, lists := range []bool{true, false} {
		t.Run(fmt.Sprintf("lists=%t", lists), func(t *testing.T) {
			rnd := testseed.Rand(t)
			r := start(t, cachetest.New(), options{shards: cachetest.Map(1, nil, "here")})
			s := &shared{r.watch(), r, make(map[int64]int64)}
			s.together(lists)
			s.put()
			for id := int64(1); id <= 60; id++ {
				now := int64(r.h.Now())
				s.open(id, first+rnd.Int64N(now-first+4), id%2 == 1) // some of them start in the future
				s.put()
				if old := 1 + rnd.Int64N(id); rnd.IntN(4) == 0 && s.next[old] > 0 {
					s.stop(old)
				}
			}
			for range 4 { // after that, none starts in the future
				s.put()
			}
			s.readBy(2)
			for id := range s.next { // readers end with their last watches
				s.cancel(id)
				s.put()
				s.stop(id)
				if got := s.status(); got.Watchers != len(s.next) {
					t.Errorf("%d watches count as %d", len(s.next), got.Watchers)
				}
			}
			if n := s.status().Readers; n != 0 {
				t.Errorf("%d readers are left without a watch", n)
			}
		})
	}
}

// soon returns the next message of a channel, and fails if none arrives in time.
func soon(t *testing.T, from <-chan *pb.WatchResponse) *pb.WatchResponse {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(deadline):
		t.Fatal("no message was sent")
		return nil
	}
}

// Watches that share a reader fall behind the window together. Watches that understand units get
// the missed changes, and other watches end at their position. A watch that is created then gets a
// new reader with a window.
func TestWatchesThatShareAReaderFallBehindTogether(t *testing.T) {
	r := start(t, cachetest.New(), options{
		shards: cachetest.Map(1, nil, "here"), cache: func(c *cache.Config) { c.WindowBytes = 2 << 10 },
	})
	<-r.node.Replica(1).Ready()
	events, answers := make(chan *pb.WatchResponse, 1000), make(chan *pb.WatchResponse, 1000)
	at := map[int64]int64{} // the last revision that was sent to each watch
	p := &held{
		sent: func(e *wire.Encoded) {
			m, err := decode(e)
			if err != nil {
				t.Error(err)
			}
			for _, id := range about(m) {
				if y := m.GetSync(); y.GetBegin() && y.GetFromRevision() != at[id] {
					t.Errorf("watch %d, already at revision %d: got %v", id, at[id], m)
				}
				at[id] = m.GetRevision()
			}
			if events <- m; m.GetSync() != nil {
				answers <- m
			}
		},
		all: func(m any) { answers <- m.(*pb.WatchResponse) },
	}
	r.hand(p)
	p.in <- allowWatchIDs(true)
	open := func(id int64) {
		p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
			WatchId: id, Key: []byte("a"), AllowSync: id%2 == 0, Start: &pb.CreateWatch_StartRevision{StartRevision: int64(r.h.Now()) + 1},
		}}}
		if m := soon(t, answers); m.GetCreated() == nil {
			t.Fatalf("watch %d: %v", id, m)
		}
	}
	// get writes key a, and returns when the given number of watches have received the event.
	get := func(watches int) kv.Revision {
		at := r.h.Commit(cachetest.Put("a", "v"))
		for watches > 0 {
			m := soon(t, events)
			if kv.Revision(m.GetRevision()) != at {
				t.Fatalf("got %v, want revision %d", m, at)
			}
			watches -= len(about(m))
		}
		return at
	}
	for id := range int64(4) {
		open(id + 1)
	}
	for get(4); r.node.Replica(1).Status().Readers > 1; {
		get(4)
	}

	release := p.hold()
	r.h.Commit(cachetest.Put("a", "held"))
	<-p.at
	var last kv.Revision
	for range 500 {
		last = r.h.Commit(cachetest.Put("a", "missed"))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	release()
	ended, brought := map[int64]bool{}, map[int64]bool{}
	for len(ended) < 2 || len(brought) < 2 {
		m := soon(t, answers)
		for _, id := range about(m) {
			switch e := m.GetEnded(); {
			case e != nil && (id%2 == 0 || e.GetReason() != pb.EndReason_END_REASON_COMPACTED || e.GetResumeRevision() > int64(last)-400):
				t.Fatalf("watch %d: %v", id, m)
			case e != nil:
				ended[id] = true
			case m.GetSync().GetEnd() && kv.Revision(m.GetSync().GetRevision()) == last:
				brought[id] = true
			}
		}
	}
	for len(events) > 0 {
		<-events
	}
	open(5)
	for get(3); r.node.Replica(1).Status().Readers > 1; {
		get(3)
	}
}
