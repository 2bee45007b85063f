package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// finding is the result of a comparison.
type finding struct {
	revision    kv.Revision
	copies      []copied
	differences []keyDifference
	more        bool  // more keys differ
	decided     bool  // the wrong copies are known
	etcd        bool  // one copy was compared with etcd
	etcdErr     error // why none was compared with etcd
}

// copied is one node's copy.
type copied struct {
	node  shard.NodeID
	sum   *keytree.Digest // nil: no digest
	err   error           // why there is no digest
	wrong bool
	etcd  bool // the comparison with etcd found it wrong
}

// keyDifference is a key that differs in a copy.
type keyDifference struct {
	key  string
	node shard.NodeID // "": it is unknown which copy is wrong
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

// compared returns the number of compared copies.
func (f *finding) compared() int {
	n := 0
	for i := range f.copies {
		if f.copies[i].sum != nil {
			n++
		}
	}
	return n
}

// examine compares all copies of a shard at one revision. With etcd, it also compares
// one copy with etcd: that of this node, if it has one.
func (v *Verifier) examine(ctx context.Context, m *shard.Map, sh *shard.Shard, etcd bool) (*finding, error) {
	var out *finding
	var err error
	for range verifyRetries {
		if out, err = v.compare(ctx, m, sh); err == nil {
			err = v.explain(ctx, m, sh, out)
		}
		var gone *kv.CompactedError
		if !errors.As(err, &gone) { // a slow copy no longer has the revision
			break
		}
	}
	if err != nil || !etcd {
		return out, err
	}
	for _, i := range v.ownFirst(out) {
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

// compare gathers the digests of all copies at one revision, the revision of the first
// copy that answers.
func (v *Verifier) compare(ctx context.Context, m *shard.Map, sh *shard.Shard) (*finding, error) {
	out := &finding{copies: make([]copied, len(sh.Replicas)), decided: true}
	for i, node := range sh.Replicas {
		out.copies[i].node = node
	}
	order := v.ownFirst(out)
	req := v.request(m, sh)
	if len(order) > 0 && out.copies[order[0]].node == v.cfg.Self {
		// The others can begin once the revision is known.
		if home := v.cfg.Replica(sh.ID); home != nil {
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

// ownFirst returns the order in which to ask the nodes: this node first.
func (v *Verifier) ownFirst(out *finding) []int {
	order := make([]int, 0, len(out.copies))
	for i := range out.copies {
		if out.copies[i].node == v.cfg.Self {
			order = slices.Insert(order, 0, i)
		} else {
			order = append(order, i)
		}
	}
	return order
}

func (v *Verifier) request(m *shard.Map, sh *shard.Shard) *peerv1.DigestRequest {
	r := &peerv1.DigestRequest{ShardId: uint64(sh.ID), Lineage: m.Lineage}
	r.Key, r.RangeEnd = sh.Range.Etcd()
	return r
}

// ask asks a node, or this node itself, for a digest.
func (v *Verifier) ask(ctx context.Context, node shard.NodeID, req *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	if node == v.cfg.Self {
		return v.Digest(ctx, req)
	}
	conn, err := v.cfg.Conn(node)
	if err != nil {
		return nil, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).Digest(ctx, req)
	return r, wire.Error(err)
}

func sumOf(r *peerv1.DigestResponse) *keytree.Digest {
	d := &keytree.Digest{Revision: kv.Revision(r.GetRevision()), Keys: r.GetKeys(), Bytes: r.GetBytes()}
	copy(d.Buckets[:], r.GetBuckets())
	return d
}

// explain finds the differing keys and the wrong copies.
func (v *Verifier) explain(ctx context.Context, m *shard.Map, sh *shard.Shard, out *finding) error {
	var base *keytree.Digest
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
	// As many as can be reported with all of their keys, but at least one.
	most := max(1, int(detailed*keytree.DigestBuckets/max(1, base.Keys)))
	out.more = len(buckets) > most
	req := v.request(m, sh)
	req.Revision, req.Buckets = int64(out.revision), buckets[:min(most, len(buckets))]
	lists := make([][]keytree.KeyDigest, len(out.copies))
	end, cut := "", false // the lists are comparable below end
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
	keys := make(map[string][]keytree.KeyDigest) // of each copy
	for i, list := range lists {
		for _, k := range list {
			if cut && k.Key >= end {
				break
			}
			if keys[k.Key] == nil {
				keys[k.Key] = make([]keytree.KeyDigest, len(lists))
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

// alike reports whether a key is equal in all copies.
func (v *Verifier) alike(out *finding, of []keytree.KeyDigest) bool {
	var first *keytree.KeyDigest
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

func keysOf(r *peerv1.DigestResponse) []keytree.KeyDigest {
	out := make([]keytree.KeyDigest, 0, len(r.GetKeyDigests()))
	for _, k := range r.GetKeyDigests() {
		out = append(out, keytree.KeyDigest{Key: string(k.GetKey()), ModRevision: kv.Revision(k.GetModRevision()), Hash: k.GetHash()})
	}
	return out
}

// judge marks the wrong copies: copies with a key that differs from etcd, or, when etcd
// does not answer, from most copies.
func (v *Verifier) judge(ctx context.Context, sh *shard.Shard, out *finding, differ []string, keys map[string][]keytree.KeyDigest) {
	truth := make(map[string]keytree.KeyDigest)
	for _, key := range differ[:min(judged, len(differ))] {
		is, err := v.etcdSays(ctx, key, out.revision)
		if err != nil {
			v.log.Debug("etcd does not show which copy is right", "shard", uint64(sh.ID), "error", err)
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

// majority returns the value of a key in more than half of the copies.
func majority(out *finding, of []keytree.KeyDigest) (keytree.KeyDigest, bool) {
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
	return keytree.KeyDigest{}, false
}

// etcdSays returns the digest of a key in etcd at a revision.
func (v *Verifier) etcdSays(ctx context.Context, key string, revision kv.Revision) (is keytree.KeyDigest, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = v.cfg.Etcd.At(ctx, kv.Single(key), revision, func(kvs []*kv.KeyValue) error {
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

// sameHistory fails when etcd has another history than the served one: then its data
// proves nothing.
func (v *Verifier) sameHistory(ctx context.Context) error {
	if _, err := v.cfg.Etcd.Look(ctx); err != nil {
		return fmt.Errorf("check that etcd's history is the same: %w", err)
	}
	return nil
}

func digestOf(k *kv.KeyValue) keytree.KeyDigest {
	return keytree.KeyDigest{Key: string(k.Key()), ModRevision: k.ModRevision(), Hash: keytree.HashOf(k)}
}

// withEtcd asks the node of a copy to compare it with etcd.
func (v *Verifier) withEtcd(ctx context.Context, m *shard.Map, sh *shard.Shard, out *finding, c *copied) error {
	req := v.request(m, sh)
	req.Etcd = true
	r, err := v.ask(ctx, c.node, req)
	if err != nil {
		return err
	}
	out.etcd = true
	for _, k := range keysOf(r) {
		c.wrong, c.etcd = true, true
		out.differences = append(out.differences, keyDifference{k.Key, c.node, k.ModRevision})
	}
	out.more = out.more || r.GetMore()
	return nil
}
