package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// watch is one watch on a separate stream. The goroutine that pulls receives; the
// asker's goroutine sends.
type watch struct {
	*asker
	req kv.FollowRequest
	// adopted is the client's number of the lineage when the watch began.
	adopted uint64
	now     kv.Revision // etcd's revision when the watch was created
	// place is the watch's place on the shared stream; nil: none yet.
	place *place
}

// errJoined reports that the watch has a place on the shared stream, and everything
// up to its beginning there.
var errJoined = errors.New("the watch continues on the shared stream")

// fragmentPatience is the factor by which a watch in fragments may be silent longer:
// etcd is slow to cut many small events; see position.
const fragmentPatience = 12

// watchFrom watches from p on until the stream ends, and returns the cause; errJoined:
// the watch continues at the returned place. p moves with the emitted updates. It emits
// begin and ready, unless that was done, as soon as etcd is known to have everything
// from p on.
func (c *Client) watchFrom(ctx context.Context, req kv.FollowRequest, p *position, emit func(kv.Update) bool) (*place, error) {
	adopted, _ := c.Known()
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel(nil)

	stream, err := c.openWatch(ctx, c.Watches)
	if err != nil {
		return nil, err
	}
	defer c.count.opened()()
	c.count.watches.Add(1)
	w := &watch{asker: c.newAsker(stream, newOutbox()), req: req, adopted: adopted}
	if w.from = p.from; p.fragment {
		w.limit *= fragmentPatience
	}
	w.progress.Store(int64(p.from - 1))
	key, end := req.Range.Etcd()
	w.out.put(createRequest(&etcdserverpb.WatchCreateRequest{
		Key: key, RangeEnd: end, StartRevision: int64(p.from), ProgressNotify: true, Fragment: p.fragment,
	}))
	defer req.Want.Serve(p.from-1, w.ask)()
	asking.Go(func() { w.run(ctx, cancel) })
	err = w.receiveAll(p, emit)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errEnough) && !errors.Is(err, errJoined) {
		err = cause
	}
	cancel(nil)
	asking.Wait()
	if errors.Is(err, errJoined) {
		return w.place, err
	}
	if w.place != nil {
		w.place.leave()
	}
	switch {
	case errors.Is(err, etcdconn.ErrToken):
		c.Forget(stream.token)
	case errors.Is(err, errSilent):
		c.count.silenced.Add(1)
	}
	return nil, err
}

// receiveAll emits the updates of the stream until it ends, or until the watch can
// continue on the shared stream.
func (w *watch) receiveAll(p *position, emit func(kv.Update) bool) error {
	a := newAssembly(w.from)
	n := &w.c.count
	for {
		r, err := w.receive()
		if err != nil {
			return err
		}
		if r.fragment {
			n.fragments.Add(1)
		}
		was := a.announced
		updates, err := a.add(r, time.Now())
		if a.announced && !was {
			if err := w.created(p, r.revision); err != nil {
				return err
			}
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
		if len(updates) > 0 { // else etcd may not have reached the revision
			w.c.Saw(w.adopted, kv.Mark{Revision: a.done})
		}
		for _, u := range updates {
			n.brought(&u)
			if !emit(u) {
				return errEnough
			}
		}
		if p.from = a.done + 1; p.from > p.until {
			p.caughtUp()
		}
		if w.joins(p, r) {
			return errJoined
		}
	}
}

// created notes that etcd has created the watch when it was at revision.
func (w *watch) created(p *position, revision kv.Revision) error {
	// From here on, all responses come from one process of etcd and one history.
	if err := w.c.Admit(w.stream.Context(), w.req.Lineage); err != nil {
		return err
	}
	w.now = revision
	w.announced <- revision
	if w.c.farBehind(p, revision) {
		return &farBehindError{revision: revision}
	}
	return nil
}

// joins reports whether the watch can continue on the shared stream: it has everything
// up to its beginning there. It takes a place once etcd has reported progress up to the
// revision at which it created the watch: then the watch does not catch up.
func (w *watch) joins(p *position, r *watchResponse) bool {
	if at := w.place.begins(); at > 0 {
		return p.from > at
	}
	answered := len(r.events) == 0 && !r.created && !r.fragment
	if answered && p.release == nil && r.revision >= max(w.now, w.from-1) && w.place.lost() {
		w.place = w.c.join(w.adopted, w.req.Range, w.joined)
	}
	return false
}
