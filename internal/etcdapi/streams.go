package etcdapi

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/auth/access"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/edge/farewell"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// What streams end with, in etcd's words: every client of etcd resumes
// elsewhere then.
var (
	errStopped  = rpctypes.ErrGRPCStopped
	errNoLeader = rpctypes.ErrGRPCNoLeader
)

func errTooManyWatches(limit int) error {
	return &kv.LimitError{Limit: "--max-watches-per-stream", Max: int64(limit), Detail: "too many watches on one stream: open another one"}
}

// enter counts a stream in; false when the node drains.
func (d *Door) enter(s *stream) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false
	}
	d.streams[s] = struct{}{}
	return true
}

func (d *Door) leave(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}

func (d *Door) list() []*stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*stream, 0, len(d.streams))
	for s := range d.streams {
		out = append(out, s)
	}
	return out
}

// Watches returns the number of watches that are open.
func (d *Door) Watches() int {
	n := 0
	for _, s := range d.list() {
		n += s.count()
	}
	return n
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *stream) isOpen() bool {
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

// Drain refuses new watch streams from now on.
func (d *Door) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
}

// Farewells returns the watch streams that are open.
func (d *Door) Farewells() []farewell.Farewell {
	var out []farewell.Farewell
	for _, s := range d.list() {
		out = append(out, farewell.Farewell{Client: s.from, Watches: s.count(), End: func() { s.fail(errStopped) }, Open: s.isOpen})
	}
	return out
}

// Run ends the watches of users that lose the right to read their range,
// until ctx ends. (etcd itself asks once, when a watch is created.)
func (d *Door) Run(ctx context.Context) error {
	defer d.past.run(ctx)
	for {
		var changed <-chan struct{} // never, without a guard
		if d.cfg.Guard != nil {
			changed = d.cfg.Guard.Changed()
		}
		policyChanged := d.cfg.Access.Changed()
		for _, s := range d.list() {
			s.recheck()
		}
		select {
		case <-changed:
		case <-policyChanged:
		case <-ctx.Done():
			return nil
		}
	}
}

// recheck ends the watches whose callers may not read their ranges any more.
func (s *stream) recheck() {
	for _, w := range s.list() {
		w.recheck()
	}
}

// recheck ends the watch if its caller may not read its range any more.
func (w *watch) recheck() {
	d := w.s.door
	var err error
	if !w.s.caller.Allows(policy.Watch, w.rng) {
		err = inEtcdsWords(w.s.caller.May(w.s.ctx, policy.Watch, w.rng))
	} else if d.cfg.Guard != nil {
		err = d.cfg.Guard.MayRead(w.caller, w.rng)
	}
	if err != nil && !isAway(err) {
		w.end(&etcdserverpb.WatchResponse{
			Header: d.header(d.newest()), WatchId: w.id, Canceled: true, CancelReason: err.Error(),
		})
	}
}

// permit returns the caller, or why it may not read the range. An empty range
// shows nothing: for that one it is enough to be known.
func (d *Door) permit(ctx context.Context, rng kv.Range, empty bool) (caller string, err error) {
	if d.cfg.Guard == nil {
		return "", nil
	}
	if caller, err = d.cfg.Guard.Caller(d.cfg.Access.Forward(ctx)); err == nil && !empty {
		err = d.cfg.Guard.MayRead(caller, rng)
	}
	if wire.IsDenied(err) {
		d.cfg.Audit.Refused(ctx, caller, &kv.DeniedError{Detail: fmt.Sprintf("etcd's rights do not let %s read %v", caller, rng)})
	}
	return caller, err
}

// caller returns the caller of ctx, by the policy.
func (d *Door) caller(ctx context.Context) (*access.Caller, error) {
	c, err := d.cfg.Access.Caller(ctx)
	return c, wire.Status(err)
}

// isAway reports whether err says to ask another node.
func isAway(err error) bool {
	var away *kv.UnavailableError
	return errors.As(err, &away) || wire.IsUnavailable(err)
}

// now returns etcd's revision, read after the call.
func (d *Door) now(ctx context.Context) (kv.Revision, error) {
	now, err := d.cfg.Router.Now(ctx)
	if err == nil {
		d.saw(now)
	}
	return now, err
}

// verify is Upstream.Verify.
func (d *Door) verify(ctx context.Context, revision kv.Revision) (kv.Revision, error) {
	now, err := d.cfg.Etcd.Verify(ctx, revision)
	if err == nil {
		d.saw(now)
	}
	return now, err
}

// saw notes that etcd is at least at a revision.
func (d *Door) saw(revision kv.Revision) {
	for {
		old := d.seen.Load()
		if int64(revision) <= old || d.seen.CompareAndSwap(old, int64(revision)) {
			return
		}
	}
}

// newest returns the newest revision this node knows of, for headers: as an
// etcd member's, it may be behind.
func (d *Door) newest() kv.Revision {
	lineage := d.cfg.Router.History().Lineage
	if was := d.seenIn.Swap(lineage); was != 0 && was != lineage {
		d.seen.Store(0) // that was of another history
	}
	return max(kv.Revision(d.seen.Load()), d.cfg.Router.Newest())
}
