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
	// Link connects to the node.
	Link *Link
	// Shard is the shard, Self this node's name.
	Shard shard.ID
	Self  shard.NodeID
	// Stateless asks for the window without the state, and for previous values
	// with each event: for a relay.
	Stateless bool
	// RequireDirect accepts the peer only while it reads etcd itself.
	RequireDirect bool
	// Encoding is the media type of a resource of Kubernetes, which is followed instead
	// of a shard; "": a shard.
	Encoding string
	// Silence is how long the node may be silent; 0: the constant Silence.
	Silence time.Duration
}

func (p *Peer) silence() time.Duration {
	if p.Silence > 0 {
		return p.Silence
	}
	return Silence
}

// Follow implements the cache's Source. The error is ErrSilent, or the
// peer's error, as wire.Error returns it.
func (p *Peer) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if err := p.follow(ctx, req, func(u kv.Update) bool { return yield(u, nil) }); err != nil && ctx.Err() == nil {
			yield(kv.Update{}, err)
		}
	}
}

// follow returns nil when yield has returned false.
func (p *Peer) follow(ctx context.Context, req kv.FollowRequest, yield func(kv.Update) bool) error {
	var receiver sync.WaitGroup
	defer receiver.Wait()
	ctx, h := p.Link.hold(ctx, p.silence(), req.Lineage)
	defer h.release()
	if p.Encoding != "" {
		h.setApart()
	}
	failed := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return wire.Error(err)
	}

	key, end := req.Range.Etcd()
	stream, err := peerv1.NewPeerServiceClient(p.Link.conn).Follow(ctx, &peerv1.FollowRequest{
		ShardId: uint64(p.Shard), Key: key, RangeEnd: end,
		FromRevision: int64(req.From), Lineage: req.Lineage,
		WantState: req.From == 0 && !p.Stateless, WantHistory: req.From == 0,
		PrevKv: p.Stateless, Node: string(p.Self), RequireDirect: p.RequireDirect, WantDelta: req.AllowLeap,
		Session: h.pulse.session, FollowId: h.number, AcceptSeveral: true, Encoding: p.Encoding,
	})
	if err != nil {
		return failed(err)
	}
	defer req.Want.Serve(req.From-1, h.want)()
	received := make(chan part)
	receiver.Go(func() { p.receive(ctx, stream, req, received) })
	h.report = req.Progress
	for {
		r, err := h.next(ctx, received)
		switch {
		case err != nil:
			return failed(err)
		case r.transport != nil:
			return failed(r.transport)
		case r.err != nil:
			return r.err
		}
		for _, u := range r.updates {
			if h.at.take(u); u.Kind == kv.UpdateReady {
				h.mayIdle(req.Idle)
			}
			if !yield(u) {
				return nil
			}
		}
		if progress, ok := h.at.join(h.latest()); ok && !yield(kv.Update{Kind: kv.UpdateProgress, Revision: progress}) {
			return nil
		}
	}
}

// next waits for the next updates of the stream, or for progress. Meanwhile the heartbeat may
// report progress to the follower. It fails when ctx ends.
func (h *holder) next(ctx context.Context, received <-chan part) (r part, err error) {
	h.turn.Unlock()
	defer h.turn.Lock()
	select {
	case r = <-received:
	case <-h.told:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return r, err
}

// part has the next updates of a stream, or the reason why there are none.
type part struct {
	updates   []kv.Update
	transport error // the stream has ended
	err       error // its update was refused
}

// receive passes on the messages of the stream until it or ctx ends.
func (p *Peer) receive(ctx context.Context, stream grpc.ServerStreamingClient[peerv1.FollowResponse], req kv.FollowRequest, to chan<- part) {
	var assembling kv.Batch
	for more := true; more; {
		var next part
		m, err := stream.Recv()
		if err != nil {
			next.transport = err
		} else if next.err = ofLineage(m, req.Lineage); next.err == nil {
			next.updates, next.err = decode(m, &assembling)
			for i := range next.updates {
				if next.err == nil {
					next.err = plausible(&next.updates[i], req.Range)
				}
			}
			if next.err != nil {
				next.err = fmt.Errorf("peer's stream of shard %d: %w", p.Shard, next.err)
			}
		}
		more = next.transport == nil && next.err == nil
		if more && len(next.updates) == 0 {
			continue
		}
		select {
		case to <- next:
		case <-ctx.Done():
			return
		}
	}
}

// joint joins the stream of a shard with the shard's progress from the heartbeat. Each
// may be ahead of the other.
type joint struct {
	at    kv.Revision // everything up to it was passed on
	ready bool        // state and history are complete
	told  bool        // progress was passed on
}

// take notes an update of the stream.
func (j *joint) take(u kv.Update) {
	switch u.Kind {
	case kv.UpdateBegin:
		j.at = u.Revision
	case kv.UpdateReady:
		j.ready = true
	case kv.UpdateBatch:
		j.at = u.Revision
	}
}

// join returns the progress that a quiet part of the history proves: all of it, if the
// stream has delivered everything before that part; else none, since events are still
// on their way. It reports the first progress, which is the node's position, and then
// the changes.
func (j *joint) join(q quiet) (progress kv.Revision, ok bool) {
	if q.upTo == 0 || !j.ready || j.at < q.since || j.told && q.upTo <= j.at {
		return 0, false
	}
	j.at, j.told = max(j.at, q.upTo), true
	return j.at, true
}

// ofLineage fails when a peer begins its answer in another lineage than the requested
// one. A peer also compares, but it may load another lineage between its check and its
// answer, or run an older version.
func ofLineage(m *peerv1.FollowResponse, requested uint64) error {
	if begin := m.GetBegin(); begin != nil && begin.GetLineage() != requested {
		return &kv.LineageError{Requested: requested, Current: begin.GetLineage()}
	}
	return nil
}

// errImplausible rejects a peer whose stream contradicts itself: its memory or its
// network is faulty.
var errImplausible = errors.New("the peer's data contradicts itself")

// plausible fails when u has keys outside of the range, or events of another revision.
func plausible(u *kv.Update, r kv.Range) error {
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

// decode returns the updates in m. The last revision may stay in assembling, if it is a
// fragment.
func decode(m *peerv1.FollowResponse, assembling *kv.Batch) ([]kv.Update, error) {
	switch part := m.GetPart().(type) {
	case *peerv1.FollowResponse_Begin:
		return []kv.Update{{
			Kind: kv.UpdateBegin, Revision: kv.Revision(part.Begin.GetRevision()), Floor: kv.Revision(part.Begin.GetFloor()),
			DeltaFloor: kv.Revision(part.Begin.GetDeltaFloor()), Leap: part.Begin.GetDelta(),
		}}, nil
	case *peerv1.FollowResponse_State:
		u := kv.Update{Kind: kv.UpdateState, KVs: make([]*kv.KeyValue, 0, len(part.State.GetKvs()))}
		for _, item := range part.State.GetKvs() {
			u.KVs = append(u.KVs, wire.KeyValue(item))
		}
		for _, key := range part.State.GetDeleted() {
			u.Gone = append(u.Gone, string(key))
		}
		return []kv.Update{u}, nil
	case *peerv1.FollowResponse_Tombstones:
		u := kv.Update{Kind: kv.UpdateTombstones, Tombstones: make([]kv.Tombstone, 0, len(part.Tombstones.GetTombstones()))}
		for _, t := range part.Tombstones.GetTombstones() {
			u.Tombstones = append(u.Tombstones, kv.Tombstone{Key: string(t.GetKey()), Revision: kv.Revision(t.GetRevision())})
		}
		return []kv.Update{u}, nil
	case *peerv1.FollowResponse_End:
		return []kv.Update{{Kind: kv.UpdateReady}}, nil
	}
	return decodeEvents(m, assembling)
}

// decodeEvents returns the revisions that the events of m complete.
func decodeEvents(m *peerv1.FollowResponse, assembling *kv.Batch) (out []kv.Update, err error) {
	several := m.GetSeveral() && assembling.Revision == 0 // else it must continue with a fragment's revision
	if len(m.GetEvents()) == 0 {
		return nil, fmt.Errorf("%w: an unknown response", kv.ErrMalformed)
	}
	kind := kv.UpdateBatch
	if m.GetHistory() {
		kind = kv.UpdateHistory
	}
	now := time.Now()
	complete := func() {
		u := kv.Update{Kind: kind, Revision: assembling.Revision, Batch: *assembling}
		u.Batch.Received = now
		out, *assembling = append(out, u), kv.Batch{}
	}
	for _, e := range m.GetEvents() {
		revision := kv.Revision(m.GetRevision())
		if several {
			revision = kv.Revision(e.GetKv().GetModRevision())
		}
		if several && revision > assembling.Revision && assembling.Revision > 0 {
			complete()
		}
		switch {
		case revision <= 0:
			return nil, fmt.Errorf("%w: events of revision %d", kv.ErrMalformed, revision)
		case assembling.Revision != 0 && assembling.Revision != revision:
			return nil, fmt.Errorf("revision %d in the middle of revision %d", revision, assembling.Revision)
		case len(e.GetKv().GetKey()) == 0:
			return nil, fmt.Errorf("revision %d: %w: event without a key", revision, kv.ErrMalformed)
		}
		assembling.Revision = revision
		event := kv.Event{Type: kv.EventType(e.GetType()), KV: wire.KeyValue(e.GetKv())} //nolint:gosec // two values
		if e.GetPrevKv() != nil {
			event.Prev = wire.KeyValue(e.GetPrevKv())
		}
		assembling.Events = append(assembling.Events, event)
	}
	if !m.GetFragment() {
		complete()
	}
	return out, nil
}

// tooOld is the age of its data at which a peer is rejected as a source.
const tooOld = 2 * time.Second

// Probe asks whether the peer would serve the range now, with data that is not too old:
// a peer without a connection to etcd still answers. The age of a resource of
// Kubernetes is not known: a node without a connection to any apiserver does not follow
// it directly.
func (p *Peer) Probe(ctx context.Context, r kv.Range, lineage uint64) error {
	ctx, cancel := context.WithTimeout(ctx, p.silence())
	defer cancel()
	key, end := r.Etcd()
	stream, err := peerv1.NewPeerServiceClient(p.Link.conn).Follow(ctx, &peerv1.FollowRequest{
		ShardId: uint64(p.Shard), Key: key, RangeEnd: end, FromRevision: math.MaxInt64, Lineage: lineage,
		Node: string(p.Self), RequireDirect: p.RequireDirect, Encoding: p.Encoding,
	})
	if err != nil {
		return wire.Error(err)
	}
	m, err := stream.Recv()
	if err != nil {
		return wire.Error(err)
	}
	if err := ofLineage(m, lineage); err != nil {
		return err
	}
	switch begin := m.GetBegin(); {
	case begin == nil:
		return fmt.Errorf("peer's stream of shard %d: %w: the first message is missing", p.Shard, kv.ErrMalformed)
	case p.Encoding != "":
	case begin.GetAge() == nil || begin.GetAge().AsDuration() > tooOld:
		return ErrStale
	}
	return nil
}
