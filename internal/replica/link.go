package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// While shards are followed over a link it is pinged every Heartbeat; a node that does
// not answer for Silence counts as lost. Both are short: every client that watches here
// waits for the detection, and a false one costs only a temporary watch at etcd.
const (
	Heartbeat = beat.Every
	Silence   = 3 * Heartbeat
)

// ErrSilent reports that a peer stopped sending without closing the stream: it is
// paused, or partitioned.
var ErrSilent = errors.New("the peer has been silent for too long")

// Look is a node's read of etcd's revision: a linearizable read that began at At, in
// the history of a lineage, returned Revision.
type Look struct {
	Lineage  uint64
	Revision kv.Revision
	At       time.Time
}

// Link is the connection to another node. It reports whether the node is alive, and its
// progress with the shards that are followed there. Both come with one heartbeat for
// all these shards, because a node or its network fails, never one shard. All methods
// may be called from any goroutine.
type Link struct {
	conn   grpc.ClientConnInterface
	looked func(Look)

	mu    sync.Mutex
	pulse *pulse // guarded by mu; nil: no shard is followed
}

// NewLink returns the link over conn, which leads to the node's peer port. looked
// is called with the node's last read of etcd, dated by the local clock; nil: not called.
// It must not block.
func NewLink(conn grpc.ClientConnInterface, looked func(Look)) *Link {
	if looked == nil {
		looked = func(Look) {}
	}
	return &Link{conn: conn, looked: looked}
}

// pulse is the heartbeat of a link, while any shard is followed. All shards are of one
// lineage: a requested revision has no meaning in another.
type pulse struct {
	link    *Link
	lineage uint64
	session uint64 // identifies the heartbeat at the node
	began   time.Time
	stop    context.CancelFunc
	done    chan struct{} // closed when run has returned
	wish    wait.Bell     // wanted has grown
	roused  wait.Bell     // a shard is no longer idle

	passed []*holder          // scratch; owned by run
	held   map[uint64]*holder // guarded by link.mu; by number
	last   uint64             // guarded by link.mu; the last assigned number
	missed int                // guarded by link.mu; pings since the last answer
	pushed pushed             // guarded by link.mu
	late   *time.Timer        // calls overdue; runs while pushed progress is awaited
	wanted kv.Revision        // guarded by link.mu; the highest revision that a holder waits for
	asked  kv.Revision        // guarded by link.mu; the highest requested revision
	wished bool               // guarded by link.mu; wanted must be sent
}

// holder is one stream over the link. It gets the progress of its shard, and the report
// that the node is silent.
type holder struct {
	pulse   *pulse
	number  uint64 // identifies the stream in the session
	silence time.Duration
	leave   context.CancelCauseFunc
	told    wait.Bell // quiet has changed, and the stream's goroutine must report it
	quiet   quiet     // guarded by link.mu

	// turn is held by the stream's goroutine except while it waits for the next update. The
	// goroutine that holds it reports to the follower.
	turn   sync.Mutex
	at     joint                  // guarded by turn
	report func(kv.Revision) bool // guarded by turn; kv.FollowRequest.Progress; may be nil

	// apart: the stream has its own revisions, and its own wanted revision, which must
	// be sent if wished. Guarded by link.mu.
	apart, wished bool
	wanted        kv.Revision
	// idle is kv.FollowRequest.Idle once the state is complete; nil before. Guarded by link.mu.
	idle func(arrived func()) bool
	// named: the last ping listed the stream among those whose events may wait. Guarded by link.mu.
	named bool
}

// quiet is a part of a shard's history without events: after since, up to and including
// upTo.
type quiet struct{ since, upTo kv.Revision }

// hold returns a context that ends when the node has not answered for silence, with
// ErrSilent as its cause, or when the heartbeat fails, with that error. Release the
// holder when it is no longer needed.
func (l *Link) hold(ctx context.Context, silence time.Duration, lineage uint64) (context.Context, *holder) {
	held, leave := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pulse
	if p == nil || p.lineage != lineage {
		p = &pulse{
			link: l, lineage: lineage, session: max(1, rand.Uint64()), began: time.Now(),
			done: make(chan struct{}), wish: wait.NewBell(), roused: wait.NewBell(), held: make(map[uint64]*holder),
		}
		p.late = time.AfterFunc(math.MaxInt64, p.overdue)
		var beating context.Context
		beating, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // it may outlive its first holder
		l.pulse = p
		go p.run(beating)
	}
	p.last++
	h := &holder{pulse: p, number: p.last, silence: silence, leave: leave, told: wait.NewBell()}
	h.turn.Lock()
	p.held[h.number] = h
	return held, h
}

// release ends the hold, and with the last one the heartbeat.
func (h *holder) release() {
	h.leave(nil)
	p := h.pulse
	l := p.link
	l.mu.Lock()
	delete(p.held, h.number)
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

// setApart notes that the stream has its own revisions.
func (h *holder) setApart() {
	h.pulse.link.mu.Lock()
	defer h.pulse.link.mu.Unlock()
	h.apart = true
}

// want requests that progress of revision come soon. One request covers all shards that are
// followed over the link. None is sent if the node will report the revision without it.
// Streams that are apart have separate requests.
func (h *holder) want(revision kv.Revision) {
	p := h.pulse
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	switch {
	case h.apart:
		if revision > h.wanted {
			h.wanted, h.wished = revision, true
			p.wish.Wake()
		}
	case h.named && revision > p.asked: // a request also makes its events come
		p.wanted = max(p.wanted, revision)
		p.askLocked()
	case h.quiet.upTo >= revision: // already reported; the follower has it after the events before it
		p.pushed.recent = true
	case revision <= p.wanted:
	case p.pushed.want(revision):
		p.wanted = revision
		p.askLocked()
	default:
		if p.wanted = revision; p.pushed.awaited == revision {
			p.late.Reset(pushPatience)
		}
	}
}

// askLocked requests the wanted revision from the node.
func (p *pulse) askLocked() {
	p.pushed.ask()
	p.wished = true
	p.wish.Wake()
}

// overdue requests progress that the node has not reported unrequested.
func (p *pulse) overdue() {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.pushed.awaited > 0 {
		p.pushed.miss()
		p.askLocked()
	}
}

// mayIdle makes the pings report when the shard is idle.
func (h *holder) mayIdle(idle func(arrived func()) bool) {
	h.pulse.link.mu.Lock()
	defer h.pulse.link.mu.Unlock()
	h.idle = idle
}

// latest returns the newest quiet part of the shard's history that the node has
// reported; zero: none yet.
func (h *holder) latest() quiet {
	h.pulse.link.mu.Lock()
	defer h.pulse.link.mu.Unlock()
	return h.quiet
}

// pass reports the newest progress to the follower if it waits for the next update.
// Otherwise the stream's goroutine does.
func (h *holder) pass() {
	if h.turn.TryLock() {
		reported := h.passLocked()
		h.turn.Unlock()
		if reported {
			return
		}
	}
	h.told.Wake()
}

// passLocked reports the newest progress directly. It returns false if the follower wants it as
// an update.
func (h *holder) passLocked() bool {
	if h.report == nil {
		return false
	}
	at := h.at
	if progress, ok := at.join(h.latest()); ok && !h.report(progress) {
		return false
	}
	h.at = at
	return true
}

// run runs the heartbeat until ctx ends or the stream breaks.
func (p *pulse) run(ctx context.Context) {
	defer close(p.done)
	defer p.stop()
	defer p.late.Stop()
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
			err = p.answered(m)
		}
	}
	p.broken(wire.Error(err))
}

// ping sends a ping every Heartbeat and counts missed answers, until ctx ends or the
// stream breaks. In between it sends the requests of the holders, and a ping when a
// shard is no longer idle.
func (p *pulse) ping(ctx context.Context, opened <-chan grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse]) {
	var stream grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse]
	var wish, roused <-chan struct{} // nil: the session has not begun
	tick := time.NewTimer(beat.Until(Heartbeat))
	defer tick.Stop()
	for {
		m := &peerv1.BeatRequest{}
		var wishes []*peerv1.BeatRequest
		select {
		case <-ctx.Done():
			return
		case stream = <-opened:
			m.Session, wish, roused = p.session, p.wish, p.roused
		case <-wish:
			wishes = p.wishes()
		case <-roused:
		case <-tick.C:
			tick.Reset(beat.Until(Heartbeat))
			p.miss()
		}
		if wishes == nil {
			m.PingNanos, m.IdleFollowIds, m.Push = int64(time.Since(p.began)), p.idle(), p.pushes()
			wishes = append(wishes, m)
		}
		for _, m := range wishes {
			if stream != nil && stream.Send(m) != nil {
				return // Recv returns the cause
			}
		}
	}
}

// idle returns the streams whose shards have no watch or read here. Their events may wait for a
// request, so awaited progress does not prove that they come.
func (p *pulse) idle() (numbers []uint64) {
	var holders []*holder
	p.link.mu.Lock()
	for _, h := range p.held {
		if h.idle != nil {
			h.named = true // set before the result is known: a request in between is sent after the ping
			holders = append(holders, h)
		}
	}
	p.link.mu.Unlock()
	busy := holders[:0]
	for _, h := range holders {
		if h.idle(p.roused.Wake) {
			numbers = append(numbers, h.number)
		} else {
			busy = append(busy, h)
		}
	}
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	for _, h := range busy {
		h.named = false
	}
	if len(numbers) > 0 && p.pushed.awaited > 0 {
		p.askLocked()
	}
	return numbers
}

// pushes reports whether the node must report progress without a request.
func (p *pulse) pushes() bool {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	return p.pushed.on
}

// wishes returns the unsent requests for progress.
func (p *pulse) wishes() (out []*peerv1.BeatRequest) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.wished {
		p.wished, p.asked = false, p.wanted
		out = append(out, &peerv1.BeatRequest{WantProgress: int64(p.wanted)})
	}
	for _, h := range p.held {
		if h.wished {
			h.wished = false
			out = append(out, &peerv1.BeatRequest{WantProgress: int64(h.wanted), WantFollowId: h.number})
		}
	}
	return out
}

// miss counts a ping, and reports the node's silence to each follower whose limit it exceeds. It counts pings
// and not time: a process that was paused itself has missed none.
func (p *pulse) miss() {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	p.missed++
	p.pushed.beat()
	for _, h := range p.held {
		if time.Duration(p.missed)*Heartbeat >= h.silence {
			h.leave(ErrSilent)
		}
	}
}

// answered handles an answer, and passes on its report: the goroutine of the heartbeat
// reports to all followers that wait for their next update.
func (p *pulse) answered(m *peerv1.BeatResponse) error {
	p.passed = p.passed[:0]
	p.link.mu.Lock()
	p.missed = 0
	err := reported(m, func(number uint64, q quiet) {
		if h := p.held[number]; h != nil { // else the stream has ended here
			h.quiet = q
			p.passed = append(p.passed, h)
		}
	})
	if was := p.pushed.awaited; p.pushed.reached(kv.Revision(m.GetReached()), p.wanted) {
		p.late.Reset(pushPatience)
	} else if was > 0 && p.pushed.awaited == 0 {
		p.late.Stop()
	}
	p.link.mu.Unlock()
	for _, h := range p.passed {
		h.pass()
	}
	clear(p.passed)
	if err == nil && m.GetEtcdRevision() > 0 {
		p.link.looked(Look{
			Lineage: m.GetLineage(), Revision: kv.Revision(m.GetEtcdRevision()),
			// The node determined the age after our ping was sent. So by our clock the
			// read did not begin before that, however long the answer took.
			At: p.began.Add(time.Duration(m.GetPongNanos()) - m.GetEtcdAge().AsDuration()),
		})
	}
	return err
}

// reported calls tell with the progress of each stream in m.
func reported(m *peerv1.BeatResponse, tell func(number uint64, q quiet)) error {
	progress, behind, after := m.GetProgress(), m.GetBehind(), m.GetQuiet()
	if len(behind) != len(m.GetFollowIds()) || len(after) != len(behind) {
		return fmt.Errorf("%w: progress of %d streams with %d and %d numbers", kv.ErrMalformed, len(m.GetFollowIds()), len(behind), len(after))
	}
	for i, number := range m.GetFollowIds() {
		upTo := progress - behind[i]
		if behind[i] < 0 || behind[i] >= progress || after[i] < 0 || after[i] > upTo {
			return fmt.Errorf("%w: progress %d, %d behind and quiet for %d", kv.ErrMalformed, progress, behind[i], after[i])
		}
		tell(number, quiet{since: kv.Revision(upTo - after[i]), upTo: kv.Revision(upTo)})
	}
	return nil
}

// broken reports to all holders that the heartbeat has ended. Later holders begin
// another one.
func (p *pulse) broken(why error) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.link.pulse == p {
		p.link.pulse = nil
	}
	for _, h := range p.held {
		h.leave(why)
	}
}
