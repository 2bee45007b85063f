package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Peer is another node as the source of one shard.
type Peer struct {
	// Link leads to the node.
	Link *Link
	// Shard is the shard, Self this node's name.
	Shard shard.ID
	Self  shard.NodeID
	// Stateless asks for the window without the state, and for previous values
	// with each event: for a relay.
	Stateless bool
	// RequireDirect takes the peer only while it reads etcd itself.
	RequireDirect bool
	// Silence is how long the node may answer nothing; 0: the constant.
	Silence time.Duration
}

func (p *Peer) silence() time.Duration {
	if p.Silence > 0 {
		return p.Silence
	}
	return Silence
}

// Follow implements the cache's Source. The error is ErrSilent, or what the
// peer said, as wire.Error returns it.
func (p *Peer) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if err := p.follow(ctx, req, func(u kv.Update) bool { return yield(u, nil) }); err != nil && ctx.Err() == nil {
			yield(kv.Update{}, err)
		}
	}
}

// follow returns nil when yield did not want more.
func (p *Peer) follow(ctx context.Context, req kv.FollowRequest, yield func(kv.Update) bool) error {
	var sender sync.WaitGroup
	defer sender.Wait()
	ctx, release := p.Link.hold(ctx, p.silence())
	defer release()
	failed := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return wire.Error(err)
	}

	stream, err := peerv1.NewPeerServiceClient(p.Link.conn).Follow(ctx)
	if err != nil {
		return failed(err)
	}
	key, end := req.Range.Etcd()
	if err := stream.Send(&peerv1.FollowRequest{
		ShardId: uint64(p.Shard), Key: key, RangeEnd: end,
		FromRevision: int64(req.From), Lineage: req.Lineage,
		WantState: req.From == 0 && !p.Stateless, WantHistory: req.From == 0,
		PrevKv: p.Stateless, Node: string(p.Self), RequireDirect: p.RequireDirect, WantDelta: req.AllowLeap,
	}); err != nil {
		// The reason comes with Recv.
		_ = err
	}
	sender.Go(func() { ask(ctx, stream, req.Want) })

	var assembling kv.Batch
	for {
		m, err := stream.Recv()
		if err != nil {
			return failed(err)
		}
		if err := ofLineage(m, req.Lineage); err != nil {
			return err
		}
		u, complete, err := decode(m, &assembling)
		if err == nil && complete {
			err = plausible(u, req.Range)
		}
		if err != nil {
			return fmt.Errorf("peer's stream of shard %d: %w", p.Shard, err)
		}
		if complete && !yield(u) {
			return nil
		}
	}
}

// ofLineage fails when a peer begins its answer in another lineage than the
// requested one. A peer compares, too, but it may load another lineage between
// its check and its answer, or run an older version.
func ofLineage(m *peerv1.FollowResponse, requested uint64) error {
	if begin := m.GetBegin(); begin != nil && begin.GetLineage() != requested {
		return &kv.LineageError{Requested: requested, Current: begin.GetLineage()}
	}
	return nil
}

// errImplausible rejects a peer whose stream contradicts itself: its memory or its
// network is faulty.
var errImplausible = errors.New("the peer's data contradicts itself")

// plausible fails when u has keys that are not of the range, or events that are
// not of its revision.
func plausible(u kv.Update, r kv.Range) error {
	for _, item := range u.KVs {
		if !r.ContainsBytes(item.Key()) {
			return fmt.Errorf("%w: key %q is not in %v", errImplausible, item.Key(), r)
		}
	}
	for i := range u.Batch.Events {
		switch item := u.Batch.Events[i].KV; {
		case !r.ContainsBytes(item.Key()):
			return fmt.Errorf("%w: key %q is not in %v", errImplausible, item.Key(), r)
		case item.ModRevision() != u.Revision:
			return fmt.Errorf("%w: an event of revision %d in revision %d", errImplausible, item.ModRevision(), u.Revision)
		}
	}
	return nil
}

// ask sends what the consumer wants until ctx ends or the stream breaks.
func ask(ctx context.Context, stream grpc.BidiStreamingClient[peerv1.FollowRequest, peerv1.FollowResponse], want <-chan kv.Revision) {
	for {
		select {
		case <-ctx.Done():
			return
		case revision := <-want:
			if stream.Send(&peerv1.FollowRequest{WantProgress: int64(revision)}) != nil {
				return // Recv says why
			}
		}
	}
}

// decode returns the update that m is, or adds m to the revision that is being
// assembled and reports false.
func decode(m *peerv1.FollowResponse, assembling *kv.Batch) (kv.Update, bool, error) {
	switch part := m.GetPart().(type) {
	case *peerv1.FollowResponse_Begin:
		return kv.Update{
			Kind: kv.UpdateBegin, Revision: kv.Revision(part.Begin.GetRevision()), Floor: kv.Revision(part.Begin.GetFloor()),
			DeltaFloor: kv.Revision(part.Begin.GetDeltaFloor()), Leap: part.Begin.GetDelta(),
		}, true, nil
	case *peerv1.FollowResponse_State:
		u := kv.Update{Kind: kv.UpdateState, KVs: make([]*kv.KeyValue, 0, len(part.State.GetKvs()))}
		for _, item := range part.State.GetKvs() {
			u.KVs = append(u.KVs, wire.KeyValue(item))
		}
		for _, key := range part.State.GetDeleted() {
			u.Gone = append(u.Gone, string(key))
		}
		return u, true, nil
	case *peerv1.FollowResponse_Tombstones:
		u := kv.Update{Kind: kv.UpdateTombstones, Tombstones: make([]kv.Tombstone, 0, len(part.Tombstones.GetTombstones()))}
		for _, t := range part.Tombstones.GetTombstones() {
			u.Tombstones = append(u.Tombstones, kv.Tombstone{Key: string(t.GetKey()), Revision: kv.Revision(t.GetRevision())})
		}
		return u, true, nil
	case *peerv1.FollowResponse_End:
		return kv.Update{Kind: kv.UpdateReady}, true, nil
	case *peerv1.FollowResponse_Heartbeat:
		return kv.Update{Kind: kv.UpdateProgress, Revision: kv.Revision(part.Heartbeat.GetProgress())}, true, nil
	}
	revision := kv.Revision(m.GetRevision())
	if revision <= 0 || len(m.GetEvents()) == 0 {
		return kv.Update{}, false, fmt.Errorf("%w: a response that is nothing we know", kv.ErrMalformed)
	}
	if assembling.Revision != 0 && assembling.Revision != revision {
		return kv.Update{}, false, fmt.Errorf("revision %d in the middle of revision %d", revision, assembling.Revision)
	}
	assembling.Revision = revision
	for _, e := range m.GetEvents() {
		if len(e.GetKv().GetKey()) == 0 {
			return kv.Update{}, false, fmt.Errorf("revision %d: %w: event without a key", revision, kv.ErrMalformed)
		}
		event := kv.Event{Type: kv.EventType(e.GetType()), KV: wire.KeyValue(e.GetKv())} //nolint:gosec // two values
		if e.GetPrevKv() != nil {
			event.Prev = wire.KeyValue(e.GetPrevKv())
		}
		assembling.Events = append(assembling.Events, event)
	}
	if m.GetFragment() {
		return kv.Update{}, false, nil
	}
	u := kv.Update{Kind: kv.UpdateBatch, Revision: revision, Batch: *assembling}
	u.Batch.Received = time.Now()
	if m.GetHistory() {
		u.Kind = kv.UpdateHistory
	}
	*assembling = kv.Batch{}
	return u, true, nil
}

// tooOld is the age of its data at which a peer will not do as a source.
const tooOld = 2 * time.Second

// Probe asks whether the peer would serve the range now, with data that is not
// too old: one that is cut from etcd still answers.
func (p *Peer) Probe(ctx context.Context, r kv.Range, lineage uint64) error {
	ctx, cancel := context.WithTimeout(ctx, p.silence())
	defer cancel()
	stream, err := peerv1.NewPeerServiceClient(p.Link.conn).Follow(ctx)
	if err != nil {
		return wire.Error(err)
	}
	key, end := r.Etcd()
	if err := stream.Send(&peerv1.FollowRequest{
		ShardId: uint64(p.Shard), Key: key, RangeEnd: end, FromRevision: math.MaxInt64, Lineage: lineage,
		Node: string(p.Self), RequireDirect: p.RequireDirect,
	}); err != nil {
		_ = err // the reason comes with Recv
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return wire.Error(err)
		}
		if err := ofLineage(m, lineage); err != nil {
			return err
		}
		switch beat := m.GetHeartbeat(); {
		case beat == nil:
		case !beat.GetAgeKnown() || beat.GetAge().AsDuration() > tooOld:
			return ErrStale
		default:
			return nil
		}
	}
}
