package peerapi

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// pairs are the sessions of the nodes that follow shards here, by session number. All
// methods may be called from any goroutine.
type pairs struct {
	mu   sync.Mutex
	list map[uint64]*pair // guarded by mu
}

// pair is a session: the shards that another node follows here, and the heartbeat that
// reports their progress. The streams of the shards may begin before the heartbeat does.
type pair struct {
	bell  wait.Bell // the heartbeat has something to do
	users int       // guarded by pairs.mu

	mu      sync.Mutex
	beats   bool                 // guarded by mu; a heartbeat has begun
	follows map[uint64]*followed // guarded by mu; by the ID of the stream
	wanted  kv.Revision          // guarded by mu; the highest requested revision
	// early are revisions that were requested from single streams before these began,
	// by stream ID. Guarded by mu.
	early   map[uint64]kv.Revision
	missing int   // guarded by mu; shards that the answer waits for
	late    int   // guarded by mu; late shards, which the answer does not wait for
	due     bool  // guarded by mu; progress must be reported now
	pushes  bool  // guarded by mu; unrequested progress is reported
	pinged  bool  // guarded by mu; a ping must be answered
	ping    int64 // guarded by mu; its time

	next *arrival // owned by the heartbeat; nil: none awaited
}

// followed is a shard that another node follows here, from the end of its state on.
type followed struct {
	pair *pair
	home *cache.Cache
	told kv.Revision // last reported progress; owned by the heartbeat
	// hold makes the stream send the events held back so far, and hold later ones back or
	// send them; held is its last argument. Owned by hear.
	hold func(back bool)
	held bool

	wanted kv.Revision // guarded by pair.mu; the highest revision requested from this stream alone
	waits  bool        // guarded by pair.mu; it has not reached a requested revision
	late   bool        // guarded by pair.mu; the answer no longer waits for it
	gone   bool        // guarded by pair.mu
	forget func()      // guarded by pair.mu; ends the wait; nil: no wait
}

// latePatience is how long an answer waits for the last shard. Then the progress of the
// others is reported without it.
const latePatience = 20 * time.Millisecond

// join returns the pair of a session, and a function that leaves it.
func (s *pairs) join(session uint64) (p *pair, leave func()) {
	if session == 0 {
		return newPair(), func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[uint64]*pair)
	}
	p = s.list[session]
	if p == nil {
		p = newPair()
		s.list[session] = p
	}
	p.users++
	return p, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(s.list, session)
		}
	}
}

func newPair() *pair {
	return &pair{bell: wait.NewBell(), follows: make(map[uint64]*followed)}
}

// follow reports the progress of a shard under the ID of its stream, and calls hold with
// each ping that reports the follower as idle, and when it is no longer idle. It returns a
// function that ends both.
func (p *pair) follow(name uint64, home *cache.Cache, hold func(back bool)) (end func()) {
	f := &followed{pair: p, home: home, hold: hold}
	p.mu.Lock()
	p.follows[name] = f
	f.wanted = p.early[name]
	delete(p.early, name)
	p.due = true // the follower gets its progress at once
	p.mu.Unlock()
	p.bell.Wake()
	return func() {
		p.mu.Lock()
		f.gone = true
		if p.follows[name] == f {
			delete(p.follows, name)
		}
		p.arrivedLocked(f)
		forget := f.forget
		p.mu.Unlock()
		if forget != nil {
			forget()
		}
	}
}

// Wake implements cache.Waker: the shard has reached the requested revision.
func (f *followed) Wake() {
	f.pair.mu.Lock()
	defer f.pair.mu.Unlock()
	f.pair.arrivedLocked(f)
}

// arrivedLocked notes that a shard no longer waits. Progress is due with the last shard
// that the answer waits for, and with the last late shard.
func (p *pair) arrivedLocked(f *followed) {
	if !f.waits {
		return
	}
	left := &p.missing
	if f.late {
		left = &p.late
	}
	f.waits, f.late = false, false
	if *left--; *left == 0 {
		p.due = true
		p.bell.Wake()
	}
}

// hear takes a request of the heartbeat. One goroutine at a time calls it.
//
// A ping sends the events that idle streams have held back, and so does a request for
// progress: a report counts once the events before it have arrived. The next ping lists
// the streams that are idle then. The answer comes after these events.
func (p *pair) hear(m *peerv1.BeatRequest) {
	p.holdBack(m.GetIdleFollowIds())
	p.mu.Lock()
	if want := kv.Revision(m.GetWantProgress()); want > 0 {
		p.wantLocked(m.GetWantFollowId(), want)
	} else {
		p.pinged, p.ping, p.pushes = true, m.GetPingNanos(), m.GetPush()
	}
	p.mu.Unlock()
	p.bell.Wake()
}

// maxEarly bounds the requests to streams that have not begun.
const maxEarly = 1 << 12

// wantLocked notes that a revision is requested from the stream with this ID; 0: from all.
func (p *pair) wantLocked(name uint64, want kv.Revision) {
	f := p.follows[name]
	switch {
	case name == 0:
		p.wanted, p.pushes = max(p.wanted, want), true
	case f != nil:
		f.wanted = max(f.wanted, want)
	case len(p.early) < maxEarly:
		if p.early == nil {
			p.early = make(map[uint64]kv.Revision)
		}
		p.early[name] = max(p.early[name], want)
	}
}

// holdBack makes the streams with these IDs send their events up to now and hold later ones
// back, and the others send theirs at once.
func (p *pair) holdBack(idle []uint64) {
	back := make(map[*followed]bool)
	p.mu.Lock()
	for name, f := range p.follows {
		if is := slices.Contains(idle, name); is || f.held {
			back[f] = is
		}
	}
	p.mu.Unlock()
	for f, is := range back {
		f.held = is
		f.hold(is)
	}
}

// demand requests the wanted revision from the shards that have not reached it, one
// revision at a time from each. It reports whether the answer waits for any.
func (p *pair) demand() bool {
	type lagging struct {
		*followed
		wanted kv.Revision
	}
	p.mu.Lock()
	var lag []lagging
	for _, f := range p.follows {
		if f.waits {
			continue
		}
		wanted := max(p.wanted, f.wanted)
		if reached, _ := f.home.Reached(wanted); !reached {
			f.waits = true
			p.missing++
			lag = append(lag, lagging{f, wanted})
		}
	}
	p.mu.Unlock()
	for _, f := range lag {
		forget := f.home.WakeAt(f.wanted, f)
		p.mu.Lock()
		f.forget = forget
		gone := f.gone
		p.mu.Unlock()
		if gone {
			forget()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing == 0 {
		p.due = true
	}
	return p.missing > 0
}

// giveUp ends the wait of the answer.
func (p *pair) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.follows {
		f.late = f.waits
	}
	p.missing, p.late, p.due = 0, p.missing+p.late, true
}

// report returns the due message, or nil: the progress of the shards that have
// advanced, and with pong, the answer to a ping.
func (p *pair) report() (m *peerv1.BeatResponse, pong bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.due && !p.pinged {
		return nil, false
	}
	m, pong = &peerv1.BeatResponse{PongNanos: p.ping}, p.pinged
	p.due, p.pinged, p.ping = false, false, 0
	reached := kv.Revision(math.MaxInt64)
	for name, f := range p.follows {
		since, progress := f.home.Quiet()
		reached = min(reached, progress)
		if progress == f.told {
			continue
		}
		known := f.told > 0 && progress == since
		f.told = progress
		if known { // by the events of the stream
			continue
		}
		m.Progress = max(m.Progress, int64(progress))
		m.FollowIds = append(m.FollowIds, name)
		m.Behind = append(m.Behind, int64(progress))
		m.Quiet = append(m.Quiet, int64(progress-since))
	}
	for i, progress := range m.Behind {
		m.Behind[i] = m.Progress - progress
	}
	if len(m.FollowIds) == 0 && !pong {
		return nil, false
	}
	if len(p.follows) > 0 {
		m.Reached = int64(reached)
	}
	return m, pong
}

// begin notes that the heartbeat has begun, and fails if there is another one.
func (p *pair) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beats {
		return &kv.InvalidError{Field: "session", Reason: "another heartbeat has it; choose a random number"}
	}
	p.beats = true
	return nil
}

// Beat implements peerv1.PeerServiceServer.
func (s *Service) Beat(gs grpc.BidiStreamingServer[peerv1.BeatRequest, peerv1.BeatResponse]) error {
	first, err := gs.Recv()
	if err != nil {
		return err
	}
	p, leave := s.pairs.join(first.GetSession())
	defer leave()
	if err := p.begin(); err != nil {
		return wire.Status(err)
	}
	p.hear(first)
	ctx, cancel := context.WithCancel(gs.Context())
	defer cancel()
	// The goroutine ends with the stream, at the latest when this handler returns.
	go func() {
		defer p.holdBack(nil) // without pings
		defer cancel()
		for {
			m, err := gs.Recv()
			if err != nil {
				return
			}
			p.hear(m)
		}
	}()
	defer p.forget()
	late := time.NewTimer(latePatience)
	defer late.Stop()
	for running := true; ; {
		switch waits := p.demand(); {
		case !waits:
			late.Stop()
			running = false
		case !running:
			late.Reset(latePatience)
			running = true
		}
		p.arrive()
		if m, pong := p.report(); m != nil {
			if look, known := s.cfg.Node.Looked(); pong && known {
				m.Lineage, m.EtcdRevision = look.Lineage, int64(look.Revision)
				m.EtcdAge = durationpb.New(time.Since(look.At))
			}
			if err := gs.Send(m); err != nil {
				return err
			}
		}
		p.await()
		select {
		case <-p.bell:
		case <-late.C:
			running = false
			p.giveUp()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
