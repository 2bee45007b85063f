package peerapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Follow implements peerv1.PeerServiceServer.
func (s *Service) Follow(r *peerv1.FollowRequest, out grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
	f := &follower{srv: s, out: out, req: r, id: shard.ID(r.GetShardId()), wake: wait.NewBell()}
	f.isDirect = func() (bool, <-chan struct{}) { return s.cfg.Node.Direct(f.id) }
	var err error
	if r.GetEncoding() != "" {
		err = f.findResource(out.Context())
	} else {
		f.home, err = s.home(out.Context(), f.id, r)
	}
	if err != nil {
		return wire.Status(err)
	}
	return wire.Status(f.run(out.Context()))
}

// arrivalPatience is how long a follower waits for a shard that is about to arrive: a map reaches
// the nodes at different moments, and a new shard takes over when it has reached the revision of
// the old one. The wait here spares the follower the pauses between its retries.
const arrivalPatience = time.Second

// replica returns the shard's cache, and waits for it if it arrives soon; nil: it does
// not.
func (s *Service) replica(ctx context.Context, id shard.ID) *cache.Cache {
	late := time.NewTimer(arrivalPatience)
	defer late.Stop()
	for {
		arrival := s.cfg.Node.Arrival(id) // before Replica, so that no arrival is missed
		home := s.cfg.Node.Replica(id)
		if home != nil || arrival == nil {
			return home
		}
		select {
		case <-arrival:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-s.cfg.Stopping:
			return nil
		}
	}
}

// home returns the requested cache.
func (s *Service) home(ctx context.Context, id shard.ID, r *peerv1.FollowRequest) (*cache.Cache, error) {
	home := s.replica(ctx, id)
	m := s.cfg.Node.Map()
	if m == nil || home == nil {
		e := &kv.NotHereError{Shard: uint64(id)}
		if m != nil {
			if sh, ok := m.Shard(id); ok {
				e.Epoch = sh.Epoch
			}
		}
		return nil, e
	}
	rng, err := wire.Range(r.GetKey(), r.GetRangeEnd())
	if err != nil {
		return nil, err
	}
	if rng != home.Range() {
		return nil, &kv.UnavailableError{
			Why: kv.NotReady, RetryAfter: kv.RetrySoon,
			Detail: fmt.Sprintf("shard %d is %v here and %v at node %s: one of the two has an old map", id, home.Range(), rng, r.GetNode()),
		}
	}
	if l := r.GetLineage(); l != 0 && l != home.Lineage() {
		return nil, &kv.LineageError{Requested: l, Current: home.Lineage()}
	}
	select {
	case <-home.Ready():
		return home, nil
	default:
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: fmt.Sprintf("shard %d is still being loaded", id)}
	}
}

// aheadPatience bounds the wait of a follower that is ahead of this node.
const aheadPatience = time.Second

// findResource finds the cache of the requested resource.
//
// A follower that is ahead is not served before this node has reached its version:
// versions have no lineage, so a later event might belong to another history, which
// begins below that version.
func (f *follower) findResource(ctx context.Context) error {
	if f.srv.cfg.Resources == nil {
		return errNoResources
	}
	rng, err := wire.Range(f.req.GetKey(), f.req.GetRangeEnd())
	if err != nil {
		return err
	}
	found, err := f.srv.cfg.Resources.Resource(ctx, rng.Start, f.req.GetEncoding(), f.req.GetRequireDirect())
	if err != nil {
		return err
	}
	if found.Cache.Range() != rng {
		return &kv.InvalidError{Field: "range_end", Reason: "the range is not that of a resource"}
	}
	f.home, f.isDirect = found.Cache, found.Direct
	if from := f.req.GetFromRevision(); from > 0 && from < math.MaxInt64 {
		ctx, cancel := context.WithTimeout(ctx, aheadPatience)
		defer cancel()
		if f.home.WaitProgress(ctx, kv.Revision(from-1)) != nil {
			return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: fmt.Sprintf("version %d of %s is not here yet", from-1, rng.Start)}
		}
	}
	return nil
}

// follower is one peer's stream of one shard, or of one resource.
type follower struct {
	srv  *Service
	out  grpc.ServerStream
	req  *peerv1.FollowRequest
	id   shard.ID
	home *cache.Cache
	wake wait.Bell
	// isDirect reports whether the events come from etcd or an apiserver itself.
	isDirect func() (bool, <-chan struct{})

	watcher *cache.Watcher
	events  []*kv.Event
}

// direct returns an error when the follower requires events that come from etcd
// directly but these do not. The channel is closed when the caller must check again.
func (f *follower) direct() (<-chan struct{}, error) {
	direct, changed := f.isDirect()
	if f.req.GetRequireDirect() && !direct {
		return nil, &kv.UnavailableError{
			Why: kv.NotReady, RetryAfter: kv.RetrySoon,
			Detail: fmt.Sprintf("shard %d does not come from etcd directly here", f.id),
		}
	}
	return changed, nil
}

func (f *follower) run(ctx context.Context) error {
	changed, err := f.direct()
	if err != nil {
		return err
	}
	defer func() {
		if f.watcher != nil { // begin opens it, and may fail afterwards
			f.watcher.Close()
		}
	}()
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.srv.enter(f)()
	pair, leave := f.srv.pairs.join(f.req.GetSession())
	defer leave()
	defer pair.follow(f.req.GetFollowId(), f.home, f.hold)()
	for {
		if err := f.drain(); err != nil {
			return err
		}
		select {
		case <-f.wake:
		case <-changed:
			if changed, err = f.direct(); err != nil {
				return err
			}
		case <-f.srv.cfg.Stopping:
			if err := f.drain(); err != nil { // the stream may hold events back
				return err
			}
			return kv.ShuttingDown()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldBackBytes bounds the events that a stream holds back. They stay in the window and
// are a small part of it.
const heldBackBytes = 256 << 10

// hold makes the stream hold events back, up to a bound, or send them at once. It first
// sends the events held back so far.
func (f *follower) hold(back bool) {
	limit := int64(0)
	if back {
		window, _ := f.home.WindowBounds()
		limit = max(1, min(heldBackBytes, window/8))
	}
	if f.watcher.Defer(limit) {
		f.wake.Wake()
	}
}

// begin sends the part before the live events, and opens the watcher after it.
func (f *follower) begin(ctx context.Context) error {
	if from := kv.Revision(f.req.GetFromRevision()); from > 0 {
		var err error
		f.watcher, err = f.home.Watch(f.home.Range(), from, f.wake)
		switch {
		case err == nil:
			return f.frame(&peerv1.FollowBegin{Revision: int64(from - 1), Floor: int64(f.home.Floor())}, nil)
		case f.req.GetWantDelta() && errors.As(err, new(*kv.CompactedError)):
			return f.delta(ctx, from-1)
		}
		return f.fault(err)
	}
	content, err := f.home.Export()
	if err != nil {
		return f.fault(err)
	}
	at := content.Snapshot.Revision
	if f.watcher, err = f.home.Watch(f.home.Range(), at+1, f.wake); err != nil {
		return f.fault(err)
	}
	begin := &peerv1.FollowBegin{Revision: int64(at), Floor: int64(content.Floor), DeltaFloor: int64(content.DeltaFloor)}
	return f.frame(begin, func() error {
		if f.req.GetWantState() {
			if err := f.state(content.Snapshot); err != nil {
				return err
			}
			if err := f.tombstones(content); err != nil {
				return err
			}
		}
		if !f.req.GetWantHistory() {
			return nil
		}
		for b := range content.History() {
			f.events = f.events[:0]
			for i := range b.Events {
				f.events = append(f.events, &b.Events[i])
			}
			if err := f.batch(b.Revision, true, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// delta sends the changes since a revision below the window.
func (f *follower) delta(ctx context.Context, since kv.Revision) error {
	changes, err := f.home.Changes(ctx, f.home.Range(), since, 0)
	if err != nil {
		return f.fault(err)
	}
	if f.watcher, err = f.home.Watch(f.home.Range(), changes.Revision+1, f.wake); err != nil {
		return f.fault(err)
	}
	return f.frame(&peerv1.FollowBegin{Revision: int64(changes.Revision), Delta: true}, func() error {
		if err := f.chunks(slices.Values(changes.Changed)); err != nil {
			return err
		}
		m := &peerv1.StateChunk{}
		send := func() error {
			return f.out.SendMsg(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_State{State: m}})
		}
		return inParts(slices.Values(changes.Deleted), f.srv.cfg.FragmentBytes, send, func(key string, begin bool) int {
			if begin {
				m = &peerv1.StateChunk{}
			}
			m.Deleted = append(m.Deleted, []byte(key))
			return len(key)
		})
	})
}

// tombstones sends the deletes that are older than the window.
func (f *follower) tombstones(content *cache.Export) error {
	m := &peerv1.Tombstones{}
	send := func() error {
		return f.out.SendMsg(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_Tombstones{Tombstones: m}})
	}
	return inParts(content.Tombstones(), f.srv.cfg.FragmentBytes, send, func(t kv.Tombstone, begin bool) int {
		if begin {
			m = &peerv1.Tombstones{}
		}
		m.Tombstones = append(m.Tombstones, &peerv1.Tombstone{Key: []byte(t.Key), Revision: int64(t.Revision)})
		return t.Size()
	})
}

// frame sends begin, calls middle, and sends the end.
func (f *follower) frame(begin *peerv1.FollowBegin, middle func() error) error {
	begin.Lineage = f.home.Lineage()
	if s, ok := f.srv.cfg.Node.Map().Shard(f.id); ok {
		begin.Epoch = s.Epoch
	}
	if age, known := f.home.Age(); known {
		begin.Age = durationpb.New(age)
	}
	err := f.out.SendMsg(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_Begin{Begin: begin}})
	if err == nil && middle != nil {
		err = middle()
	}
	if err != nil {
		return err
	}
	return f.out.SendMsg(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_End{End: &peerv1.FollowEnd{}}})
}

// state sends the whole state.
func (f *follower) state(s *keytree.Snapshot) error {
	return f.chunks(func(yield func(*kv.KeyValue) bool) { s.Ascend(f.home.Range(), yield) })
}

// chunks sends keys as parts of the state.
func (f *follower) chunks(items iter.Seq[*kv.KeyValue]) error {
	var chunk []*kv.KeyValue
	send := func() error { return f.out.SendMsg(wire.FollowState(chunk)) }
	return inParts(items, f.srv.cfg.FragmentBytes, send, func(item *kv.KeyValue, begin bool) int {
		if begin {
			chunk = chunk[:0]
		}
		chunk = append(chunk, item)
		return len(item.Encoded())
	})
}

// inParts adds items to a message and sends it whenever it has about limit bytes. add
// returns the size of an item; its begin starts a new message.
func inParts[T any](items iter.Seq[T], limit int, send func() error, add func(item T, begin bool) int) error {
	size, begin := 0, true
	for item := range items {
		size += add(item, begin)
		if begin = size >= limit; begin {
			if err := send(); err != nil {
				return err
			}
			size = 0
		}
	}
	if begin {
		return nil
	}
	return send()
}

// drain sends the ready revisions; revisions that fit share a message.
func (f *follower) drain() error {
	f.events = f.events[:0]
	revisions, size := 0, 0
	for {
		began := len(f.events)
		revision, events, err := f.watcher.Next(f.events)
		f.events = events
		added := 0
		for _, e := range events[began:] {
			added += kv.EventSize(e, f.req.GetPrevKv())
		}
		if full := !f.req.GetAcceptSeveral() || size+added > f.srv.cfg.FragmentBytes; revisions > 0 && (revision == 0 || full) {
			f.events = events[:began]
			if err := f.several(revisions); err != nil {
				return err
			}
			f.events = append(f.events[:0], events[began:]...)
			revisions, size = 0, 0
		}
		switch {
		case err != nil:
			return f.fault(err)
		case revision == 0:
			return nil
		}
		revisions, size = revisions+1, size+added
	}
}

// several sends the revisions in f.events.
func (f *follower) several(revisions int) error {
	prev, last := f.req.GetPrevKv(), f.events[len(f.events)-1].KV.ModRevision()
	var err error
	if revisions == 1 {
		err = f.batch(last, false, prev)
	} else {
		err = f.out.SendMsg(wire.FollowSeveral(last, f.events, prev))
	}
	if err != nil || f.srv.cfg.Trace == nil {
		return err
	}
	sent := kv.Revision(0)
	for _, e := range f.events {
		if at := e.KV.ModRevision(); at != sent {
			sent = at
			f.srv.cfg.Trace.SentToNode(at)
		}
	}
	return nil
}

// batch sends one revision, in f.events.
func (f *follower) batch(revision kv.Revision, history, prev bool) error {
	return wire.Fragments(f.events, prev, f.srv.cfg.FragmentBytes, func(run []*kv.Event, more bool) error {
		return f.out.SendMsg(wire.FollowEvents(revision, more, history, run, prev))
	})
}

// fault converts a cache's error for a follower.
func (f *follower) fault(err error) error {
	if s, ok := f.srv.cfg.Node.Map().Shard(f.id); ok {
		return router.Soon(&s, err)
	}
	return router.Soon(&shard.Shard{ID: f.id}, err)
}

// Propose implements peerv1.PeerServiceServer.
func (s *Service) Propose(ctx context.Context, r *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	version, err := s.cfg.Node.Propose(ctx, r.GetCommand())
	if err != nil {
		return nil, wire.Status(err)
	}
	return &peerv1.ProposeResponse{MapVersion: version}, nil
}
