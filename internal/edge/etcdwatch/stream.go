package etcdwatch

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/receive"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// invalidID is the watch ID of answers that do not refer to one watch
// (clientv3.InvalidWatchID).
const invalidID = -1

// The reasons with which etcd refuses to create a watch (mvcc/watcher.go).
const (
	reasonEmptyRange  = "mvcc: watcher range is empty"
	reasonDuplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// maxReplies bounds the pending answers to a client's requests. At the bound,
// no more requests are read.
const maxReplies = 1024

// replyBytes is the approximate size of a pending answer. The first freeReplies
// answers of a stream are part of the stream's own size.
const (
	replyBytes  = 512
	freeReplies = 16
)

// stream is one client's Watch stream. Its requests are handled and answered in
// order: a watch that needs time to open delays the answers after it, but not
// their work.
type stream struct {
	of       *Streams
	tasks    *pump.Stream
	requests *receive.Requests[etcdserverpb.WatchRequest]
	cancel   context.CancelFunc // of ctx

	// The fields that each delivery reads are adjacent.
	failed bool        // owned by the pump; a send has failed
	sent   kv.Revision // owned by the pump: the highest revision of events and notifications sent, of lineage
	// lineage is the newest lineage of sent events, notifications and answers to requests for
	// progress, owned by the pump.
	lineage uint64
	// readers has the offered reader of each kind, owned by the pump; nil until the stream has
	// several watches.
	readers map[readerKind]*reader
	several atomic.Bool   // the stream has had several watches at a time; set under mu
	left    atomic.Uint64 // number of ends and cancels of watches

	progress progress
	from     net.Addr        // the client's address
	caller   *authz.Caller   // by the policy
	holder   budget.Client   // the client whose budget the stream uses
	ctx      context.Context //nolint:containedctx // the stream's life is the context's
	leader   bool            // the client requires a leader
	answers  pump.Task
	slots    chan struct{}  // a slot for each pending answer
	working  sync.WaitGroup // goroutines that wait for etcd or other nodes; see spawn
	nextID   int64          // owned by Handle

	mu      sync.Mutex
	watches map[int64]*watch // guarded by mu; the client may cancel them
	replies []*reply         // guarded by mu
	cancels int              // guarded by mu; number of replies to cancels

	reserved int64         // guarded by mu; answers whose bytes are reserved in the budget
	closing  bool          // guarded by mu; no goroutine may start
	gone     chan struct{} // closed after the last use of the stream
}

// reply is an answer to a request.
type reply struct {
	m     *etcdserverpb.WatchResponse
	ready bool // guarded by stream.mu; m is set
	// created is the watch that begins with the answer, gone the watch that the
	// answer ends.
	created, gone *watch
}

// watchService implements etcd's Watch service.
type watchService struct {
	etcdserverpb.UnimplementedWatchServer
	of    *Streams
	pumps *pump.Pumps
}

// Watch implements etcdserverpb.WatchServer.
func (w *watchService) Watch(gs grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	x := w.of
	caller, err := x.view.Caller(gs.Context())
	if err != nil {
		return err
	}
	if err := x.cfg.Router.AwaitMap(gs.Context()); err != nil {
		return wire.Status(err)
	}
	ctx, cancel := context.WithCancel(gs.Context())
	holder := authz.Holder(ctx, caller)
	tasks := w.pumps.Open(ctx, holder.Name, gs)
	s := &stream{
		of: x, tasks: tasks, requests: receive.New(gs), cancel: cancel, from: etcdview.ClientOf(ctx), caller: caller, holder: holder, ctx: ctx, leader: etcdview.WantsLeader(ctx),
		slots:   make(chan struct{}, maxReplies),
		watches: make(map[int64]*watch), gone: make(chan struct{}),
	}
	if !x.enter(s) {
		s.fail(etcdview.ErrStopped)
		cancel()
		tasks.Close()
		return etcdview.ErrStopped
	}
	s.answers.Init(s.tasks, s.answer)
	s.answers.Start()
	s.progress.start(s)
	return s.requests.Serve(s)
}

// HalfClosed implements receive.Handler. A client that has closed its side keeps watching.
func (s *stream) HalfClosed() {}

// End implements receive.Handler.
func (s *stream) End(reason error) error {
	s.of.leave(s)
	s.cancel()
	s.close()
	return reason
}

// spawn runs f in a goroutine that the stream waits for when it closes. It reports
// false if the stream is closing: then f does not run.
func (s *stream) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.working.Go(f)
	return true
}

// fail ends the stream. The first reason wins.
func (s *stream) fail(err error) { s.requests.Stop(err) }

// Handle implements receive.Handler: it executes a request of the client.
func (s *stream) Handle(m *etcdserverpb.WatchRequest) error {
	switch r := m.GetRequestUnion().(type) {
	case *etcdserverpb.WatchRequest_CreateRequest:
		if r.CreateRequest != nil && s.slot() {
			s.create(r.CreateRequest)
		}
	case *etcdserverpb.WatchRequest_CancelRequest:
		id := r.CancelRequest.GetWatchId()
		if r.CancelRequest != nil && s.lookup(id) != nil && s.slot() {
			s.cancelWatch(id)
		}
	case *etcdserverpb.WatchRequest_ProgressRequest:
		s.progress.request()
	}
	return nil // as etcd does with unknown requests
}

// slot takes a slot for an answer, and its bytes. It waits until the client reads
// earlier answers; false: the stream ends.
func (s *stream) slot() bool {
	select {
	case s.slots <- struct{}{}:
	case <-s.requests.Stopped():
		return false
	case <-s.ctx.Done():
		return false
	}
	if len(s.slots) <= freeReplies {
		return true
	}
	got := make(chan struct{})
	wait, err := s.of.cfg.Budget.Wait(s.holder, budget.Replies, replyBytes, func() { close(got) })
	if err != nil {
		s.fail(wire.Status(err))
		return false
	}
	select {
	case <-got:
	case <-s.requests.Stopped():
		return s.gaveUp(wait)
	case <-s.ctx.Done():
		return s.gaveUp(wait)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved++
	return true
}

// gaveUp cancels the wait for an answer's bytes.
func (s *stream) gaveUp(wait *budget.Waiter) bool {
	if !wait.Cancel() {
		s.of.cfg.Budget.Give(s.holder, budget.Replies, replyBytes)
	}
	return false
}

// create starts a watch, or refuses it with a response on the stream, as etcd does.
func (s *stream) create(r *etcdserverpb.WatchCreateRequest) {
	rng, empty, err := watchedRange(r)
	if err != nil {
		s.refuse(err.Error())
		return
	}
	// etcd's API has no error for an exceeded rate: the stream waits.
	if err := s.caller.WaitCreate(s.ctx); err != nil {
		s.give()
		return
	}
	if !empty {
		if err := s.caller.May(s.ctx, policy.Watch, rng); err != nil {
			s.refuse(etcdview.InEtcdsWords(err).Error())
			return
		}
	}
	caller, err := s.of.view.Permit(s.ctx, rng, empty)
	switch {
	case err != nil && etcdview.IsAway(err):
		s.give()
		s.fail(wire.Status(err))
		return
	case err != nil:
		s.refuse(err.Error())
		return
	case empty:
		s.refuse(reasonEmptyRange)
		return
	}
	w := newWatch(s, r, rng, caller)
	if err := authz.OpenWatch(s.of.cfg.Budget, s.holder, s.caller, rng); err != nil {
		s.refuse(err.Error())
		return
	}
	answer, refused := s.enter(w, r.GetWatchId())
	if answer == nil {
		authz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, rng)
		s.refuse(refused)
		return
	}
	w.recheck() // the right may be lost since Permit, before s.watches had the watch
	// When a node dies, all its clients connect to others at once. etcd's API has no
	// retry delay, so the stream queues for one watch at a time. Its unread requests
	// stay at the client.
	let := make(chan struct{})
	w.openInTurn(&opening{answer: answer, until: time.Now().Add(s.of.cfg.HomeTimeout)}, func() { close(let) })
	select {
	case <-let:
	case <-s.requests.Stopped():
	case <-s.ctx.Done():
	}
}

// watchedRange returns the range of a request, or etcd's reason to refuse the request.
// empty: the range contains no key.
func watchedRange(r *etcdserverpb.WatchCreateRequest) (rng kv.Range, empty bool, err error) {
	key, end := r.GetKey(), r.GetRangeEnd()
	if len(key) == 0 {
		key = []byte{0} // the smallest key
	}
	if r.GetStartRevision() < 0 {
		return rng, false, rpctypes.ErrCompacted
	}
	if err := cmp.Or(authz.CheckWatchKey("key", key), authz.CheckWatchKey("range_end", end)); err != nil {
		return rng, false, err //nolint:wrapcheck // it is the client's answer
	}
	rng, err = kv.RangeFromEtcd(key, end)
	return rng, err != nil, nil // a range that RangeFromEtcd refuses contains no key
}

// enter registers a watch under the client's ID, or under a new ID if that is 0. It
// returns the answer to fill in, or the reason why the watch is refused.
func (s *stream) enter(w *watch, id int64) (answer *reply, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.watches) >= s.of.cfg.MaxWatchesPerStream:
		return nil, errTooManyWatches(s.of.cfg.MaxWatchesPerStream).Error()
	case id == 0:
		for s.watches[s.nextID] != nil {
			s.nextID++
		}
		w.id = s.nextID
		s.nextID++
	case s.watches[id] != nil:
		return nil, reasonDuplicateID
	}
	s.watches[w.id] = w
	if len(s.watches) > 1 {
		s.several.Store(true)
	}
	answer = &reply{created: w}
	s.replies = append(s.replies, answer)
	return answer, ""
}

// refuse answers that a watch is not created. The caller has a slot.
func (s *stream) refuse(reason string) {
	m := &etcdserverpb.WatchResponse{
		Header: s.of.view.Header(s.of.view.Newest()), WatchId: invalidID, Created: true, Canceled: true, CancelReason: reason,
	}
	s.mu.Lock()
	s.replies = append(s.replies, &reply{m: m, ready: true})
	s.mu.Unlock()
	s.answers.Wake()
}

// cancelWatch ends a watch at the client's request. As at etcd, the answer needs
// only this node. It is queued in the same critical section that removes the watch:
// see progress.answer.
func (s *stream) cancelWatch(id int64) {
	m := &etcdserverpb.WatchResponse{Header: s.of.view.Header(s.of.view.Newest()), WatchId: id, Canceled: true}
	s.mu.Lock()
	w := s.watches[id]
	if w == nil { // the watch has already ended
		s.mu.Unlock()
		s.give()
		return
	}
	delete(s.watches, id)
	w.cancelled.Store(true)
	s.left.Add(1)
	s.replies = append(s.replies, &reply{m: m, ready: true, gone: w})
	s.cancels++
	s.mu.Unlock()
	authz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)
	s.answers.Wake()
}

// ready sets m as the answer r.
func (s *stream) ready(r *reply, m *etcdserverpb.WatchResponse) {
	s.mu.Lock()
	r.m, r.ready = m, true
	s.mu.Unlock()
	s.answers.Wake()
}

// give releases a slot.
func (s *stream) give() {
	<-s.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved > 0 {
		s.reserved--
		s.of.cfg.Budget.Give(s.holder, budget.Replies, replyBytes)
	}
}

// answer sends the answers that are ready. Called by the stream's pump.
func (s *stream) answer(*pump.Scratch) (again bool) {
	for {
		s.mu.Lock()
		if len(s.replies) == 0 || !s.replies[0].ready {
			s.mu.Unlock()
			return false
		}
		r := s.replies[0]
		s.replies[0] = nil
		s.replies = s.replies[1:]
		if r.gone != nil {
			s.cancels--
		}
		s.mu.Unlock()
		s.give()
		if r.gone != nil {
			r.gone.release() // before its answer, after which nothing may follow
		}
		if !s.send(r.m) {
			return false
		}
		if w := r.created; w != nil {
			w.live = true
			w.task.Start()
		}
	}
}

// send sends a message. It reports whether the stream still works. Called by the
// stream's pump.
func (s *stream) send(m any) bool {
	return !s.failed && s.check(s.tasks.Send(m))
}

// noteSent records the revision of sent events or of a notification, and its lineage.
func (s *stream) noteSent(lineage uint64, revision kv.Revision) {
	if s.turnTo(lineage); lineage == s.lineage {
		s.sent = max(s.sent, revision)
	}
}

// turnTo switches to a newer lineage, and resets sent: the revisions of the new lineage may be lower.
func (s *stream) turnTo(lineage uint64) {
	if lineage > s.lineage {
		s.lineage, s.sent = lineage, 0
	}
}

// check records the result of a send, and reports whether the stream still works.
func (s *stream) check(err error) bool {
	s.failed = err != nil // the handler gets the error from Recv
	return !s.failed
}

func (s *stream) lookup(id int64) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[id]
}

// drop removes a watch; false if it is already removed, because the client has
// cancelled it.
func (s *stream) drop(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w.id] != w {
		return false
	}
	delete(s.watches, w.id)
	authz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)
	return true
}

// list returns the stream's watches.
func (s *stream) list() []*watch {
	watches, _ := s.state()
	return watches
}

// state returns the stream's watches, and whether all cancels are answered: then
// these are exactly the watches that the client regards as open.
func (s *stream) state() (watches []*watch, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	watches = make([]*watch, 0, len(s.watches))
	for _, w := range s.watches {
		watches = append(watches, w)
	}
	return watches, s.cancels == 0
}

// close ends all watches and waits until no pump serves the stream: the gRPC
// handler must not return earlier.
func (s *stream) close() {
	defer close(s.gone)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.progress.stop()
	s.working.Wait()
	s.tasks.Close()
	for _, w := range s.list() {
		w.release()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		authz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)
	}
	clear(s.watches)
	s.of.cfg.Budget.Give(s.holder, budget.Replies, s.reserved*replyBytes)
	s.reserved = 0
	for _, r := range s.replies { // release the watches whose cancel is not answered yet
		if r.gone != nil {
			r.gone.release()
		}
	}
}
