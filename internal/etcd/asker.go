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
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/etcd/etcddemand"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// errSilent reports that no response came on a stream while a consumer waited for progress.
var errSilent = errors.New("the watch is silent")

// createPatience bounds the time that a healthy member of several has to announce a
// watch.
const createPatience = 3 * time.Second

// asker is the sending half of a watch stream. It sends the requests, asks etcd for
// progress when a consumer waits for it, and ends the stream when etcd is silent. One
// goroutine runs it; another receives.
type asker struct {
	c      *Client
	stream *watchStream
	began  time.Time
	remote net.Addr      // the member that serves the stream; nil: not known
	from   kv.Revision   // the first revision of the stream's watch; 0: the watch begins at the present
	limit  time.Duration // see Config.SilenceLimit
	out    *outbox

	announced chan kv.Revision // etcd's revision when the first watch was created, once
	joined    chan kv.Revision // etcd's revision when the same watch was created on the shared stream
	progress  atomic.Int64     // the revision up to which the stream's watches are complete
	reception etcddemand.Reception

	// stuck, if set, is called when a consumer has waited since that time without an
	// answer of etcd: see mux.shed.
	stuck func(since time.Time)

	mu     sync.Mutex
	demand etcddemand.Demand // guarded by mu

	// Owned by run.
	created    bool
	hung       <-chan struct{}
	notYetHung <-chan time.Time // when to check again whether the member hangs
}

// newAsker returns the asker of a stream. It sends the requests in out.
func (c *Client) newAsker(stream *watchStream, out *outbox) *asker {
	cfg := &c.cfg
	a := &asker{
		c: c, stream: stream, began: time.Now(), limit: cfg.SilenceLimit, out: out,
		announced: make(chan kv.Revision, 1), joined: make(chan kv.Revision, 1),
	}
	if at, ok := peer.FromContext(stream.Context()); ok {
		a.remote = at.Addr
	}
	a.demand = etcddemand.New(cfg.ProgressCoalesce, cfg.ProgressEvery, cfg.ProgressIdle, a.began)
	a.reception.Ready(0)
	return a
}

// receive returns the next response of the stream.
func (a *asker) receive() (*watchResponse, error) {
	a.reception.Ready(time.Since(a.began))
	r, err := a.stream.receive()
	if err != nil {
		return nil, etcdconn.Broken("receive", err)
	}
	a.reception.Got(r.revision, len(r.events) > 0)
	return r, nil
}

// errSend reports that a request could not be sent. The receiver gets the cause
// (grpc.ClientStream.SendMsg).
var errSend = errors.New("the stream does not accept requests")

// run asks for progress until ctx ends. When etcd is silent it calls cancel. It never
// asks before the first watch is announced; see assembly.
func (a *asker) run(ctx context.Context, cancel context.CancelCauseFunc) {
	a.hung = a.c.Hung(a.remote)
	timer := time.NewTimer(a.limit)
	defer timer.Stop()
	for {
		wait, err := a.step(ctx, time.Now())
		if err != nil {
			if !errors.Is(err, errSend) {
				cancel(err)
			}
			return
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.out.wake:
		case <-a.hung:
			if err := a.leaveHung(time.Now()); err != nil {
				cancel(err)
				return
			}
		case <-a.notYetHung:
			a.hung, a.notYetHung = a.c.Hung(a.remote), nil
		case revision := <-a.announced:
			a.created = true
			// If the watch has to catch up, the answer proves that nothing of it was
			// compacted.
			a.begin(revision, revision >= a.from)
		case revision := <-a.joined:
			a.begin(revision, true) // the watch can move after the answer
		}
	}
}

// begin starts the time to the next question. With atOnce, the question for revision is due now.
func (a *asker) begin(revision kv.Revision, atOnce bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.demand.Begin(now)
	if atOnce {
		a.demand.Add(revision, a.done(), now)
		a.demand.AtOnce()
	}
}

// ask notes that a consumer waits for revision. It does not block, and may be called from any
// goroutine. Many consumers that wait for the same revision wake the asker once.
func (a *asker) ask(revision kv.Revision) {
	a.mu.Lock()
	added := a.demand.Add(revision, a.done(), time.Now())
	a.mu.Unlock()
	if added {
		wake(a.out.wake)
	}
}

// question reports whether to ask etcd for progress now, when the next question is due, and
// since when a consumer has waited, if one does.
func (a *asker) question(progress kv.Revision, now time.Time) (ask bool, due, since time.Time, unmet bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ask = a.created && !now.Before(a.demand.Due(progress)); ask {
		a.demand.Sent(now)
	}
	return ask, a.demand.Due(progress), a.demand.Since(), a.demand.Unmet(progress)
}

// waitAgain notes that etcd owed no answer until now.
func (a *asker) waitAgain(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.demand.WaitAgain(now)
}

func (a *asker) done() kv.Revision { return kv.Revision(a.progress.Load()) }

// step sends the due requests and returns the time to wait for the next step.
func (a *asker) step(ctx context.Context, now time.Time) (time.Duration, error) {
	if err := a.send(a.out.take()...); err != nil {
		return 0, err
	}
	progress, limit := a.done(), a.patience()
	ask, due, since, unmet := a.question(progress, now)
	if ask {
		if err := a.askProgress(); err != nil {
			return 0, err
		}
		a.c.count.progressAsked.Add(1)
	}
	wait := limit
	if a.created {
		wait = due.Sub(now)
	}
	if a.created && !unmet {
		return wait, nil
	}
	if a.stuck != nil && a.created {
		a.stuck(since)
	}
	quiet := a.reception.Quiet(now.Sub(a.began), since.Sub(a.began))
	if quiet >= limit {
		if a.created && a.ahead(ctx) {
			a.waitAgain(now) // etcd has not reached the first revision, so it owes no answer
			return 0, nil
		}
		return 0, fmt.Errorf("%w: no response for %v", errSilent, quiet.Round(time.Millisecond))
	}
	return min(wait, limit-quiet, a.inquire(quiet)), nil
}

// encodedProgressRequest is progressRequest in its wire form. Encoding it for each write takes longer.
func encodedProgressRequest() mem.SliceBuffer { return mem.SliceBuffer{0x1a, 0x00} }

// askProgress sends a progress request.
func (a *asker) askProgress() error {
	if a.stream.SendMsg(&wire.Encoded{Buffers: mem.BufferSlice{encodedProgressRequest()}}) != nil {
		return errSend
	}
	return nil
}

func (a *asker) send(requests ...*etcdserverpb.WatchRequest) error {
	for _, r := range requests {
		if a.stream.Send(r) != nil {
			return errSend
		}
	}
	return nil
}

// patience returns how long etcd may be silent.
func (a *asker) patience() time.Duration {
	if !a.created && a.c.Members() > 1 {
		return min(a.limit, createPatience)
	}
	return a.limit
}

// inquire starts an inquiry when a member of several has been quiet for long, and returns
// the time to the next check.
func (a *asker) inquire(quiet time.Duration) time.Duration {
	slow := a.c.SlowAfter()
	switch {
	case a.c.Members() == 1:
		return a.limit
	case quiet < slow:
		return slow - quiet
	}
	a.c.Inquire()
	return slow
}

// leaveHung fails when the member, which an inquiry found to hang, has sent nothing
// lately, or nothing new while a consumer waits. A member whose disk stalls answers
// each progress request with the revision at which the stall began.
func (a *asker) leaveHung(now time.Time) error {
	at, enough := now.Sub(a.began), a.c.SlowAfter()/2
	waits := a.reception.Waits(at)
	a.mu.Lock()
	unmet, since := a.demand.Unmet(a.done()), a.demand.Since()
	a.mu.Unlock()
	if !a.created || waits >= enough || unmet && a.reception.Stale(at, since.Sub(a.began)) >= enough {
		return fmt.Errorf("%w: %v does not answer", errSilent, a.remote)
	}
	a.hung, a.notYetHung = nil, time.After(enough-waits)
	return nil
}

// ahead reports whether the watch begins beyond etcd's current revision. It returns
// false when that revision cannot be read.
func (a *asker) ahead(ctx context.Context) bool {
	revision, err := a.c.Revision(ctx)
	return err == nil && revision < a.from
}

// outbox holds the requests of a stream that its asker has not sent yet.
type outbox struct {
	wake chan struct{} // signals new requests

	mu   sync.Mutex
	list []*etcdserverpb.WatchRequest // guarded by mu
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) put(r *etcdserverpb.WatchRequest) {
	o.mu.Lock()
	o.list = append(o.list, r)
	o.mu.Unlock()
	wake(o.wake)
}

func (o *outbox) take() []*etcdserverpb.WatchRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.list
	o.list = nil
	return list
}

func progressRequest() *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: &etcdserverpb.WatchProgressRequest{},
	}}
}

func createRequest(r *etcdserverpb.WatchCreateRequest) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}}
}

func cancelRequest(id int64) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
		CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id},
	}}
}
