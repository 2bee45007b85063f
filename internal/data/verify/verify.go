package verify

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Verifier compares the copies of shards with each other and, less often, with etcd,
// and reloads wrong copies of this node.
//
// For each shard its first live node asks the others. A node judges only itself: a node
// that is notified of a difference compares again and asks etcd for the differing keys.
// If etcd differs, the node stops serving the shard until it has reloaded it from
// another node. So no node can take another one out of service.
type Verifier struct {
	cfg Config
	log *slog.Logger
	// turn is held while a state is digested: one at a time, so that all together take
	// no more than verifyShare.
	turn  chan struct{}
	hints chan hint // reports that copies of this node differ

	mu      sync.Mutex
	shards  map[shard.ID]*verified // guarded by mu
	history map[copyID]struct{}    // guarded by mu; logged differences that still exist

	rounds, differences, quarantines, bytes, busy atomic.Int64 // busy in nanoseconds
}

// copyID is a node's copy of a shard.
type copyID struct {
	shard shard.ID
	node  shard.NodeID
}

// hint is a report that a copy of this node differs from another one, or from etcd.
type hint struct {
	id   shard.ID
	etcd bool
}

// verified has the times of a copy's comparisons.
type verified struct {
	equal time.Time // when it was last found equal to another copy, or to etcd
	tried time.Time // when it was last compared, or that was attempted
	etcd  time.Time // when it was last compared with etcd
}

// Bounds of comparisons.
const (
	// verifyShare bounds the verifier's share of one CPU.
	verifyShare = 0.05
	// verifyTimeout bounds the comparison of one shard, progressTimeout the wait until
	// a copy has reached the revision of another.
	verifyTimeout   = 15 * time.Minute
	progressTimeout = 5 * time.Second
	// detailed bounds the keys of a copy that are reported individually, differing the
	// reported differing keys, judged the keys that are read from etcd.
	detailed  = 50_000
	differing = 100
	judged    = 16
	// etcdRate is the rate of comparisons with etcd, in bytes per second.
	etcdRate = 16 << 20
	// verifyRetries bounds the attempts to have all copies at one revision.
	verifyRetries = 3
)

// New returns a Verifier that does nothing yet.
func New(cfg Config) *Verifier {
	return &Verifier{
		cfg: cfg, log: cfg.Logger, turn: make(chan struct{}, 1), hints: make(chan hint, 256),
		shards: make(map[shard.ID]*verified), history: make(map[copyID]struct{}),
	}
}

// Run compares the copies of the shards of mine once per interval, one after the other,
// until ctx ends.
func (v *Verifier) Run(ctx context.Context) error {
	for {
		id, pause := v.next()
		etcd := false
		var due <-chan time.Time
		if pause > 0 {
			due = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case h := <-v.hints:
			id, etcd = h.id, h.etcd
		case <-due:
		}
		if id == 0 {
			continue // nothing here yet
		}
		if err := v.round(ctx, id, etcd); err != nil && ctx.Err() == nil {
			v.log.Debug("copies were not compared", "shard", uint64(id), "error", err)
		}
	}
}

// next returns the shard of mine whose last comparison is oldest, and the time until
// the next one is due; 0: never.
func (v *Verifier) next() (shard.ID, time.Duration) {
	every := v.cfg.Interval
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
		if v.shards[id] == nil { // spread the first comparisons over the interval
			ago := rand.N(every)
			etcd := time.Duration(0)
			if e := v.cfg.EtcdInterval; e > 0 {
				etcd = rand.N(e)
			}
			v.shards[id] = &verified{tried: now.Add(-ago), etcd: now.Add(-etcd)}
		}
		if v.shards[id].tried.Before(v.shards[first].tried) {
			first = id
		}
	}
	// Never faster than an even spread: late comparisons are not made up.
	return first, max(every/time.Duration(2*len(mine)), time.Until(v.shards[first].tried.Add(every)))
}

// forgetLocked drops shards that are gone, once they are many.
func (v *Verifier) forgetLocked() {
	m := v.cfg.Map()
	if m == nil || len(v.shards) <= 2*len(m.Shards)+64 {
		return
	}
	there := make(map[shard.ID]bool, len(m.Shards))
	for i := range m.Shards {
		there[m.Shards[i].ID] = true
	}
	maps.DeleteFunc(v.shards, func(id shard.ID, _ *verified) bool { return !there[id] })
}

// mine returns the shards of which this node is the first live one.
func (v *Verifier) mine() []shard.ID {
	m := v.cfg.Map()
	if m == nil || !v.cfg.Serving() {
		return nil
	}
	alive := make(map[shard.NodeID]bool)
	for _, member := range v.cfg.Members() {
		alive[member.Name] = member.State == shard.Alive
	}
	var out []shard.ID
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == v.cfg.Self {
				out = append(out, m.Shards[i].ID)
			}
			if r == v.cfg.Self || alive[r] {
				break
			}
		}
	}
	return out
}

// round compares one shard and handles the differences. With etcd it also compares this
// node's copy with etcd, due or not.
func (v *Verifier) round(ctx context.Context, id shard.ID, etcd bool) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	m := v.cfg.Map()
	if m == nil {
		return nil // another node reports a copy of an earlier run of this node
	}
	sh, ok := m.Shard(id)
	if !ok {
		return nil
	}
	v.note(id, func(k *verified) { k.tried = time.Now() })
	own := v.cfg.Replica(id)
	if own == nil {
		return nil
	}
	out, err := v.examine(ctx, m, &sh, v.etcdDue(id) || etcd)
	if err != nil {
		return err
	}
	v.rounds.Add(1)
	v.tell(m, &sh, out)
	if out.etcd {
		v.note(id, func(k *verified) { k.etcd = time.Now() })
	}
	if len(out.differences) == 0 && out.of(v.cfg.Self) != nil && (out.etcd || out.compared() > 1) {
		v.note(id, func(k *verified) { k.equal = time.Now() })
	}
	for _, c := range out.copies {
		switch {
		case !c.wrong:
		case c.node == v.cfg.Self:
			return v.Quarantine(ctx, id, own, v.alikeWrong(out))
		default:
			v.AskRecheck(ctx, c.node, id, c.etcd)
		}
	}
	return nil
}

func (v *Verifier) note(id shard.ID, change func(*verified)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.shards[id]
	if k == nil {
		k = &verified{etcd: time.Now()}
		v.shards[id] = k
	}
	change(k)
}

func (v *Verifier) etcdDue(id shard.ID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	every := v.cfg.EtcdInterval
	return every > 0 && time.Since(v.shards[id].etcd) > every
}

// Age returns the time since this node's copy was last found to be equal.
func (v *Verifier) Age(id shard.ID) (time.Duration, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.shards[id]
	if k == nil || k.equal.IsZero() {
		return 0, false
	}
	return time.Since(k.equal), true
}

// differing returns the number of differing copies of the shards at their last
// comparison. Copies that the map no longer has do not count.
func (v *Verifier) differing(m *shard.Map, ids []shard.ID) (copies int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		sh, _ := m.Shard(id)
		for _, r := range sh.Replicas {
			_, differs := v.history[copyID{id, r}]
			copies += telemetry.Bool(differs)
		}
	}
	return copies
}

// tell logs each difference once while it exists.
func (v *Verifier) tell(m *shard.Map, sh *shard.Shard, out *finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range out.copies {
		key := copyID{sh.ID, c.node}
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
		case c.node == v.cfg.Self && c.wrong:
			v.log.Error("the copy of a shard is wrong here: it is reloaded and serves no requests until then", args...)
		case c.wrong:
			v.log.Warn("the copy of a shard is wrong at another node, which is notified", args...)
		default:
			v.log.Error("copies of a shard differ, and it is unknown which is right: etcd does not answer, and there is no majority", args...)
		}
	}
}

// AskRecheck reports to a node that its copy differs from another one or from etcd.
func (v *Verifier) AskRecheck(ctx context.Context, node shard.NodeID, id shard.ID, etcd bool) {
	conn, err := v.cfg.Conn(node)
	if err == nil {
		_, err = peerv1.NewPeerServiceClient(conn).Recheck(ctx, &peerv1.RecheckRequest{ShardId: uint64(id), Node: string(v.cfg.Self), Etcd: etcd})
	}
	if err != nil {
		v.log.Warn("a node could not be notified that its copy is wrong", "shard", uint64(id), "replica", string(node), "error", wire.Error(err))
	}
}

// Recheck implements server.Verifier.
func (v *Verifier) Recheck(id shard.ID, from shard.NodeID, etcd bool) {
	v.log.Debug("another node reports that the copy of a shard differs", "shard", uint64(id), "peer", string(from), "etcd", etcd)
	select {
	case v.hints <- hint{id, etcd}:
	default: // the reporting node repeats it
	}
}

// Quarantine reloads the wrong copy of this node, but not from the nodes in avoid. It
// fails only when ctx ends.
func (v *Verifier) Quarantine(ctx context.Context, id shard.ID, wrong *cache.Cache, avoid []string) error {
	begun, err := v.cfg.Renew(ctx, id, wrong, avoid)
	if begun {
		v.quarantines.Add(1)
		v.note(id, func(k *verified) { k.equal = time.Time{} })
	}
	return err
}

// alikeWrong returns the other nodes whose copies are wrong, or equal to this node's copy.
func (v *Verifier) alikeWrong(out *finding) (nodes []string) {
	own := out.of(v.cfg.Self)
	for _, c := range out.copies {
		alike := c.sum != nil && own != nil && len(own.sum.Differ(c.sum)) == 0
		if c.node != v.cfg.Self && (c.wrong || alike) {
			nodes = append(nodes, string(c.node))
		}
	}
	return nodes
}

// Verify implements server.Verifier.
func (v *Verifier) Verify(ctx context.Context, ids []shard.ID, etcd bool, tell func(*shardwatchv1.VerifyResponse) error) error {
	m := v.cfg.Map()
	if m == nil {
		return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "this node has no shard map yet"}
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
		out, err := v.examine(ctx, m, sh, etcd)
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
		for _, c := range out.copies { // differences found on request are also repaired
			if c.wrong && c.node == v.cfg.Self {
				v.Recheck(sh.ID, v.cfg.Self, c.etcd)
			} else if c.wrong {
				v.AskRecheck(ctx, c.node, sh.ID, c.etcd)
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
