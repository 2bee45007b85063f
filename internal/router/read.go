package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// ReadRequest selects the keys and revision of a read.
type ReadRequest struct {
	Range kv.Range
	// Revision is the exact revision; 0: Serializable decides. With Exists it is
	// known to exist: etcd is not asked whether it is in the future.
	Revision kv.Revision
	Exists   bool
	// Serializable reads local data if it is not older than MaxStaleness (0: the
	// router's default; AnyAge: no maximum). Without Serializable the read sees
	// every write that etcd acknowledged before the call.
	Serializable bool
	MaxStaleness time.Duration
	// Local prevents requests to other nodes: the caller is itself another node.
	Local bool
	// Holder is the client for which a Body of the reading holds keys from other nodes; the
	// zero Client: none.
	Holder budget.Client
}

// AnyAge is the MaxStaleness of a read that accepts data of any age.
const AnyAge = time.Duration(math.MaxInt64)

// Reading is a list at one revision, not yet read.
type Reading struct {
	// Revision is the revision of the list.
	Revision kv.Revision
	// Lineage is the history that Revision belongs to.
	Lineage uint64

	cluster string // the ID of the cluster that numbers Lineage
	r       *Router
	req     ReadRequest
	parts   []part
	freshAt time.Time      // see Age; zero: not known
	silent  []shard.NodeID // did not answer in time: asked last from then on
}

// part is the part of a reading in one shard.
type part struct {
	shard    *shard.Shard // points into the map
	rng      kv.Range
	home     *cache.Cache      // nil: on another node
	snapshot *keytree.Snapshot // of home
}

// Age returns the greatest possible age of the data: the data includes every write that
// etcd acknowledged longer ago than that. The shard whose data is oldest counts. The age
// is unknown when the request names a revision, when it accepts data of any age and the
// age of a shard is unknown, and, when all shards are on other nodes, before the first
// of them has answered.
func (g *Reading) Age() (age time.Duration, known bool) {
	if g.freshAt.IsZero() {
		return 0, false
	}
	return time.Since(g.freshAt), true
}

// Read fixes the revision and the state of every shard that is here. It fails
// with a *kv.CompactedError if the request names a revision, with a *kv.FutureError,
// *kv.NotServedError, *kv.NotHereError or *kv.UnavailableError.
//
// If a shard is split, merged or moved meanwhile, Read retries for changeTimeout. It also retries, with
// a later revision, if the request names none and a shard has dropped the state at the chosen one:
// after one revision with many keys (see cache.Config.RootsBytes), or because the shard has just moved
// to this node. The last attempt reads that shard from another node, because no later revision comes
// while etcd is unavailable.
func (r *Router) Read(ctx context.Context, req ReadRequest) (*Reading, error) {
	began := time.Now()
	var failed time.Time // the first failure
	for last := false; ; {
		out, err := r.read(ctx, req, began, last)
		if err == nil {
			return out, nil
		}
		dropped := req.Revision == 0 && errors.As(err, new(*kv.CompactedError))
		if !dropped && !errors.Is(err, errReplaced) {
			return nil, err
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		if last || !wait.Sleep(ctx, changeRetry) {
			if dropped {
				err = unkept(err)
			}
			return nil, err
		}
		last = time.Since(failed) > changeTimeout
	}
}

// unkept returns an error for a client that named no revision, when the chosen one was dropped. err is
// a *kv.CompactedError, which the client would not retry.
func unkept(err error) error {
	return &kv.UnavailableError{
		Why: kv.NotReady, RetryAfter: kv.RetrySoon,
		Detail: fmt.Sprintf("the state at the chosen revision was dropped before it was read: %v", err),
	}
}

// retriable translates an error of another node for the client: see unkept.
func (g *Reading) retriable(err error) error {
	if g.req.Revision == 0 && errors.As(err, new(*kv.CompactedError)) {
		return unkept(err)
	}
	return err
}

// errReplaced reports that a shard was split, merged or moved while it was read.
var errReplaced = errors.New("the shard map has changed")

// read makes one attempt; with elsewhere, other nodes read shards that have dropped the chosen revision here.
func (r *Router) read(ctx context.Context, req ReadRequest, began time.Time, elsewhere bool) (*Reading, error) {
	m, shards, err := r.parts(req.Range)
	if err != nil {
		return nil, err
	}
	out := &Reading{r: r, req: req, cluster: m.ClusterID, Lineage: m.Lineage, Revision: req.Revision}
	homes := make([]*cache.Cache, len(shards))
	away := 0
	for i := range shards {
		part, _ := shards[i].Range.Intersect(req.Range)
		if homes[i] = r.cfg.Shards.Replica(shards[i].ID); !serves(homes[i], m.Lineage, part) {
			if req.Local {
				return nil, r.notHere(&shards[i])
			}
			homes[i] = nil
			away++
		}
	}
	switch {
	case req.Revision > 0:
		if req.Exists {
			break
		}
		if err := r.notFuture(ctx, req.Revision, homes); err != nil {
			return nil, err
		}
	case !req.Serializable:
		if out.Revision, err = r.Now(ctx); err != nil {
			return nil, err
		}
		out.freshAt = began
	case away == len(shards):
		// All are on other nodes: the first node that is asked chooses the revision.
	default:
		if out.Revision, out.freshAt, err = r.presentRevision(req, homes, shards); err != nil {
			return nil, err
		}
	}
	wait := ctx
	if behind(homes, out.Revision) {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, progressTimeout)
		defer cancel()
	}
	out.parts = make([]part, len(shards))
	for i := range shards {
		s, p := &shards[i], &out.parts[i]
		p.shard = s
		p.rng, _ = s.Range.Intersect(req.Range)
		if homes[i] == nil {
			continue
		}
		p.home = homes[i]
		p.snapshot, err = homes[i].At(wait, out.Revision)
		switch {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			return nil, &kv.UnavailableError{
				Why: kv.NotReady, RetryAfter: time.Second,
				Detail: fmt.Sprintf("shard %d is at revision %d and did not reach %d within %v", s.ID, homes[i].Progress(), out.Revision, time.Since(began).Round(time.Millisecond)),
			}
		case errors.Is(err, cache.ErrRetired):
			return nil, fmt.Errorf("%w: %w", errReplaced, Soon(s, err))
		case errors.As(err, new(*kv.CompactedError)) && req.Revision == 0 && !elsewhere:
			behind(homes, homes[i].Progress()) // a serializable read chooses the lowest revision of them
			return nil, err
		case errors.As(err, new(*kv.CompactedError)) && !req.Local && len(s.Replicas) > 1:
			p.home = nil // it has just moved here: another node may have kept the state
		default:
			return nil, Soon(s, err)
		}
	}
	return out, nil
}

// behind reports whether a cache has not reached revision yet. It asks all caches that have
// not, so that they reach it concurrently.
func behind(homes []*cache.Cache, revision kv.Revision) bool {
	some := false
	for _, c := range homes {
		if c != nil && c.Progress() < revision {
			some = true
			c.Demand(revision)
		}
	}
	return some
}

// serves reports whether the cache, which may be nil, can serve rng.
func serves(c *cache.Cache, lineage uint64, rng kv.Range) bool {
	return c != nil && wait.Over(c.Ready()) && c.Lineage() == lineage && c.Range().Covers(rng)
}

// notFuture fails when revision does not exist yet.
func (r *Router) notFuture(ctx context.Context, revision kv.Revision, homes []*cache.Cache) error {
	for _, c := range homes {
		if c != nil && c.Progress() >= revision {
			return nil
		}
	}
	now, err := r.Now(ctx)
	if err != nil {
		return err
	}
	if revision > now {
		return &kv.FutureError{Requested: revision, Current: now}
	}
	return nil
}

// presentRevision returns the newest revision that all shards on this node have
// reached, and the time at which the oldest of them was fresh; zero: not known. It
// fails if a shard is older than the request allows. The time holds for the whole
// range at that revision, which is the progress of one of the shards.
func (r *Router) presentRevision(req ReadRequest, homes []*cache.Cache, shards []shard.Shard) (revision kv.Revision, freshAt time.Time, err error) {
	bound := req.MaxStaleness
	if bound == 0 {
		bound = r.cfg.MaxStaleness
	}
	oldest, allKnown := time.Duration(0), true
	for i, c := range homes {
		if c == nil {
			continue
		}
		age, known := c.Age() // read before the progress, so that it holds for it
		oldest, allKnown = max(oldest, age), allKnown && known
		if bound != AnyAge && (!known || age > bound) {
			detail := fmt.Sprintf("shard %d: the age of the data is not known yet", shards[i].ID)
			if known {
				detail = fmt.Sprintf("shard %d: the data may be %v old, the read allows %v", shards[i].ID, age.Round(time.Millisecond), bound)
			}
			return 0, time.Time{}, &kv.UnavailableError{Why: kv.Stale, RetryAfter: time.Second, Detail: detail}
		}
		if p := c.Progress(); revision == 0 || p < revision {
			revision = p
		}
	}
	if allKnown {
		freshAt = time.Now().Add(-oldest)
	}
	return revision, freshAt, nil
}

// Options narrow the result of Each.
type Options struct {
	// From skips the keys below it; "" none.
	From string
	// Limit bounds the number of keys; 0: all.
	Limit int64
	// KeysOnly lets other nodes leave the values out.
	KeysOnly bool
	// ChunkBytes is the approximate size of the chunks.
	ChunkBytes int
}

// Each calls fn with the keys in order, in chunks. fn must not keep the slice.
// When it returns, Revision is known even if another node chose it. It fails as Read does.
func (g *Reading) Each(ctx context.Context, o Options, fn func([]*kv.KeyValue) error) error {
	left := o.Limit
	for i := range g.parts {
		p := &g.parts[i]
		rng, some := p.rng.Intersect(kv.Range{Start: o.From})
		if !some {
			continue
		}
		count := func(chunk []*kv.KeyValue) error {
			if o.Limit > 0 { // 0 stays 0: no limit for the next part either
				left -= int64(len(chunk))
			}
			return fn(chunk)
		}
		var err error
		if p.snapshot != nil {
			err = local(p.snapshot, rng, left, o, count)
		} else {
			err = g.eachRemote(ctx, p.shard, rng, left, o, count)
		}
		if err != nil {
			return err
		}
		if o.Limit > 0 && left <= 0 {
			return nil
		}
	}
	return nil
}

// local reads a part from this node; limit 0 is none.
func local(s *keytree.Snapshot, rng kv.Range, limit int64, o Options, fn func([]*kv.KeyValue) error) (err error) {
	var chunk []*kv.KeyValue
	size, n := 0, int64(0)
	flush := func() bool {
		if len(chunk) > 0 {
			err = fn(chunk)
			chunk, size = chunk[:0], 0
		}
		return err == nil
	}
	s.Ascend(rng, func(item *kv.KeyValue) bool {
		if o.KeysOnly {
			item = kv.NewKeyValue(kv.Fields{
				Key: item.Key(), CreateRevision: item.CreateRevision(),
				ModRevision: item.ModRevision(), Version: item.Version(), Lease: item.Lease(),
			})
		}
		chunk = append(chunk, item)
		size += len(item.Encoded())
		n++
		if n == limit {
			return false
		}
		return size < o.ChunkBytes || flush()
	})
	flush() // after an error no keys are left
	return err
}

// eachRemote reads a part from another node.
func (g *Reading) eachRemote(ctx context.Context, s *shard.Shard, rng kv.Range, limit int64, o Options, fn func([]*kv.KeyValue) error) error {
	key, end := rng.Etcd()
	req := &shardwatchv1.ListRequest{Key: key, RangeEnd: end, Limit: limit, KeysOnly: o.KeysOnly}
	return g.retriable(g.remote(ctx, s, req, func(m *wire.ListMessage) error {
		if len(m.KVs) == 0 {
			return nil
		}
		return fn(m.KVs)
	}))
}

// remote asks a shard's other nodes in turn, at the reading's revision, and calls
// fn for each message of the first answer. Once a node has begun to answer, its
// failure fails the read. It waits progressTimeout for the first message of all nodes
// together. Nodes that do not have the shard may not have received the current shard
// map yet: they are asked again for changeTimeout.
func (g *Reading) remote(ctx context.Context, s *shard.Shard, req *shardwatchv1.ListRequest, fn func(*wire.ListMessage) error) error {
	began := time.Now()
	for pause := changeRetry; ; pause *= 2 {
		err := g.remoteOnce(ctx, s, began.Add(progressTimeout), req, fn)
		if !errors.As(err, new(*kv.NotHereError)) || time.Since(began)+pause > changeTimeout {
			return err
		}
		if !wait.Sleep(ctx, pause) {
			return err
		}
	}
}

func (g *Reading) remoteOnce(ctx context.Context, s *shard.Shard, until time.Time, req *shardwatchv1.ListRequest, fn func(*wire.ListMessage) error) error {
	req.Revision = int64(g.Revision)
	if g.Revision > 0 {
		req.ClusterId, req.Lineage = g.cluster, g.Lineage
	}
	if g.Revision == 0 {
		req.Consistency = shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE
		if g.req.MaxStaleness > 0 {
			req.MaxStaleness = durationpb.New(g.req.MaxStaleness)
		}
	}
	var last error
	var again []shard.NodeID // were silent; another node follows, which may fail
	for nodes := g.others(s); len(nodes) > 0; {
		node := nodes[0]
		nodes = nodes[1:]
		patience := time.Until(until)
		if len(nodes) > 0 { // the last node may itself wait until it has reached the revision
			patience = min(patience, nodeTimeout)
		}
		if patience <= 0 {
			break
		}
		begun, err := g.ask(ctx, node, patience, req, fn)
		if err == nil || begun {
			return err
		}
		if !errors.As(last, new(*kv.CompactedError)) { // a compacted revision is more specific than an absent node
			last = err
		}
		if errors.Is(err, errSilent) {
			again, g.silent = append(again, node), append(g.silent, node)
		}
		if ctx.Err() != nil {
			break
		}
		if len(nodes) == 0 {
			nodes, again = again, nil
		}
	}
	if last == nil {
		last = &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d has no node that can answer", s.ID)}
	}
	return last
}

// others returns the other nodes of a shard, the silent ones last.
func (g *Reading) others(s *shard.Shard) []shard.NodeID {
	var out, silent []shard.NodeID
	for _, node := range s.Replicas {
		switch {
		case node == g.r.cfg.Self:
		case slices.Contains(g.silent, node):
			silent = append(silent, node)
		default:
			out = append(out, node)
		}
	}
	return append(out, silent...)
}

// errSilent reports that a node has sent nothing for too long.
var errSilent = errors.New("no answer in time")

// ask reads from a node. It waits for the first message for patience, then for progressTimeout for each
// further one, which the node only reads from its memory. It fails with errSilent when that time has passed.
func (g *Reading) ask(ctx context.Context, node shard.NodeID, patience time.Duration, req *shardwatchv1.ListRequest, fn func(*wire.ListMessage) error) (begun bool, err error) {
	conn, err := g.r.cfg.Shards.Conn(node)
	if err != nil {
		return false, fmt.Errorf("node %s: %w", node, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silence.Stop()
	failed := func(err error) error {
		if errors.Is(context.Cause(ctx), errSilent) {
			return fmt.Errorf("%w: %w", errSilent, &kv.UnavailableError{
				Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("node %s does not answer: it has sent nothing for %v", node, patience.Round(time.Millisecond)),
			})
		}
		return fault(node, err)
	}
	began, chooses := time.Now(), g.Revision == 0
	// Decoded by hand: key/values share the bytes of their message.
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, shardwatchv1.CacheService_List_FullMethodName, grpc.ForceCodecV2(wire.NewCodec()))
	if err == nil {
		if err = stream.SendMsg(req); err == nil || errors.Is(err, io.EOF) { // EOF: receive returns the cause
			err = stream.CloseSend()
		}
	}
	if err != nil {
		return false, failed(err)
	}
	for {
		m, err := receive(stream)
		silence.Stop() // the reader's time does not count
		switch {
		case errors.Is(err, io.EOF) && begun:
			return true, nil
		case errors.Is(err, io.EOF): // every answer has a last message
			return false, fault(node, io.ErrUnexpectedEOF)
		case err != nil:
			return begun, failed(err)
		}
		if m.Cluster != g.cluster { // its lineages and revisions cannot be compared with ours
			return begun, &kv.UnavailableError{
				Why: kv.NotReady, RetryAfter: time.Second,
				Detail: fmt.Sprintf("node %s answers for cluster %q, this is cluster %q: retry, the shard map will name other nodes", node, m.Cluster, g.cluster),
			}
		}
		if m.Lineage != g.Lineage {
			return begun, fmt.Errorf("node %s: %w", node, &kv.LineageError{Requested: g.Lineage, Current: m.Lineage})
		}
		if g.Revision == 0 {
			g.Revision = m.Revision
		}
		if m.Revision != g.Revision {
			return begun, fmt.Errorf("node %s answered at revision %d, not %d", node, m.Revision, g.Revision)
		}
		begun = true
		if chooses && m.Age >= 0 {
			g.freshAt = began.Add(-m.Age)
		}
		if err := fn(&m); err != nil {
			return true, err
		}
		patience = progressTimeout
		silence.Reset(patience)
	}
}

func receive(stream grpc.ClientStream) (wire.ListMessage, error) {
	var raw wire.Encoded
	if err := stream.RecvMsg(&raw); err != nil {
		return wire.ListMessage{}, err
	}
	defer raw.Buffers.Free()
	return wire.DecodeListMessage(raw.Buffers.Materialize())
}

// fault translates an error of another node. If that node does not answer, the error is
// reported like one of this node, with advice to the client.
func fault(node shard.NodeID, err error) error {
	if err = wire.Error(err); wire.IsUnavailable(err) {
		return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 200 * time.Millisecond, Detail: fmt.Sprintf("node %s does not answer: %s", node, wire.Plain(err))}
	}
	return fmt.Errorf("node %s: %w", node, err)
}
