package native

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/receive"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// stream is one client's Watch stream.
type stream struct {
	// The fields that each delivery reads are adjacent.
	api     *API
	tasks   *pump.Stream
	failed  bool        // owned by the pump; a send has failed
	several atomic.Bool // the stream has had several watches at a time; set under mu
	crowd   crowd

	requests *receive.Requests[shardwatchv1.WatchRequest]
	cancel   context.CancelFunc // of ctx
	from     net.Addr           // the client's address: the same value for all streams of its connection
	guard    callers.EtcdAuth   // checks the watches; nil: all are permitted
	caller   *authz.Caller      // by the policy
	holder   budget.Client      // the client whose budget the stream uses; none: another node
	ctx      context.Context    //nolint:containedctx // the stream's life is the context's

	mu         sync.Mutex
	watches    map[int64]*watch // guarded by mu
	refused    int              // guarded by mu; watches over the limit whose end is not sent yet
	halfClosed bool             // guarded by mu; the client sends no more requests
	opening    sync.WaitGroup   // goroutines that open watches
	closing    bool             // guarded by mu; no goroutine may start

	progress progress
}

// turns returns the client's name in fair queues: the owner of the stream's budget, or the address
// of the other node.
func (s *stream) turns() string {
	switch {
	case s.holder.Name != "":
		return s.holder.Name
	case s.from != nil:
		return s.from.String()
	}
	return ""
}

// Watch implements shardwatchv1.CacheServiceServer.
func (s *service) Watch(gs grpc.BidiStreamingServer[shardwatchv1.WatchRequest, shardwatchv1.WatchResponse]) error {
	caller, err := s.caller(gs.Context())
	if err == nil {
		err = s.api.cfg.Router.AwaitMap(gs.Context())
	}
	if err != nil {
		return wire.Status(err)
	}
	ctx, cancel := context.WithCancel(gs.Context())
	st := &stream{api: s.api, requests: receive.New(gs), cancel: cancel, from: callers.Address(ctx), guard: s.guard(), caller: caller, ctx: ctx, watches: make(map[int64]*watch)}
	if !s.local {
		st.holder = authz.Holder(ctx, caller)
	}
	st.tasks = s.pumps.Open(ctx, st.turns(), gs)
	if !s.api.enter(st) {
		st.requests.Stop(kv.ShuttingDown())
		cancel()
		st.tasks.Close()
		return wire.Status(kv.ShuttingDown())
	}
	st.progress.start(st, s.api.cfg.ProgressInterval)
	st.crowd.start(st)
	return st.requests.Serve(st)
}

// HalfClosed implements receive.Handler. The stream of a client that sends no more requests ends
// with its last watch.
func (s *stream) HalfClosed() {
	s.mu.Lock()
	s.halfClosed = true
	over := len(s.watches) == 0
	s.mu.Unlock()
	if over {
		s.requests.Stop(nil)
	}
}

// End implements receive.Handler.
func (s *stream) End(reason error) error {
	s.api.leave(s)
	s.cancel()
	s.close()
	return wire.Status(reason)
}

// Handle implements receive.Handler: it executes a request of the client.
func (s *stream) Handle(m *shardwatchv1.WatchRequest) error {
	switch r := m.GetRequest().(type) {
	case *shardwatchv1.WatchRequest_Create:
		return s.create(r.Create)
	case *shardwatchv1.WatchRequest_Cancel:
		s.mu.Lock()
		w := s.watches[r.Cancel.GetWatchId()]
		s.mu.Unlock()
		if w == nil {
			return nil // it has already ended
		}
		w.end(&shardwatchv1.Ended{Reason: shardwatchv1.EndReason_END_REASON_CANCELED, Message: "canceled by the client"})
		return nil
	case *shardwatchv1.WatchRequest_Progress:
		s.progress.request()
		return nil
	case *shardwatchv1.WatchRequest_Options:
		if d := r.Options.GetProgressInterval(); d != nil {
			if !d.IsValid() || d.AsDuration() < MinProgressInterval || d.AsDuration() > MaxProgressInterval {
				return &kv.InvalidError{Field: "options.progress_interval", Reason: fmt.Sprintf("must lie between %v and %v", MinProgressInterval, MaxProgressInterval)}
			}
			s.progress.setInterval(d.AsDuration())
		}
		if r.Options.AllowWatchIds != nil {
			s.crowd.on.Store(r.Options.GetAllowWatchIds())
		}
		if r.Options.ProgressTokens != nil {
			s.progress.tokens.Store(r.Options.GetProgressTokens())
		}
		return nil
	}
	return &kv.InvalidError{Field: "request", Reason: "none is set, or one that this node does not know"}
}

// maxRefused bounds the watches over the limit whose end the client has not
// read yet; one more ends the stream.
const maxRefused = 1000

// create starts a watch. An error ends the watch, not the stream, except for an invalid ID,
// because no answer could refer to it.
func (s *stream) create(r *shardwatchv1.CreateWatch) error {
	id := r.GetWatchId()
	if id <= 0 {
		return &kv.InvalidError{Field: "create.watch_id", Reason: fmt.Sprintf("%d: must be greater than 0", id)}
	}
	var rng kv.Range // empty if a key is too long, so that it is not kept
	wrong := cmp.Or(authz.CheckWatchKey("key", r.GetKey()), authz.CheckWatchKey("range_end", r.GetRangeEnd()))
	if wrong == nil {
		rng, wrong = wire.Range(r.GetKey(), r.GetRangeEnd())
	}
	s.mu.Lock()
	if s.watches[id] != nil {
		s.mu.Unlock()
		return &kv.InvalidError{Field: "create.watch_id", Reason: fmt.Sprintf("%d is in use on this stream", id)}
	}
	w := newWatch(s, id, rng, r.GetPrevKv())
	var full error
	if len(s.watches) >= s.api.cfg.MaxWatchesPerStream {
		full = s.api.tooMany()
	} else {
		full = authz.OpenWatch(s.api.cfg.Budget, s.holder, s.caller, rng)
	}
	if full != nil {
		s.refused++
		w.rng = kv.Range{} // frees its keys: the watch stays until the client reads the answer
	} else {
		s.watches[id] = w
		s.several.CompareAndSwap(false, len(s.watches) > 1)
	}
	deaf := s.refused > maxRefused
	s.mu.Unlock()
	if err := full; err != nil {
		if deaf {
			return err
		}
		w.refused = true
		w.refuse(err)
		return nil
	}
	select {
	case <-s.api.cfg.Stopping: // checked after s.watches has it, so that Drain cannot miss it
		w.refuse(kv.ShuttingDown())
		return nil
	default:
	}
	if wrong != nil {
		w.refuse(wrong)
		return nil
	}
	w.allowSync = r.GetAllowSync()
	var start start
	err := s.caller.Create()
	if err == nil { // s.watches has the watch already, so that enforce sees every later change
		err = s.caller.May(s.ctx, policy.Watch, rng)
	}
	if err == nil {
		start, err = s.startOf(r, rng)
	}
	if err == nil {
		w.interval, err = conflation(r)
	}
	if err == nil {
		w.maxStaleness, err = watchStaleness(r.GetMaxStaleness())
	}
	if err != nil {
		w.refuse(err)
		return nil
	}
	if start.fetch || !s.api.cfg.Router.Here(rng) || !callers.Open(s.guard, rng) {
		// Opening waits for etcd or other nodes, and must not delay the stream's
		// other requests.
		if err := s.api.openInTurn(queuedOpen{w, start}); err != nil {
			w.refuse(err)
		}
		return nil
	}
	w.open(s.ctx, start)
	return nil
}

// start is the start position of a watch.
type start struct {
	from    kv.Revision // if neither fetch nor state is set
	fetch   bool        // start at etcd's current revision, or with the state at it
	state   bool
	in      history // the history of from; lineage 0: any of that cluster
	foreign error   // a *kv.LineageError if in is not the cluster's current history
}

// history is a kv.HistoryID in the form of tokens.
type history struct{ cluster, lineage uint64 }

func historyOf(h kv.HistoryID) history {
	return history{cluster: wire.ClusterKey(h.Cluster), lineage: h.Lineage}
}

// judge returns a *kv.LineageError if a position in h is not valid in here. what names
// the position.
func (h history) judge(here history, what string) error {
	switch {
	case h.cluster != here.cluster:
		return &kv.LineageError{Requested: h.lineage, Current: here.lineage, Foreign: what}
	case h.lineage != 0 && h.lineage != here.lineage:
		return &kv.LineageError{Requested: h.lineage, Current: here.lineage}
	}
	return nil
}

// claimed returns the history that a request names for its revision, with this node's cluster ID
// if it names none.
func claimed(clusterID string, lineage uint64, here history) history {
	if clusterID == "" {
		return history{cluster: here.cluster, lineage: lineage}
	}
	return history{cluster: wire.ClusterKey(clusterID), lineage: lineage}
}

func (s *stream) startOf(r *shardwatchv1.CreateWatch, rng kv.Range) (start, error) {
	var out start
	here := historyOf(s.api.cfg.Router.History())
	out.in.cluster = here.cluster
	what := "start revision"
	switch at := r.GetStart().(type) {
	case nil:
		out.fetch = true
	case *shardwatchv1.CreateWatch_StartRevision:
		if at.StartRevision <= 0 {
			return start{}, &kv.InvalidError{Field: "start_revision", Reason: fmt.Sprintf("%d: must be greater than 0; leave it out to start now", at.StartRevision)}
		}
		out.from, out.in = kv.Revision(at.StartRevision), claimed(r.GetClusterId(), r.GetLineage(), here)
	case *shardwatchv1.CreateWatch_ResumeToken:
		p, err := wire.ParseResumeToken(at.ResumeToken, rng)
		if err != nil {
			return start{}, err
		}
		out.from, out.in, what = p.Revision+1, history{p.Cluster, p.Lineage}, "resume token"
	case *shardwatchv1.CreateWatch_StateFirst:
		out.fetch, out.state = true, at.StateFirst
	}
	if out.foreign = out.in.judge(here, what); out.foreign != nil && !r.GetAllowSync() {
		return start{}, out.foreign
	}
	return out, nil
}

// spawn runs f in a goroutine that the stream waits for when it closes. It reports
// false if the stream has ended: then f does not run.
func (s *stream) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.ctx.Err() != nil {
		return false
	}
	s.opening.Go(f)
	return true
}

// forget removes an ended watch, and ends a half-closed stream with its last watch.
func (s *stream) forget(w *watch) {
	if s.forgotten(w) {
		s.requests.Stop(nil)
	}
}

// forgotten removes an ended watch. It reports whether the stream must end.
func (s *stream) forgotten(w *watch) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.refused {
		s.refused--
	}
	if s.watches[w.id] != w {
		return false
	}
	delete(s.watches, w.id)
	authz.CloseWatch(s.api.cfg.Budget, s.holder, s.caller, w.rng)
	return len(s.watches) == 0 && s.halfClosed
}

// count returns the number of the stream's watches.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

// has reports whether a watch is open.
func (s *stream) has(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[w.id] == w
}

// list returns the stream's watches.
func (s *stream) list() []*watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*watch, 0, len(s.watches))
	for _, w := range s.watches {
		out = append(out, w)
	}
	return out
}

// close ends all watches and waits until no pump serves the stream: the gRPC
// handler must not return earlier. A blocked send ends when the client reads, or
// with the client's connection.
func (s *stream) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.progress.stop()
	s.tasks.Close()
	s.opening.Wait() // last, because no watch opens any more
	for _, w := range s.list() {
		w.release()
	}
	s.mu.Lock()
	for _, w := range s.watches {
		authz.CloseWatch(s.api.cfg.Budget, s.holder, s.caller, w.rng)
	}
	clear(s.watches) // no caller waits for them
	s.mu.Unlock()
}

// send sends a message. It reports whether the stream still works. Called by the
// stream's pump.
func (s *stream) send(m any) bool {
	return !s.failed && s.check(s.tasks.Send(m))
}

// sendTo sends a shared message to a recipient, like send.
func (s *stream) sendTo(to wire.Recipient, m *wire.Shared) bool {
	return !s.failed && s.check(s.tasks.SendTo(to, m))
}

// sendShared sends a shared message to each of several watches, like send.
func (s *stream) sendShared(m *wire.Shared, ids []int64) bool {
	return !s.failed && s.check(s.tasks.SendShared(m, ids...))
}

// check records the result of a send, and reports whether the stream still works.
func (s *stream) check(err error) bool {
	s.failed = err != nil // the handler gets the error from Recv
	return !s.failed
}
