package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// errSilent says that a watch brought nothing though somebody waited.
var errSilent = errors.New("the watch is silent")

// watch is one watch on a stream of its own. The goroutine that pulls receives;
// another one asks for progress.
type watch struct {
	c *Client
	// lineage is whose history is watched, adopted what the client called it when
	// the watch began.
	lineage, adopted uint64

	from   kv.Revision
	limit  time.Duration // see Config.SilenceLimit
	stream *watchStream
	began  time.Time

	announced chan kv.Revision // etcd's revision when the watch was created, once
	remote    net.Addr         // the member that has the stream; nil: not known
	progress  atomic.Int64     // the assembly's done, for the asker
	// receiving is when the current wait for a response began, as the time
	// since began; 0 while the consumer is busy with the last one.
	receiving atomic.Int64
}

// createPatience is how long one member of several that does not hang has to announce a
// watch.
const createPatience = 3 * time.Second

// fragmentPatience is by how much longer a watch in fragments may be silent:
// etcd takes its time to cut many small events; see position.
const fragmentPatience = 12

// watchFrom watches from p on until the stream ends, and returns why. p moves
// with what it emits. It emits begin and ready, unless that was done, as soon
// as it is known that etcd has all there is from p on.
func (c *Client) watchFrom(ctx context.Context, req kv.FollowRequest, p *position, emit func(kv.Update) bool) error {
	adopted, _ := c.Known()
	token, err := c.login.token(ctx)
	if err != nil {
		return c.broken("log in", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var asker sync.WaitGroup
	defer asker.Wait()
	defer cancel(nil)

	key, end := req.Range.Etcd()
	stream, err := c.openWatch(withLeader(withToken(ctx, token)))
	if err != nil {
		return c.broken("open the stream", err)
	}
	c.count.watches.Add(1)
	c.count.watchesOpen.Add(1)
	defer c.count.watchesOpen.Add(-1)
	w := &watch{c: c, lineage: req.Lineage, adopted: adopted, from: p.from, stream: stream, began: time.Now(), announced: make(chan kv.Revision, 1), limit: c.cfg.SilenceLimit}
	if at, ok := peer.FromContext(stream.Context()); ok {
		w.remote = at.Addr
	}
	if p.fragment {
		w.limit *= fragmentPatience
	}
	w.progress.Store(int64(p.from - 1))
	w.receiving.Store(1)
	asker.Go(func() { w.ask(ctx, cancel, req.Want) })
	// When this fails, receiving says why (grpc.ClientStream.SendMsg).
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key: key, RangeEnd: end, StartRevision: int64(p.from),
			ProgressNotify: true, Fragment: p.fragment,
		},
	}})
	err = w.receive(p, emit)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errEnough) {
		err = cause
	}
	switch {
	case errors.Is(err, errToken):
		c.login.forget(token)
	case errors.Is(err, errSilent):
		c.count.silenced.Add(1)
	}
	return err
}

// broken sorts the error of a call that has no answer.
func (c *Client) broken(deed string, err error) error {
	if isUnavailable(err) || errors.Is(err, errAttempt) {
		return unavailable(deed, err)
	}
	if isToken(err) {
		return fmt.Errorf("%s: %w: %w", deed, errToken, err)
	}
	if wire.IsExhausted(err) {
		return fmt.Errorf("%s: %w: %w", deed, errTooLarge, err)
	}
	return fmt.Errorf("%s: %w", deed, err)
}

// receive hands on what the stream brings until it ends.
func (w *watch) receive(p *position, emit func(kv.Update) bool) error {
	a := newAssembly(w.from)
	n := &w.c.count
	for {
		w.receiving.Store(int64(max(1, time.Since(w.began))))
		r, err := w.stream.receive()
		w.receiving.Store(0)
		if err != nil {
			return w.c.broken("receive", err)
		}
		if r.fragment {
			n.fragments.Add(1)
		}
		was := a.announced
		updates, err := a.add(r, time.Now())
		if a.announced && !was {
			// From here on one process of etcd speaks, and of one history.
			if err := w.c.admit(w.stream.Context(), w.lineage); err != nil {
				return err
			}
			w.announced <- r.revision
		}
		if a.announced && !was && w.c.farBehind(p, r.revision) {
			return &farBehindError{revision: r.revision}
		}
		if err != nil {
			var compacted *kv.CompactedError
			if errors.As(err, &compacted) {
				n.compacted.Add(1)
			}
			return err
		}
		if !p.begun && a.begun {
			p.begun = true
			if !emit(kv.Update{Kind: kv.UpdateBegin, Revision: w.from - 1, Floor: w.from}) ||
				!emit(kv.Update{Kind: kv.UpdateReady, Revision: w.from - 1}) {
				return errEnough
			}
		}
		w.progress.Store(int64(a.done))
		if len(updates) > 0 { // else it may be a revision that etcd has not come to
			w.c.Saw(w.adopted, kv.Mark{Revision: a.done})
		}
		n.events.Add(int64(a.events))
		n.eventBytes.Add(int64(a.bytes))
		a.events, a.bytes = 0, 0
		for _, u := range updates {
			if u.Kind == kv.UpdateBatch {
				n.batches.Add(1)
			} else {
				n.progressSeen.Add(1)
			}
			if !emit(u) {
				return errEnough
			}
		}
		if p.from = a.done + 1; p.from > p.until {
			p.caughtUp()
		}
	}
}

// ask asks etcd for progress when somebody waits for it, and ends the watch
// when nothing comes. It never asks before the watch is announced; see
// assembly.
func (w *watch) ask(ctx context.Context, cancel context.CancelCauseFunc, want <-chan kv.Revision) {
	cfg := &w.c.cfg
	d := demand{coalesce: cfg.ProgressCoalesce, every: cfg.ProgressEvery, idle: cfg.ProgressIdle, pause: cfg.ProgressCoalesce, since: w.began}
	announced, several := false, len(w.c.endpoints) > 1
	limit := w.limit
	if several {
		limit = min(limit, createPatience)
	}
	roster := w.c.roster
	hung, again := roster.hung(w.remote), (<-chan time.Time)(nil)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		now, progress := time.Now(), kv.Revision(w.progress.Load())
		wait := limit
		if announced {
			due := d.due(progress)
			if !now.Before(due) {
				if err := w.stream.Send(progressRequest()); err != nil {
					return // the receiver knows why
				}
				w.c.count.progressAsked.Add(1)
				d.sent(now)
				continue
			}
			wait = due.Sub(now)
		}
		if !announced || d.unmet(progress) {
			quiet := w.quiet(now, d.since)
			if quiet >= limit {
				if announced && w.ahead(ctx) {
					d.since = now // etcd has not come to the first revision: it owes no answer
					continue
				}
				cancel(fmt.Errorf("%w: nothing came for %v", errSilent, quiet.Round(time.Millisecond)))
				return
			}
			wait = min(wait, limit-quiet)
			switch {
			case !several:
			case quiet < roster.slow:
				wait = min(wait, roster.slow-quiet)
			default:
				roster.inquire()
				wait = min(wait, roster.slow)
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-hung:
			waits := w.waits(time.Now())
			if !announced || waits >= roster.slow/2 {
				cancel(fmt.Errorf("%w: %v does not answer", errSilent, w.remote))
				return
			}
			hung, again = nil, time.After(roster.slow/2-waits) // it has just sent something
		case <-again:
			hung, again = roster.hung(w.remote), nil
		case revision := <-w.announced:
			announced, limit = true, w.limit
			d.asked = time.Now()
			if revision >= w.from {
				// There is something to catch up with. The answer tells that
				// it was not compacted.
				d.asked = time.Time{}
				d.add(revision, progress, time.Now())
			}
		case revision, ok := <-want:
			if !ok {
				want = nil
				continue
			}
			d.add(revision, kv.Revision(w.progress.Load()), time.Now())
		}
	}
}

// waits returns for how long the consumer has waited for what comes next.
func (w *watch) waits(now time.Time) time.Duration {
	receiving := time.Duration(w.receiving.Load())
	if receiving == 0 {
		return 0
	}
	return now.Sub(w.began) - receiving
}

// quiet returns for how long nothing has come though the consumer was ready
// for it and somebody waited since.
func (w *watch) quiet(now, since time.Time) time.Duration {
	return min(w.waits(now), now.Sub(since))
}

// ahead reports whether the watch begins beyond etcd's current revision. When
// that cannot be learnt it does not.
func (w *watch) ahead(ctx context.Context) bool {
	revision, err := w.c.Revision(ctx)
	return err == nil && revision < w.from
}

func progressRequest() *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: &etcdserverpb.WatchProgressRequest{},
	}}
}
