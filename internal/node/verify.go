package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// verifier compares the copies of shards with each other and, more seldom, with
// etcd, and has a copy of this node that is wrong loaded anew.
//
// For each shard the first of its nodes that lives asks the others. A node judges
// only itself: one that is told that it differs compares anew, asks etcd for the
// keys that differ, and when etcd says otherwise it stops serving that shard until
// it has it from elsewhere. So nobody can take another node out of service.
type verifier struct {
	n *Node
	// turn is held while a state is summed up: one at a time, so that all together
	// take no more than verifyShare.
	turn  chan struct{}
	hints chan shard.ID // copies of this node that are said to differ

	mu      sync.Mutex
	shards  map[shard.ID]*verified // guarded by mu
	history map[string]struct{}    // guarded by mu; what was logged and still is so

	rounds, differences, quarantines, bytes, busy atomic.Int64 // busy in nanoseconds
}

// verified is what is known of a copy.
type verified struct {
	equal time.Time // when it was last found to be equal to another copy, or to etcd
	tried time.Time // when that was last looked into
	etcd  time.Time // when it was last compared with etcd
}

// Bounds of comparing.
const (
	// verifyShare is how much of one CPU it takes at most.
	verifyShare = 0.05
	// verifyTimeout bounds the comparison of one shard, progressTimeout the time
	// in which a copy has to reach the revision of another.
	verifyTimeout   = 15 * time.Minute
	progressTimeout = 5 * time.Second
	// detailed is how many keys of a copy are told one by one, differing how many
	// that differ, judged how many of those etcd is asked for.
	detailed  = 50_000
	differing = 100
	judged    = 16
	// etcdRate is how many bytes per second of etcd are compared.
	etcdRate = 16 << 20
	// verifyRetries is how often it is tried to have all copies at one revision.
	verifyRetries = 3
)

func newVerifier(n *Node) *verifier {
	return &verifier{
		n: n, turn: make(chan struct{}, 1), hints: make(chan shard.ID, 256),
		shards: make(map[shard.ID]*verified), history: make(map[string]struct{}),
	}
}

// run compares all copies that are this node's to compare once per interval, one
// after the other, until ctx ends.
func (v *verifier) run(ctx context.Context) error {
	for {
		id, pause := v.next()
		var due <-chan time.Time
		if pause > 0 {
			due = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case id = <-v.hints:
		case <-due:
		}
		if id == 0 {
			continue // nothing here yet
		}
		if err := v.round(ctx, id); err != nil && ctx.Err() == nil {
			v.n.log.Debug("copies were not compared", "shard", uint64(id), "error", err)
		}
	}
}

// next returns the shard that was not looked at for longest, of those that are
// this node's to look at, and in how long that is due; 0: never.
func (v *verifier) next() (shard.ID, time.Duration) {
	every := v.n.cfg.VerifyInterval
	if every == 0 {
		return 0, 0
	}
	now, mine := time.Now(), v.mine()
	if len(mine) == 0 {
		return 0, every
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forgetLocked()
	first := mine[0]
	for _, id := range mine {
		if v.shards[id] == nil { // spread over the interval, from the start
			ago := rand.N(every)
			etcd := time.Duration(0)
			if e := v.n.cfg.VerifyEtcdInterval; e > 0 {
				etcd = rand.N(e)
			}
			v.shards[id] = &verified{tried: now.Add(-ago), etcd: now.Add(-etcd)}
		}
		if v.shards[id].tried.Before(v.shards[first].tried) {
			first = id
		}
	}
	// Never faster than if all were evenly spread: what was late is not made up for.
	return first, max(every/time.Duration(2*len(mine)), time.Until(v.shards[first].tried.Add(every)))
}

// forgetLocked forgets shards that are gone, once they are many.
func (v *verifier) forgetLocked() {
	m := v.n.placement.Map()
	if m == nil || len(v.shards) <= 2*len(m.Shards)+64 {
		return
	}
	there := make(map[shard.ID]bool, len(m.Shards))
	for i := range m.Shards {
		there[m.Shards[i].ID] = true
	}
	maps.DeleteFunc(v.shards, func(id shard.ID, _ *verified) bool { return !there[id] })
}

// mine returns the shards of which this node is the first that lives.
func (v *verifier) mine() []shard.ID {
	m := v.n.placement.Map()
	if m == nil || v.n.lineage.over.Load() != nil {
		return nil
	}
	alive := make(map[shard.NodeID]bool)
	for _, member := range v.n.members.Members() {
		alive[member.Name] = member.State == shard.Alive
	}
	var out []shard.ID
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == v.n.self {
				out = append(out, m.Shards[i].ID)
			}
			if r == v.n.self || alive[r] {
				break
			}
		}
	}
	return out
}

// round compares one shard and sees to what is wrong.
func (v *verifier) round(ctx context.Context, id shard.ID) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	m := v.n.placement.Map()
	if m == nil {
		return nil // another node remembers a copy that was here before we started
	}
	sh, ok := m.Shard(id)
	if !ok {
		return nil
	}
	v.note(id, func(k *verified) { k.tried = time.Now() })
	held := v.n.store.replica(id)
	if held == nil || !held.ready() {
		return nil
	}
	out, err := v.examine(ctx, m, &sh, v.etcdDue(id))
	if err != nil {
		return err
	}
	v.rounds.Add(1)
	v.tell(m, &sh, out)
	own := out.of(v.n.self)
	if out.etcd {
		v.note(id, func(k *verified) { k.etcd = time.Now() })
	}
	if len(out.differences) == 0 && own != nil && (out.etcd || out.compared() > 1) {
		v.note(id, func(k *verified) { k.equal = time.Now() })
	}
	for _, c := range out.copies {
		switch {
		case !c.wrong:
		case c.node == v.n.self:
			return v.quarantine(ctx, id, held.cache, out)
		default:
			v.point(ctx, c.node, id)
		}
	}
	return nil
}

func (v *verifier) note(id shard.ID, change func(*verified)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.shards[id]
	if k == nil {
		k = &verified{etcd: time.Now()}
		v.shards[id] = k
	}
	change(k)
}

func (v *verifier) etcdDue(id shard.ID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	every := v.n.cfg.VerifyEtcdInterval
	return every > 0 && time.Since(v.shards[id].etcd) > every
}

// age returns the time since this node's copy was last found to be equal.
func (v *verifier) age(id shard.ID) (time.Duration, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.shards[id]
	if k == nil || k.equal.IsZero() {
		return 0, false
	}
	return time.Since(k.equal), true
}

// tell logs what is wrong, once as long as it is.
func (v *verifier) tell(m *shard.Map, sh *shard.Shard, out *finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range out.copies {
		key := fmt.Sprintf("%d %s", sh.ID, c.node)
		if c.err != nil {
			continue
		}
		if !c.wrong && (len(out.differences) == 0 || out.decided) {
			delete(v.history, key)
			continue
		}
		if _, told := v.history[key]; told {
			continue
		}
		v.history[key] = struct{}{}
		v.differences.Add(1)
		args := []any{"shard", uint64(sh.ID), "replica", string(c.node), "revision", int64(out.revision), "lineage", m.Lineage, "keys", len(out.differences)}
		switch {
		case c.node == v.n.self && c.wrong:
			v.n.log.Error("the copy of a shard is wrong here: it is loaded anew, and serves nobody meanwhile", args...)
		case c.wrong:
			v.n.log.Warn("the copy of a shard is wrong at another node, which is told", args...)
		default:
			v.n.log.Error("copies of a shard differ, and nobody can tell which is right: etcd does not answer, and there is no majority", args...)
		}
	}
}

// point tells a node that its copy differs.
func (v *verifier) point(ctx context.Context, node shard.NodeID, id shard.ID) {
	conn, err := v.n.peers.conn(node)
	if err == nil {
		_, err = peerv1.NewPeerServiceClient(conn).Recheck(ctx, &peerv1.RecheckRequest{ShardId: uint64(id), Node: string(v.n.self)})
	}
	if err != nil {
		v.n.log.Warn("a node could not be told that its copy is wrong", "shard", uint64(id), "replica", string(node), "error", wire.Error(err))
	}
}

// Recheck implements server.Verifier.
func (n *Node) Recheck(id shard.ID, _ shard.NodeID) {
	select {
	case n.verifier.hints <- id:
	default: // it is asked for again
	}
}

// quarantine has the copy of this node loaded anew.
func (v *verifier) quarantine(ctx context.Context, id shard.ID, wrong *cache.Cache, out *finding) error {
	r := renewal{wrong: wrong, id: id, begun: make(chan bool, 1)}
	for _, c := range out.copies {
		if c.wrong && c.node != v.n.self {
			r.avoid = append(r.avoid, c.node)
		}
	}
	select {
	case v.n.store.renewals <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case begun := <-r.begun:
		if begun {
			v.quarantines.Add(1)
			v.note(id, func(k *verified) { k.equal = time.Time{} })
			v.n.Recheck(id, v.n.self) // as soon as it is loaded
		}
	case <-ctx.Done():
	}
	return nil
}

// finding is what came of a comparison.
type finding struct {
	revision    kv.Revision
	copies      []copied
	differences []keyDifference
	more        bool  // more keys differ
	decided     bool  // it is known which copies are wrong
	etcd        bool  // one of them was compared with etcd
	etcdErr     error // why not
}

// copied is one node's copy.
type copied struct {
	node  shard.NodeID
	sum   *cache.Digest // nil: there is none
	err   error         // why
	wrong bool
}

// keyDifference is a key that a copy has otherwise.
type keyDifference struct {
	key  string
	node shard.NodeID // "": nobody knows which is wrong
	mod  kv.Revision
}

func (f *finding) of(node shard.NodeID) *copied {
	for i := range f.copies {
		if f.copies[i].node == node && f.copies[i].sum != nil {
			return &f.copies[i]
		}
	}
	return nil
}

// compared returns how many copies were.
func (f *finding) compared() int {
	n := 0
	for i := range f.copies {
		if f.copies[i].sum != nil {
			n++
		}
	}
	return n
}

// examine compares all copies of a shard at one revision, and one of them with
// etcd when asked to.
func (v *verifier) examine(ctx context.Context, m *shard.Map, sh *shard.Shard, etcd bool) (*finding, error) {
	var out *finding
	var err error
	for range verifyRetries {
		if out, err = v.compare(ctx, m, sh); err == nil {
			err = v.explain(ctx, m, sh, out)
		}
		var gone *kv.CompactedError
		if !errors.As(err, &gone) { // a copy that was slow has forgotten the revision meanwhile
			break
		}
	}
	if err != nil || !etcd {
		return out, err
	}
	for i := range out.copies {
		c := &out.copies[i]
		if c.sum == nil || c.wrong {
			continue
		}
		if out.etcdErr = v.withEtcd(ctx, m, sh, out, c); out.etcdErr == nil {
			break
		}
	}
	return out, nil
}

// compare gathers the digests of all copies at one revision, that of the first
// that answers.
func (v *verifier) compare(ctx context.Context, m *shard.Map, sh *shard.Shard) (*finding, error) {
	out := &finding{copies: make([]copied, len(sh.Replicas)), decided: true}
	order := make([]int, 0, len(sh.Replicas))
	for i, node := range sh.Replicas {
		out.copies[i].node = node
		if node == v.n.self { // at hand
			order = slices.Insert(order, 0, i)
		} else {
			order = append(order, i)
		}
	}
	req := v.request(m, sh)
	if len(order) > 0 && out.copies[order[0]].node == v.n.self {
		// The others can begin when it is known at which revision.
		if home := v.n.Replica(sh.ID); home != nil {
			req.Revision = int64(home.Progress())
		}
	}
	ask := func(i int) {
		r, err := v.ask(ctx, out.copies[i].node, req)
		if err != nil {
			out.copies[i].err = err
			return
		}
		out.copies[i].sum = sumOf(r)
	}
	for req.GetRevision() == 0 && len(order) > 0 {
		i := order[0]
		order = order[1:]
		if ask(i); out.copies[i].sum != nil {
			req.Revision = int64(out.copies[i].sum.Revision)
		}
	}
	var all sync.WaitGroup
	for _, i := range order {
		all.Go(func() { ask(i) })
	}
	all.Wait()
	out.revision = kv.Revision(req.GetRevision())
	var gone *kv.CompactedError
	for i := range out.copies {
		if errors.As(out.copies[i].err, &gone) {
			return nil, gone
		}
	}
	if out.compared() == 0 {
		return nil, fmt.Errorf("shard %d: no copy can be compared: %w", sh.ID, out.copies[0].err)
	}
	return out, nil
}

func (v *verifier) request(m *shard.Map, sh *shard.Shard) *peerv1.DigestRequest {
	r := &peerv1.DigestRequest{ShardId: uint64(sh.ID), Lineage: m.Lineage}
	r.Key, r.RangeEnd = sh.Range.Etcd()
	return r
}

// ask asks a node, which may be this one.
func (v *verifier) ask(ctx context.Context, node shard.NodeID, req *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	if node == v.n.self {
		return v.n.Digest(ctx, req)
	}
	conn, err := v.n.peers.conn(node)
	if err != nil {
		return nil, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).Digest(ctx, req)
	return r, wire.Error(err)
}

func sumOf(r *peerv1.DigestResponse) *cache.Digest {
	d := &cache.Digest{Revision: kv.Revision(r.GetRevision()), Keys: r.GetKeys(), Bytes: r.GetBytes()}
	copy(d.Buckets[:], r.GetBuckets())
	return d
}

// explain finds the keys that differ, and which copies are wrong.
func (v *verifier) explain(ctx context.Context, m *shard.Map, sh *shard.Shard, out *finding) error {
	var base *cache.Digest
	var buckets []uint32
	for _, c := range out.copies {
		switch {
		case c.sum == nil:
		case base == nil:
			base = c.sum
		default:
			buckets = append(buckets, base.Differ(c.sum)...)
		}
	}
	if len(buckets) == 0 {
		return nil
	}
	out.decided = false
	slices.Sort(buckets)
	buckets = slices.Compact(buckets)
	// So many that all their keys can be told; one at least.
	most := max(1, int(detailed*cache.DigestBuckets/max(1, base.Keys)))
	out.more = len(buckets) > most
	req := v.request(m, sh)
	req.Revision, req.Buckets = int64(out.revision), buckets[:min(most, len(buckets))]
	lists := make([][]cache.KeyDigest, len(out.copies))
	end, cut := "", false // the lists are comparable below it
	for i := range out.copies {
		c := &out.copies[i]
		if c.sum == nil {
			continue
		}
		r, err := v.ask(ctx, c.node, req)
		if err != nil {
			var gone *kv.CompactedError
			if errors.As(err, &gone) {
				return err
			}
			c.sum, c.err = nil, err
			continue
		}
		lists[i] = keysOf(r)
		if last := len(lists[i]) - 1; r.GetMore() && (!cut || lists[i][last].Key < end) {
			end, cut = lists[i][last].Key, true
		}
	}
	keys := make(map[string][]cache.KeyDigest) // of each copy
	for i, list := range lists {
		for _, k := range list {
			if cut && k.Key >= end {
				break
			}
			if keys[k.Key] == nil {
				keys[k.Key] = make([]cache.KeyDigest, len(lists))
			}
			keys[k.Key][i] = k
		}
	}
	var differ []string
	for key, of := range keys {
		if !v.alike(out, of) {
			differ = append(differ, key)
		}
	}
	slices.Sort(differ)
	if len(differ) > differing {
		differ, out.more = differ[:differing], true
	}
	v.judge(ctx, sh, out, differ, keys)
	return nil
}

// alike reports whether all copies have a key alike.
func (v *verifier) alike(out *finding, of []cache.KeyDigest) bool {
	var first *cache.KeyDigest
	for i := range out.copies {
		switch {
		case out.copies[i].sum == nil:
		case first == nil:
			first = &of[i]
		case of[i].ModRevision != first.ModRevision || of[i].Hash != first.Hash:
			return false
		}
	}
	return true
}

func keysOf(r *peerv1.DigestResponse) []cache.KeyDigest {
	out := make([]cache.KeyDigest, 0, len(r.GetKeyDigests()))
	for _, k := range r.GetKeyDigests() {
		out = append(out, cache.KeyDigest{Key: string(k.GetKey()), ModRevision: kv.Revision(k.GetModRevision()), Hash: k.GetHash()})
	}
	return out
}

// judge says which copies are wrong: those that have a key otherwise than etcd, or,
// when etcd does not say, than most copies.
func (v *verifier) judge(ctx context.Context, sh *shard.Shard, out *finding, differ []string, keys map[string][]cache.KeyDigest) {
	truth := make(map[string]cache.KeyDigest)
	for _, key := range differ[:min(judged, len(differ))] {
		is, err := v.etcdSays(ctx, key, out.revision)
		if err != nil {
			v.n.log.Debug("etcd does not say which copy is right", "shard", uint64(sh.ID), "error", err)
			clear(truth)
			break
		}
		truth[key] = is
	}
	if len(truth) == 0 {
		for _, key := range differ {
			if is, some := majority(out, keys[key]); some {
				truth[key] = is
			}
		}
	}
	out.decided = len(truth) > 0
	for _, key := range differ {
		is, known := truth[key]
		if !known {
			out.differences = append(out.differences, keyDifference{key: key})
			continue
		}
		for i := range out.copies {
			c := &out.copies[i]
			if has := keys[key][i]; c.sum != nil && (has.ModRevision != is.ModRevision || has.Hash != is.Hash) {
				c.wrong = true
				out.differences = append(out.differences, keyDifference{key, c.node, has.ModRevision})
			}
		}
	}
}

// majority returns what more than half of the copies have of a key.
func majority(out *finding, of []cache.KeyDigest) (cache.KeyDigest, bool) {
	for i := range of {
		same := 0
		for k := range of {
			if out.copies[i].sum != nil && out.copies[k].sum != nil && of[i].Hash == of[k].Hash && of[i].ModRevision == of[k].ModRevision {
				same++
			}
		}
		if 2*same > out.compared() {
			return of[i], true
		}
	}
	return cache.KeyDigest{}, false
}

// etcdSays returns what etcd has of a key at a revision.
func (v *verifier) etcdSays(ctx context.Context, key string, revision kv.Revision) (is cache.KeyDigest, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = v.n.cfg.Etcd.At(ctx, kv.Single(key), revision, func(kvs []*kv.KeyValue) error {
		for _, k := range kvs {
			is = digestOf(k)
		}
		return nil
	})
	if err == nil {
		err = v.sameHistory(ctx)
	}
	return is, err
}

// sameHistory fails when etcd has another history than the one that is served: then
// its word means nothing.
func (v *verifier) sameHistory(ctx context.Context) error {
	if _, err := v.n.cfg.Etcd.Look(ctx); err != nil {
		return fmt.Errorf("look whether etcd is the one of before: %w", err)
	}
	return nil
}

func digestOf(k *kv.KeyValue) cache.KeyDigest {
	return cache.KeyDigest{Key: string(k.Key()), ModRevision: k.ModRevision(), Hash: cache.HashOf(k)}
}

// withEtcd has a copy compared with etcd by the node that has it.
func (v *verifier) withEtcd(ctx context.Context, m *shard.Map, sh *shard.Shard, out *finding, c *copied) error {
	req := v.request(m, sh)
	req.Etcd = true
	r, err := v.ask(ctx, c.node, req)
	if err != nil {
		return err
	}
	out.etcd = true
	for _, k := range keysOf(r) {
		c.wrong = true
		out.differences = append(out.differences, keyDifference{k.Key, c.node, k.ModRevision})
	}
	out.more = out.more || r.GetMore()
	return nil
}

// Digest implements server.Verifier.
func (n *Node) Digest(ctx context.Context, r *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	id := shard.ID(r.GetShardId())
	home := n.Replica(id)
	if home == nil {
		return nil, &kv.NotHereError{Shard: uint64(id)}
	}
	if r.GetLineage() != home.Lineage() {
		return nil, &kv.LineageError{Requested: r.GetLineage(), Current: home.Lineage()}
	}
	if key, end := home.Range().Etcd(); string(key) != string(r.GetKey()) || string(end) != string(r.GetRangeEnd()) {
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d is another range here", id)}
	}
	soon, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	if revision := kv.Revision(r.GetRevision()); revision > home.Progress() {
		home.Demand(revision)
	}
	state, err := home.At(soon, kv.Revision(r.GetRevision())) // now: it may have to wait for its turn
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d is at revision %d, behind %d", id, home.Progress(), r.GetRevision())}
	case errors.Is(err, cache.ErrNotReady), errors.Is(err, cache.ErrRetired):
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d: %v", id, err)}
	case err != nil:
		return nil, err
	}
	if r.GetEtcd() {
		return n.verifier.againstEtcd(ctx, home, state)
	}
	pace, done, err := n.verifier.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &peerv1.DigestResponse{Revision: int64(state.Revision)}
	if len(r.GetBuckets()) > 0 {
		keys, more, err := state.KeyDigests(ctx, r.GetBuckets(), detailed, pace)
		out.KeyDigests, out.More = keyMessages(keys), more
		return out, err
	}
	d, err := state.Digest(ctx, pace)
	if err != nil {
		return nil, err
	}
	n.verifier.bytes.Add(d.Bytes)
	out.Keys, out.Bytes, out.Buckets = d.Keys, d.Bytes, d.Buckets[:]
	return out, nil
}

func keyMessages(keys []cache.KeyDigest) []*peerv1.KeyDigest {
	out := make([]*peerv1.KeyDigest, 0, len(keys))
	for _, k := range keys {
		out = append(out, &peerv1.KeyDigest{Key: []byte(k.Key), ModRevision: int64(k.ModRevision), Hash: k.Hash})
	}
	return out
}

// begin waits for the turn to sum up. pace is to be called now and then: it has who
// works pause, so that work takes no more than its share; done ends the work, and
// the turn when the share allows it.
func (v *verifier) begin(ctx context.Context) (pace func(context.Context) error, done func(), err error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	began := time.Now()
	worked := func() (rest time.Duration) {
		w := time.Since(began)
		v.busy.Add(int64(w))
		return time.Duration(float64(w) * (1/verifyShare - 1))
	}
	return func(ctx context.Context) error {
			select {
			case <-time.After(worked()):
			case <-ctx.Done():
				return ctx.Err()
			}
			began = time.Now()
			return nil
		}, func() {
			time.AfterFunc(worked(), func() { <-v.turn })
		}, nil
}

// againstEtcd compares a state with etcd's at its revision.
func (v *verifier) againstEtcd(ctx context.Context, home *cache.Cache, state *cache.Snapshot) (*peerv1.DigestResponse, error) {
	rest := home.Range()
	var found []cache.KeyDigest
	errEnough := errors.New("enough")
	differ := func(mine, is []cache.KeyDigest) error {
		for _, d := range cache.Differences(mine, is) {
			if len(found) == differing {
				return errEnough
			}
			found = append(found, cache.KeyDigest{Key: d.Key, ModRevision: d.Mine.ModRevision, Hash: d.Mine.Hash})
		}
		return nil
	}
	err := v.n.cfg.Etcd.At(ctx, rest, state.Revision, func(page []*kv.KeyValue) error {
		is, bytes := make([]cache.KeyDigest, len(page)), 0
		for i, k := range page {
			is[i] = digestOf(k)
			bytes += len(k.Encoded())
		}
		next := is[len(is)-1].Key + "\x00"
		mine := state.Keys(kv.Range{Start: rest.Start, End: next}, -1)
		rest.Start = next
		select {
		case <-time.After(time.Duration(bytes) * time.Second / etcdRate):
		case <-ctx.Done():
			return ctx.Err()
		}
		return differ(mine, is)
	})
	if err == nil {
		err = differ(state.Keys(rest, differing+1), nil)
	}
	more := errors.Is(err, errEnough)
	if err != nil && !more {
		return nil, err
	}
	if err := v.sameHistory(ctx); err != nil {
		return nil, err
	}
	return &peerv1.DigestResponse{Revision: int64(state.Revision), KeyDigests: keyMessages(found), More: more}, nil
}

// Verify implements server.Verifier.
func (n *Node) Verify(ctx context.Context, ids []shard.ID, etcd bool, tell func(*shardwatchv1.VerifyResponse) error) error {
	m := n.placement.Map()
	if m == nil {
		return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "this node knows no shard map yet"}
	}
	var shards []*shard.Shard
	for i := range m.Shards {
		if len(ids) == 0 || slices.Contains(ids, m.Shards[i].ID) {
			shards = append(shards, &m.Shards[i])
		}
	}
	for _, id := range ids {
		if _, ok := m.Shard(id); !ok {
			return &kv.InvalidError{Field: "shard_ids", Reason: fmt.Sprintf("there is no shard %d", id)}
		}
	}
	if len(shards) == 0 {
		return tell(&shardwatchv1.VerifyResponse{})
	}
	for i, sh := range shards {
		out, err := n.verifier.examine(ctx, m, sh, etcd)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			out = &finding{copies: []copied{{node: sh.Owner(), err: err}}}
		}
		r := out.message(sh)
		r.Checked, r.Total = int64(i+1), int64(len(shards))
		if err := tell(r); err != nil {
			return err
		}
		for _, c := range out.copies { // what was found by hand is healed, too
			if c.wrong && c.node == n.self {
				n.Recheck(sh.ID, n.self)
			} else if c.wrong {
				n.verifier.point(ctx, c.node, sh.ID)
			}
		}
	}
	return nil
}

func (f *finding) message(sh *shard.Shard) *shardwatchv1.VerifyResponse {
	r := &shardwatchv1.VerifyResponse{ShardId: uint64(sh.ID), Revision: int64(f.revision), Etcd: f.etcd, More: f.more}
	if f.etcdErr != nil {
		r.EtcdError = f.etcdErr.Error()
	}
	for _, c := range f.copies {
		m := &shardwatchv1.VerifiedCopy{Node: string(c.node), Wrong: c.wrong}
		if c.sum != nil {
			m.Keys, m.Bytes, m.Digest = c.sum.Keys, c.sum.Bytes, c.sum.Sum()
		}
		if c.err != nil {
			m.Error = c.err.Error()
		}
		r.Copies = append(r.Copies, m)
	}
	for _, d := range f.differences {
		r.Differences = append(r.Differences, &shardwatchv1.KeyDifference{Key: []byte(d.key), Node: string(d.node), ModRevision: int64(d.mod)})
	}
	return r
}
