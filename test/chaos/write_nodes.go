package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// promiseWritten: an acknowledged write exists at the revision of its answer, and no write happens
// twice.
const promiseWritten check.Promise = "acknowledged write"

// passed are writes through the nodes. A write without an answer has happened once or not at all;
// etcd's own watch shows it.
type passed struct {
	client *clientv3.Client // of all nodes
	keys   keyspace
	acked  *ackLog

	mu      sync.Mutex
	writes  []written      // guarded by mu; not judged yet
	unknown map[string]int // guarded by mu; by error
}

// written is the intended effect of one write on one key.
type written struct {
	key    string
	value  uint64 // the hash; of a delete 0
	delete bool
	// behind is a revision before the write.
	behind kv.Revision
	// rev is the revision of the answer; 0: no answer came.
	rev kv.Revision
}

// leaseTTL is in seconds.
const leaseTTL = 5

// one makes one write. It fails only if ctx has ended: judge decides about all other failures.
func (p *passed) one(ctx context.Context, rng *rand.Rand) (int64, error) {
	timed, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	behind := kv.Revision(p.acked.newest())
	put := func(key, value string) (clientv3.Op, written) {
		return clientv3.OpPut(key, value), written{key: key, value: check.HashValue([]byte(value)), behind: behind}
	}
	var rev int64
	var ws []written
	var err error
	switch n := rng.IntN(100); {
	case n < 20: // over two prefixes
		a := rng.IntN(p.keys.prefixes)
		b := (a + 1 + rng.IntN(p.keys.prefixes-1)) % p.keys.prefixes
		op1, w1 := put(p.keys.key(a, rng.IntN(p.keys.keys)), value(rng))
		op2, w2 := put(p.keys.key(b, rng.IntN(p.keys.keys)), value(rng))
		ws = []written{w1, w2}
		var r *clientv3.TxnResponse
		if r, err = p.client.Txn(timed).Then(op1, op2).Commit(); err == nil {
			rev = r.Header.Revision
		}
	case n < 35:
		key := p.keys.any(rng)
		var r *clientv3.DeleteResponse
		if r, err = p.client.Delete(timed, key); err == nil {
			if rev = r.Header.Revision; r.Deleted > 0 {
				ws = []written{{key: key, delete: true, behind: behind}}
			}
		}
	case n < 40:
		return p.leased(timed, rng)
	default:
		op, w := put(p.keys.any(rng), value(rng))
		ws = []written{w}
		var r clientv3.OpResponse
		if r, err = p.client.Do(timed, op); err == nil {
			rev = r.Put().Header.Revision
		}
	}
	p.note(rev, err, ws...)
	return rev, ctx.Err()
}

// leased puts two keys with a lease and revokes the lease, or lets it expire: etcd makes both
// deletes.
func (p *passed) leased(ctx context.Context, rng *rand.Rand) (int64, error) {
	grant, err := p.client.Grant(ctx, leaseTTL)
	if err != nil {
		p.note(0, err)
		return 0, nil
	}
	var rev int64
	for range 2 {
		w := written{key: p.keys.any(rng), behind: kv.Revision(p.acked.newest())}
		v := value(rng)
		w.value = check.HashValue([]byte(v))
		r, err := p.client.Put(ctx, w.key, v, clientv3.WithLease(grant.ID))
		rev = 0
		if err == nil {
			rev = r.Header.Revision
		}
		p.note(rev, err, w)
	}
	switch rng.IntN(3) {
	case 0:
		_, err = p.client.Revoke(ctx, grant.ID)
		p.note(0, err)
	case 1:
		_, err = p.client.KeepAliveOnce(ctx, grant.ID)
		p.note(0, err)
	}
	return rev, nil
}

// note records the intended effect of a write.
func (p *passed) note(rev int64, err error, ws ...written) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.unknown == nil {
			p.unknown = map[string]int{}
		}
		p.unknown[err.Error()]++
	}
	for _, w := range ws {
		w.rev = kv.Revision(rev)
		p.writes = append(p.writes, w)
	}
}

// judge compares the writes with the history and removes them. It returns their number, and the
// errors of writes without an answer.
func (p *passed) judge(h *check.History) (judged int, unknown map[string]int, broken []check.Violation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writes {
		broken = append(broken, w.check(h)...)
	}
	judged, unknown = len(p.writes), p.unknown
	p.writes, p.unknown = nil, nil
	return judged, unknown, broken
}

// check judges one write. Values are random, so no two writes share one.
func (w written) check(h *check.History) []check.Violation {
	r := kv.Single(w.key)
	var at []kv.Revision
	for _, rev := range h.Touching(r, w.behind, h.Head()) {
		for _, e := range h.Events(r, rev) {
			if w.delete && e.Type == kv.Delete && rev == w.rev || !w.delete && e.Type == kv.Put && e.KV.Value == w.value {
				at = append(at, rev)
			}
		}
	}
	v := check.Violation{Promise: promiseWritten, Watcher: "a write through the nodes", Revision: w.rev, Key: w.key, Got: fmt.Sprintf("it at %v", at)}
	switch {
	case w.rev > 0 && (len(at) != 1 || at[0] != w.rev):
		v.Expected = "it once, at the revision of the answer"
	case len(at) > 1:
		v.Expected = "it once, or not at all"
	default:
		return nil
	}
	return []check.Violation{v}
}
