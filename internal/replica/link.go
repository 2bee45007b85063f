package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// While shards are followed over a link it is pinged every Heartbeat; a node that
// answers nothing for Silence counts as lost. Short, because everybody who watches
// here waits for it, and because a mistake costs nothing but a watch at etcd for a
// while.
const (
	Heartbeat = 200 * time.Millisecond
	Silence   = 3 * Heartbeat
)

// UntilBeat returns the time until the next moment that is a multiple of every,
// itself one of Heartbeat. All that a node does now and then is done at one of
// these moments: to wake a process that sleeps costs more than what it then does.
func UntilBeat(every time.Duration) time.Duration {
	now := time.Now()
	return now.Truncate(every).Add(every).Sub(now)
}

// ErrSilent says that a peer stopped talking without closing the stream: it
// is paused, or cut off.
var ErrSilent = errors.New("the peer has been silent for too long")

// Look is what a node has read of etcd: a linearizable read that began at At, in
// the history of a lineage, returned Revision.
type Look struct {
	Lineage  uint64
	Revision kv.Revision
	At       time.Time
}

// Link is the way to another node, and tells whether that lives: with one
// heartbeat for all shards that are followed there, since what falls silent is a
// node or its network, and never one shard. All methods may be called from any
// goroutine.
type Link struct {
	conn   grpc.ClientConnInterface
	looked func(Look)

	mu    sync.Mutex
	pulse *pulse // guarded by mu; nil: nobody follows
}

// NewLink returns the link over conn, which leads to the node's peer port. looked
// is told, dated by our own clock, what the node has read of etcd; nil: nobody is.
// It must not block.
func NewLink(conn grpc.ClientConnInterface, looked func(Look)) *Link {
	if looked == nil {
		looked = func(Look) {}
	}
	return &Link{conn: conn, looked: looked}
}

// pulse is the heartbeat of a link, from the first who follows to the last.
type pulse struct {
	link  *Link
	began time.Time
	stop  context.CancelFunc
	done  chan struct{} // closed when run has returned

	held   map[*holder]struct{} // guarded by link.mu
	missed int                  // guarded by link.mu; beats since the last answer
}

// holder is one who is told when the node falls silent.
type holder struct {
	silence time.Duration
	leave   context.CancelCauseFunc
}

// hold returns a context that ends when the node has answered nothing for silence,
// with ErrSilent as its cause, or when the heartbeat breaks, with the reason. Call
// release when it is not needed any more.
func (l *Link) hold(ctx context.Context, silence time.Duration) (held context.Context, release func()) {
	held, leave := context.WithCancelCause(ctx)
	h := &holder{silence: silence, leave: leave}
	l.mu.Lock()
	p := l.pulse
	if p == nil {
		var beating context.Context
		p = &pulse{link: l, began: time.Now(), done: make(chan struct{}), held: make(map[*holder]struct{})}
		beating, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // it may outlive its first holder
		l.pulse = p
		go p.run(beating)
	}
	p.held[h] = struct{}{}
	l.mu.Unlock()
	return held, func() {
		leave(nil)
		l.mu.Lock()
		delete(p.held, h)
		last := len(p.held) == 0
		if last && l.pulse == p {
			l.pulse = nil
		}
		l.mu.Unlock()
		if last {
			p.stop()
			<-p.done
		}
	}
}

// run beats until ctx ends or the stream breaks.
func (p *pulse) run(ctx context.Context) {
	defer close(p.done)
	defer p.stop()
	var pings sync.WaitGroup
	defer pings.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse], 1)
	pings.Go(func() { p.ping(ctx, opened) })
	stream, err := peerv1.NewPeerServiceClient(p.link.conn).Beat(ctx)
	if err == nil {
		opened <- stream
	}
	for err == nil {
		var m *peerv1.BeatResponse
		if m, err = stream.Recv(); err == nil {
			p.answered(m)
		}
	}
	p.broken(wire.Error(err))
}

// ping sends a ping with every beat, and counts, until ctx ends or the stream
// breaks.
func (p *pulse) ping(ctx context.Context, opened <-chan grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse]) {
	var stream grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse]
	beat := time.NewTimer(UntilBeat(Heartbeat))
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case stream = <-opened:
		case <-beat.C:
			beat.Reset(UntilBeat(Heartbeat))
			p.miss()
		}
		if stream != nil && stream.Send(&peerv1.BeatRequest{PingNanos: int64(time.Since(p.began))}) != nil {
			return // Recv says why
		}
	}
}

// miss notes that another beat has come, and tells those for whom the node has
// been silent for too long. Beats are counted, and not the time: a process that
// stood still itself has missed nothing.
func (p *pulse) miss() {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	p.missed++
	for h := range p.held {
		if time.Duration(p.missed)*Heartbeat >= h.silence {
			h.leave(ErrSilent)
		}
	}
}

// answered notes a sign of life.
func (p *pulse) answered(m *peerv1.BeatResponse) {
	p.link.mu.Lock()
	p.missed = 0
	p.link.mu.Unlock()
	if m.GetEtcdRevision() > 0 {
		p.link.looked(Look{
			Lineage: m.GetLineage(), Revision: kv.Revision(m.GetEtcdRevision()),
			// The age was determined after our ping was sent: by our clock, the read
			// did not begin before that, however long the answer took.
			At: p.began.Add(time.Duration(m.GetPongNanos()) - m.GetEtcdAge().AsDuration()),
		})
	}
}

// broken tells all holders that there is no heartbeat any more. Who comes later
// begins another one.
func (p *pulse) broken(why error) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.link.pulse == p {
		p.link.pulse = nil
	}
	for h := range p.held {
		h.leave(why)
	}
}
