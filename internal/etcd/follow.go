package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Follow yields the range of req from etcd itself. With From 0 it lists the state, or
// with Held the differences from it, all at one revision, then watches from the next
// revision. With HistoryFrom it also yields the events since then, as far back as etcd
// has them, or the newest part of these (Config.MaxHistory). With another From it
// watches from that revision, which may lie in the future. It begins when etcd is known
// to have everything from there on; if not, it fails with a *kv.CompactedError whose
// floor is etcd's compact revision.
//
// It fails with kv.ErrOtherHistory when the data of the follower and of etcd cannot
// belong to one history.
//
// It does not reopen a broken stream: it yields one error, and the caller decides where
// to resume. It ends without an error only when ctx ends or the consumer stops. The
// caller handles the lineage.
//
// Watches that have caught up share one stream. For a consumer that does not pull, up to
// 1 MiB is queued, or one revision if that is larger. Beyond that its watch gets a
// separate stream, where it makes etcd wait through gRPC's flow control.
func (c *Client) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		emit := func(u kv.Update) bool { return yield(u, nil) }
		err := c.follow(ctx, req, emit)
		if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
			yield(kv.Update{}, err)
		}
	}
}

// errEnough reports that the consumer stopped.
var errEnough = errors.New("the consumer stopped the watch")

func (c *Client) follow(ctx context.Context, req kv.FollowRequest, emit func(kv.Update) bool) error {
	if err := c.Follows(req.Lineage); err != nil {
		return err
	}
	p := position{from: req.From}
	if p.from == 0 {
		revision, err := c.begin(ctx, req, emit)
		if err != nil {
			return err
		}
		p = position{from: revision + 1, begun: true}
	} else {
		c.count.resumes.Add(1)
	}
	return c.followFrom(ctx, req, p, emit)
}

// followFrom watches from p on. It opens another watch when it needs a new token, a
// permit or fragments, and uses the shared stream while it has caught up.
func (c *Client) followFrom(ctx context.Context, req kv.FollowRequest, p position, emit func(kv.Update) bool) error {
	defer p.caughtUp()
	_, known := c.Known()
	if err := c.permitCatchUp(ctx, req.Range, &p, known.Revision); err != nil {
		return err
	}
	for login := true; ; {
		from := p.from
		at, err := c.watchFrom(ctx, req, &p, emit)
		if at != nil {
			c.count.joins.Add(1)
			from, login, p.fragment = p.from, true, false
			err = c.ride(ctx, at, &req, &p, emit)
			var why leaving
			if errors.As(err, &why) {
				c.cfg.Logger.Debug("a watch continues on a separate stream", "range", req.Range, "next_revision", p.from, "reason", string(why))
				continue
			}
		}
		if errors.Is(err, etcdconn.ErrToken) && login {
			login = false
			continue // etcd checks the token only at the creation of a watch, so nothing came yet
		}
		var behind *farBehindError
		if errors.As(err, &behind) {
			if err := c.permitCatchUp(ctx, req.Range, &p, behind.revision); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, etcdconn.ErrTooLarge) && !p.fragment {
			p.fragment = true
			c.cfg.Logger.Info("a watch is far behind: fetching the missed events in fragments", "range", req.Range, "next_revision", p.from)
			continue
		}
		return fmt.Errorf("watch %v from %d: %w", req.Range, from, err)
	}
}

// permitCatchUp waits for the permit that a watch from p needs when it is far behind
// now, the known revision of etcd.
func (c *Client) permitCatchUp(ctx context.Context, r kv.Range, p *position, now kv.Revision) error {
	if !c.farBehind(p, now) {
		return nil
	}
	c.count.farBehind.Add(1)
	release, err := c.permits.Acquire(ctx, fmt.Sprintf("catch up with %v from %d to %d", r, p.from, now))
	if err != nil {
		return err
	}
	p.release, p.until = release, now
	return nil
}

// farBehind reports whether a watch from p needs a permit to catch up with revision
// now.
func (c *Client) farBehind(p *position, now kv.Revision) bool {
	return p.release == nil && now-p.from >= kv.Revision(c.cfg.FreeCatchUp)
}

// position is the progress of a Follow, across all of its watches.
type position struct {
	from  kv.Revision // the next revision to fetch
	begun bool        // begin and ready have been emitted
	// fragment asks etcd to cut large responses. It is the last resort: for every event
	// etcd measures the whole fragment again (v3rpc/watch.go, sendFragments), so the
	// cost grows with the square of the events in a fragment. A delete of 50,000 keys
	// of 50 bytes took 0.15 s in one piece, and 62 s in fragments.
	fragment bool
	// release returns the permit to be far behind, which is needed until the watch
	// reaches the revision until; nil: there is no permit.
	release func()
	until   kv.Revision
}

// caughtUp returns the permit.
func (p *position) caughtUp() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// farBehindError reports that a watch needs a permit to catch up with revision.
type farBehindError struct{ revision kv.Revision }

func (e *farBehindError) Error() string {
	return fmt.Sprintf("it needs a permit to catch up with revision %d", e.revision)
}

// begin emits the updates before the live ones for a follower that cannot resume, and
// returns their revision. It emits nothing before all of them are there.
func (c *Client) begin(ctx context.Context, req kv.FollowRequest, emit func(kv.Update) bool) (kv.Revision, error) {
	d, err := c.whatDiffers(ctx, req)
	if err == nil {
		err = c.Admit(ctx, req.Lineage)
	}
	if err != nil {
		return 0, err
	}
	if !emit(kv.Update{Kind: kv.UpdateBegin, Revision: d.revision, Floor: d.floor, Leap: req.Held != nil}) {
		return 0, errEnough
	}
	for i, page := range d.pages {
		d.pages[i] = nil // owned by the consumer from now on
		if !emit(kv.Update{Kind: kv.UpdateState, Revision: d.revision, KVs: page}) {
			return 0, errEnough
		}
	}
	if len(d.gone) > 0 && !emit(kv.Update{Kind: kv.UpdateState, Revision: d.revision, Gone: d.gone}) {
		return 0, errEnough
	}
	for _, b := range d.past {
		if !emit(kv.Update{Kind: kv.UpdateHistory, Revision: b.Revision, Batch: b}) {
			return 0, errEnough
		}
	}
	if !emit(kv.Update{Kind: kv.UpdateReady, Revision: d.revision}) {
		return 0, errEnough
	}
	return d.revision, nil
}

// difference has the changes from a follower's state to the state of revision.
type difference struct {
	revision kv.Revision
	pages    [][]*kv.KeyValue
	gone     []string   // with Held only
	past     []kv.Batch // the batches from floor up to revision
	floor    kv.Revision
}

func (c *Client) whatDiffers(ctx context.Context, req kv.FollowRequest) (d difference, err error) {
	if req.Held != nil {
		return c.leap(ctx, req)
	}
	if d.pages, d.revision, err = c.list(ctx, req.Range); err != nil {
		return d, err
	}
	d.past, d.floor, err = c.since(ctx, req, d.revision)
	return d, err
}
