package node

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// suspects decides which side is wrong when a cache and its source contradict each other. One wrong
// byte, in memory, on disk or at a peer, at first looks like a restore of etcd. It therefore
// compares the affected keys and other recently changed keys with etcd.
//
//	several keys differ at etcd   etcd was restored: the lineage ends
//	one key differs at etcd       our copy is wrong: it is reloaded
//	no key differs at etcd        the source is wrong: it is rejected
//	etcd does not answer          nothing is decided yet
type suspects struct {
	n     *Node
	queue chan suspicion

	mu      sync.Mutex
	pending map[*cache.Cache]struct{} // guarded by mu; caches with a suspicion in the queue
}

// suspicion is a contradiction that a cache has found.
type suspicion struct {
	held   *copies.Copy
	source string // the sender of the data
	found  *kv.ContradictionError
}

const (
	// several is the number of contradictions that prove a restore: of keys, or of
	// a key and of a revision that went back. One wrong byte affects one place.
	several = 2
	// witnesses bounds the keys that are compared with etcd.
	witnesses = 16
	// suspectFor is how long a peer is not used while the wrong side is unknown,
	// rejectFor how long a wrong peer is not used.
	suspectFor = 5 * time.Second
	rejectFor  = time.Minute
	// askAgain is the pause while etcd does not answer.
	askAgain = time.Second
)

func newSuspects(n *Node) *suspects {
	return &suspects{n: n, queue: make(chan suspicion, 256), pending: make(map[*cache.Cache]struct{})}
}

// report queues a contradiction that a cache has found. It does not block.
func (s *suspects) report(h *copies.Copy, found *kv.ContradictionError) {
	source := h.Source.Asked()
	if found.Ahead {
		source, _ = h.Source.Current()
	}
	if source != replica.Etcd && source != "" {
		h.Source.Reject(source, suspectFor)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.pending[h.Cache]; twice {
		return
	}
	select {
	case s.queue <- suspicion{h, source, found}:
		s.pending[h.Cache] = struct{}{}
	default: // the cache will find it again
	}
}

// run decides the suspicions one after the other, until ctx ends.
func (s *suspects) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-s.queue:
			for !s.decide(ctx, x) {
				if !wait.Sleep(ctx, askAgain) {
					return nil
				}
			}
			s.mu.Lock()
			delete(s.pending, x.held.Cache)
			s.mu.Unlock()
		}
	}
}

// decide reports whether the suspicion is decided or obsolete.
func (s *suspects) decide(ctx context.Context, x suspicion) bool {
	lineage, why, _ := s.n.cfg.Etcd.Ended()
	if why != nil || lineage != x.held.Cache.Lineage() {
		return true
	}
	claims := slices.Concat(x.found.Claims[:min(len(x.found.Claims), witnesses/2)], s.claims())
	wrong, right, err := s.ask(ctx, claims)
	log := s.n.log.With("shard", uint64(x.held.ID), "source", x.source, "finding", x.found.Detail, "lineage", lineage)
	if err != nil {
		log.Warn("received data contradicts the cache, and etcd does not show which is wrong", "error", err)
		return errors.Is(err, kv.ErrOtherHistory)
	}
	log = log.With("keys_confirmed", right, "keys_contradicted", len(wrong))
	switch judgeSource(len(wrong), x.found.Ahead, x.source) {
	case otherHistory:
		log.Error("etcd contradicts the cache: it has a different history")
		s.n.cfg.Etcd.Suspect(lineage, x.found)
	case wrongCopy:
		s.quarantine(ctx, x, wrong)
	case wrongSource:
		log.Error("a node has sent data that etcd contradicts: its data is not used for a while")
		x.held.Source.Reject(x.source, rejectFor)
		s.n.verifier.AskRecheck(ctx, shard.NodeID(x.source), x.held.ID, true)
	case nothingWrong:
		log.Warn("etcd contradicted the cache, and confirms it now")
	}
	return true
}

// verdict is the wrong side.
type verdict int

const (
	nothingWrong verdict = iota
	wrongSource
	wrongCopy
	otherHistory
)

// judgeSource returns the wrong side, given the number of this node's keys that differ
// at etcd, whether the node is ahead of etcd, and the source of the data.
func judgeSource(contradicted int, ahead bool, source string) verdict {
	if ahead {
		contradicted++
	}
	switch {
	case contradicted >= several:
		return otherHistory
	case contradicted > 0:
		return wrongCopy
	case source != replica.Etcd:
		return wrongSource
	}
	return nothingWrong
}

// quarantine makes the wrong copies reload.
func (s *suspects) quarantine(ctx context.Context, x suspicion, wrong []kv.Claim) {
	bad := []*copies.Copy{}
	for _, claim := range wrong {
		for _, h := range s.n.copies.All() {
			if h.Cache.Range().Contains(claim.Key) && h.Ready() {
				bad = append(bad, h)
			}
		}
	}
	if len(wrong) == 0 {
		bad = append(bad, x.held)
	}
	for _, h := range bad {
		s.n.log.Error("the copy of a shard is wrong here: it is reloaded and serves no requests until then",
			"shard", uint64(h.ID), "finding", x.found.Detail, "lineage", h.Cache.Lineage())
		_ = s.n.verifier.Quarantine(ctx, h.ID, h.Cache, nil) // fails only with ctx
	}
	if len(bad) == 0 {
		s.n.log.Error("the saved history is wrong: it is dropped", "shard", uint64(x.held.ID), "finding", x.found.Detail)
		s.n.history.Drop(x.held.ID)
	}
}

// claims returns this node's versions of the most recently changed keys of every shard.
func (s *suspects) claims() []kv.Claim {
	var lists [][]kv.Claim
	for _, h := range s.n.copies.All() {
		if list := h.Cache.Claims(); len(list) > 0 {
			lists = append(lists, list)
		}
	}
	var out []kv.Claim
	for i := 0; len(out) < witnesses/2; i++ {
		more := false
		for _, list := range lists {
			if i < len(list) {
				out, more = append(out, list[i]), true
			}
		}
		if !more {
			break
		}
	}
	return out
}

// testify compares the caches that were abandoned because etcd seemed to have another history with
// etcd at revision now. It returns the number of keys that differ at etcd, and whether all keys
// could be compared.
func (s *suspects) testify(ctx context.Context, now kv.Revision) (wrong int, sure bool) {
	bad, _, err := s.compareAll(ctx, s.n.copies.Ended(witnesses), now)
	return len(bad), err == nil
}

// ask compares claims with etcd's keys, and fails if etcd no longer has the lineage's history.
func (s *suspects) ask(ctx context.Context, claims []kv.Claim) (wrong []kv.Claim, right int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now, err := s.n.cfg.Etcd.Look(ctx)
	if err == nil {
		wrong, right, err = s.compareAll(ctx, claims, now.Revision)
	}
	if err == nil { // proves that the keys belong to the history of the first look
		_, err = s.n.cfg.Etcd.Look(ctx)
	}
	return wrong, right, err
}

func (s *suspects) compareAll(ctx context.Context, claims []kv.Claim, now kv.Revision) (wrong []kv.Claim, right int, err error) {
	seen := make(map[string]bool)
	for _, claim := range claims {
		if seen[claim.Key] {
			continue
		}
		seen[claim.Key] = true
		switch verdict, err := s.compare(ctx, claim, now); {
		case err != nil:
			return nil, 0, err
		case verdict < 0:
			wrong = append(wrong, claim)
		case verdict > 0:
			right++
		}
	}
	return wrong, right, nil
}

// compare returns 1 when etcd has a key as claimed, -1 when it has not, and 0 when
// this cannot be decided any more, or yet. now is etcd's revision.
func (s *suspects) compare(ctx context.Context, claim kv.Claim, now kv.Revision) (int, error) {
	if claim.Held != nil && claim.Held.ModRevision() > now {
		return -1, nil
	}
	var is *kv.KeyValue
	read := func(at kv.Revision) error {
		is = nil
		return s.n.cfg.Etcd.At(ctx, kv.Single(claim.Key), at, func(kvs []*kv.KeyValue) error {
			for _, k := range kvs {
				is = k
			}
			return nil
		})
	}
	at := min(claim.Revision, now)
	err := read(at)
	if err != nil { // the revision may be compacted
		if at, err = 0, read(0); err != nil {
			return 0, err
		}
	}
	return judgeClaim(claim, is, at), nil
}

// judgeClaim compares a claim with etcd's state of the key at a revision that is at most the
// claim's; 0: at the newest revision.
func judgeClaim(claim kv.Claim, is *kv.KeyValue, at kv.Revision) int {
	var same bool
	switch {
	case is != nil && is.ModRevision() > claim.Revision, is == nil && at == 0:
		return 0 // changed or deleted since
	case claim.Held != nil:
		same = is != nil && bytes.Equal(is.Encoded(), claim.Held.Encoded())
	case claim.Below > 0:
		same = is == nil || is.ModRevision() < claim.Below
	case is != nil && at > 0 && at < claim.Revision:
		return 0 // it may have been deleted at a revision that etcd has not reached
	default:
		same = is == nil
	}
	if same {
		return 1
	}
	return -1
}
