package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/testing/check"
)

const (
	// asking is the interval of a stream's progress requests, and silence the time without an
	// answer after which it treats its node as dead: a stopped node keeps its connections.
	asking  = time.Second
	silence = 3 * time.Second
)

// stream is a client of etcd's bare API with many watches on one stream. On any error, and
// occasionally without one, it resumes on the next node, each watch after its last revision. It
// sends nothing else, so every node must have everything that another node had.
type stream struct {
	nodes   []target
	conns   []*grpc.ClientConn // parallel to nodes
	watches []*etcdWatch
	rng     *rand.Rand
	// leader: the stream requires a leader, and ends at a node without one.
	leader bool
	// named: the client chooses the IDs of the watches.
	named bool
	// hops: it moves without a fault.
	hops bool
	// asks: it requests progress continuously, and expects answers.
	asks bool
	// cancels: it cancels watches while events arrive, requests progress at once, and creates them
	// again after the answer to the cancel.
	cancels bool
	still   *atomic.Bool // set: it does not move without a fault
	// sleeps: it stops reading while the gate is closed; see [gate].
	sleeps bool

	// The node that it left and the cause, reported when it resumes.
	left   string
	reason error
}

func newStream(nodes []target, ws []*watcher, rng *rand.Rand) (*stream, error) {
	s := &stream{nodes: nodes, rng: rng, still: &atomic.Bool{}, leader: rng.IntN(2) == 0, named: rng.IntN(2) == 0, hops: rng.IntN(3) == 0, asks: rng.IntN(3) > 0, cancels: rng.IntN(3) > 0}
	for i, w := range ws {
		s.watches = append(s.watches, newEtcdWatch(w))
		s.watches[i].id = int64(i + 1)
	}
	for _, n := range nodes {
		conn, err := dial(n.addr)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.conns = append(s.conns, conn)
	}
	return s, nil
}

func (s *stream) close() error {
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// run watches until ctx ends.
func (s *stream) run(ctx context.Context) {
	for at := s.rng.IntN(len(s.nodes)); ctx.Err() == nil; at = (at + 1) % len(s.nodes) {
		err := s.watch(ctx, s.nodes[at], s.conns[at])
		if s.reason == nil {
			s.left, s.reason = s.nodes[at].name, err
		}
		// A node that refuses watches does so at once.
		_ = pause(ctx, time.Duration(10+s.rng.IntN(40))*time.Millisecond)
	}
}

var (
	errHop    = errors.New("it moves to another node without a fault")
	errCancel = errors.New("the client has cancelled the watch")
	errSilent = fmt.Errorf("no message for %v", silence)
)

// watch watches at one node until that fails.
func (s *stream) watch(ctx context.Context, n target, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	silent := time.AfterFunc(silence, func() {
		if !s.still.Load() {
			cancel(errSilent)
		}
	})
	var g sync.WaitGroup
	defer g.Wait()
	defer cancel(nil)
	defer silent.Stop()
	if s.hops {
		hop := time.AfterFunc(4*time.Second+time.Duration(s.rng.Int64N(int64(8*time.Second))), func() {
			if !s.still.Load() {
				cancel(errHop)
			}
		})
		defer hop.Stop()
	}
	if s.leader {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	because := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	kvs := etcdserverpb.NewKVClient(conn)
	for _, w := range s.watches {
		if w.cutOff() || w.needsState() {
			if err := w.list(ctx, kvs); err != nil {
				return because(err)
			}
			silent.Reset(silence)
		}
	}
	rpc, err := etcdserverpb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return because(err)
	}
	c := &conversation{
		stream: s, node: n, rpc: rpc, kvs: kvs, create: make(chan *etcdWatch, len(s.watches)),
		cancel: make(chan int64), byID: map[int64]*etcdWatch{}, leaving: map[int64]bool{}, back: map[*etcdWatch]bool{}, from: s.left, why: s.reason,
	}
	for _, w := range s.watches {
		c.create <- w
	}
	g.Go(func() { c.ask(ctx) })
	for {
		r, err := rpc.Recv()
		if err != nil {
			return because(err)
		}
		silent.Stop()
		s.slow(ctx)
		if s.asks {
			silent.Reset(silence)
		}
		if err := c.take(ctx, r); err != nil {
			return because(err)
		}
	}
}

// slow waits while the gate is closed, if the stream is a slow one, with all its watches.
func (s *stream) slow(ctx context.Context) {
	if s.sleeps && s.watches[0].gate.pass(ctx) {
		for _, w := range s.watches {
			w.slept()
		}
	}
}

// conversation is the messages of a stream with one node.
type conversation struct {
	*stream
	node target
	rpc  etcdserverpb.Watch_WatchClient
	kvs  etcdserverpb.KVClient
	from string // the previous node
	why  error  // why it left that node; nil: there was none
	// create has watches to create, in this order. It has room for all.
	create chan *etcdWatch
	// cancel has IDs of watches to cancel.
	cancel chan int64

	mu    sync.Mutex
	asked []*etcdWatch // guarded by mu; requested but not answered, in order

	// Owned by take.
	byID    map[int64]*etcdWatch
	leaving map[int64]bool      // cancelled by the client, and not answered yet
	back    map[*etcdWatch]bool // cancelled by the client and created again
	whole   *etcdWatch          // has received part of a response; nil: none
	parts   []*mvccpb.Event     // the events of that part
}

// ask sends requests until ctx ends: for the watches, and repeatedly for progress.
func (c *conversation) ask(ctx context.Context) {
	var tick <-chan time.Time
	if c.asks {
		t := time.NewTicker(asking)
		defer t.Stop()
		tick = t.C
	}
	progress := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}
	for {
		var r *etcdserverpb.WatchRequest
		select {
		case id := <-c.cancel:
			cancel := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}}
			if c.rpc.Send(cancel) != nil {
				return // Recv returns the cause
			}
			r = progress
		case w := <-c.create:
			create := w.request()
			if c.named {
				create.WatchId = w.id
			}
			c.mu.Lock()
			c.asked = append(c.asked, w)
			c.mu.Unlock()
			r = &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}
		case <-tick:
			r = progress
		case <-ctx.Done():
			return
		}
		if c.rpc.Send(r) != nil {
			return // Recv returns the cause
		}
	}
}

// answered returns the watch whose creation is answered next.
func (c *conversation) answered() *etcdWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) == 0 {
		return nil
	}
	w := c.asked[0]
	c.asked = c.asked[1:]
	return w
}

// take handles one response. It fails if the stream has to resume on another node.
func (c *conversation) take(ctx context.Context, r *etcdserverpb.WatchResponse) error {
	if c.reason != nil {
		c.left, c.reason = "", nil // it has resumed
	}
	rev := r.GetHeader().GetRevision()
	if r.GetCreated() {
		return c.created(ctx, r)
	}
	if r.GetWatchId() == clientv3.InvalidWatchID && len(r.GetEvents()) == 0 && !r.GetCanceled() {
		for _, w := range c.byID { // for all created watches
			w.progressed(rev)
		}
		return nil
	}
	w := c.byID[r.GetWatchId()]
	if w == nil {
		c.watches[0].blame(check.PromiseFiltered, rev, "responses for the watches of its stream", fmt.Sprintf("one for watch %d", r.GetWatchId()))
		return nil
	}
	if c.whole != nil && c.whole != w {
		w.blame(check.PromiseAtomic, rev, "consecutive fragments of a response", "one between those of "+c.whole.wish.watch.Name)
	}
	switch events := r.GetEvents(); {
	case r.GetCanceled() && c.leaving[r.GetWatchId()]:
		c.cancelled(w, r.GetWatchId())
	case r.GetCanceled():
		delete(c.byID, r.GetWatchId())
		return c.again(ctx, w, r)
	case r.GetFragment():
		c.whole, c.parts = w, append(c.parts, events...)
	case len(events) > 0:
		if last := events[len(events)-1].GetKv().GetModRevision(); last > rev {
			w.blame(check.PromiseBookmarkable, last, "a header's revision not below the events'", fmt.Sprint(rev))
		}
		if c.whole == w {
			events = append(c.parts, events...)
			c.whole, c.parts = nil, nil
		}
		w.delivered(events)
		c.leave(r.GetWatchId())
	case !w.wish.notify:
		w.blame(check.PromiseFiltered, rev, "no progress of the watch's own, which was not asked for", "progress")
	default:
		w.progressed(rev)
	}
	return nil
}

// created handles the answer to a request for a watch.
func (c *conversation) created(ctx context.Context, r *etcdserverpb.WatchResponse) error {
	w := c.answered()
	if w == nil {
		c.watches[0].blame(check.PromiseFiltered, r.GetHeader().GetRevision(), "no other watches on its stream", fmt.Sprintf("watch %d", r.GetWatchId()))
		return nil
	}
	if r.GetCanceled() {
		return c.again(ctx, w, r)
	}
	if c.named && r.GetWatchId() != w.id {
		w.blame(check.PromiseFiltered, r.GetHeader().GetRevision(), fmt.Sprintf("watch ID %d, as asked", w.id), fmt.Sprint(r.GetWatchId()))
	}
	c.byID[r.GetWatchId()] = w
	from, why := c.from, c.why
	if c.back[w] {
		from, why = c.node.name, errCancel
	}
	if why != nil && w.next > 0 {
		wanted := errors.Is(why, errHop) || errors.Is(why, errCancel)
		w.resumed(resume{from: from, to: c.node.name, reason: why, behind: w.next - 1, wanted: wanted})
	}
	w.created(r.GetHeader().GetRevision())
	return nil
}

// leave occasionally cancels a watch, if the stream does that. Until the answer the client treats
// the watch as live: progress counts for it.
func (c *conversation) leave(id int64) {
	if !c.cancels || c.leaving[id] || c.rng.IntN(20) > 0 || c.still.Load() {
		return
	}
	select {
	case c.cancel <- id:
		c.leaving[id] = true
	default: // ask is busy
	}
}

// cancelled creates a watch again that the client has cancelled.
func (c *conversation) cancelled(w *etcdWatch, id int64) {
	delete(c.byID, id)
	delete(c.leaving, id)
	if c.whole == w {
		c.whole, c.parts = nil, nil
	}
	c.back[w] = true
	c.create <- w
}

// again creates a watch again that the node has ended.
func (c *conversation) again(ctx context.Context, w *etcdWatch, r *etcdserverpb.WatchResponse) error {
	if relist := w.canceled(r.GetCompactRevision(), errors.New(r.GetCancelReason())); relist {
		if err := w.list(ctx, c.kvs); err != nil {
			return err
		}
	}
	if err := pause(ctx, 100*time.Millisecond); err != nil { // do not retry in a tight loop
		return err
	}
	c.create <- w
	return nil
}
