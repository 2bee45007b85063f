package cache

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// maxClaims bounds the keys whose held values a contradiction reports.
const maxClaims = 16

// agree fails with a *kv.ContradictionError when the events of h cannot have led to
// state at revision: etcd was restored since, or one of the two is wrong.
func (h *Past) agree(state *keytree.Tree, revision kv.Revision) error {
	upTo := min(h.Progress, revision)
	last := h.last(upTo)
	var first string
	var claims []kv.Claim
	differs := func(claim kv.Claim, format string, args ...any) bool {
		if claim.Revision = upTo; first == "" {
			first = fmt.Sprintf(format, args...)
		}
		claims = append(claims, claim)
		return len(claims) < maxClaims
	}
	left := maps.Clone(last) // keys of last that are not in state
	state.Scan(func(item *kv.KeyValue) bool {
		key := string(item.Key())
		e := last[key]
		delete(left, key)
		switch at := item.ModRevision(); {
		case at > upTo: // changed since
		case e == nil && at < h.Floor:
		case e == nil:
			return differs(kv.Claim{Key: key, Below: h.Floor}, "%q has mod revision %d, but no event from %d to %d", key, at, h.Floor, upTo)
		case e.Type == kv.Delete || e.KV.ModRevision() != at:
			return differs(kv.Claim{Key: key, Held: leaves(e)}, "%q has mod revision %d, but its last change up to %d was the %v at %d", key, at, upTo, e.Type, e.KV.ModRevision())
		case !bytes.Equal(e.KV.Encoded(), item.Encoded()):
			return differs(kv.Claim{Key: key, Held: e.KV}, "%q has two contents at mod revision %d", key, at)
		}
		return true
	})
	if revision <= h.Progress && len(claims) < maxClaims { // else a missing key may have been deleted since, or was not compared
		for key, e := range left {
			if e.Type == kv.Put && !differs(kv.Claim{Key: key, Held: e.KV}, "%q was put at revision %d, but does not exist at %d", key, e.KV.ModRevision(), revision) {
				break
			}
		}
	}
	if first == "" {
		return nil
	}
	return &kv.ContradictionError{Detail: first, Claims: claims}
}

// last returns the newest event of each key up to a revision.
func (h *Past) last(upTo kv.Revision) map[string]*kv.Event {
	out := make(map[string]*kv.Event)
	for _, b := range h.Batches[:cutBatches(h.Batches, upTo+1)] {
		for i := range b.Events {
			out[string(b.Events[i].KV.Key())] = &b.Events[i]
		}
	}
	return out
}

// leaves returns the key/value after an event; nil after a delete.
func leaves(e *kv.Event) *kv.KeyValue {
	if e.Type == kv.Delete {
		return nil
	}
	return e.KV
}

// claims returns the newest versions in h of the most recently changed keys.
func (h *Past) claims() []kv.Claim {
	last := h.last(h.Progress)
	newest := slices.SortedFunc(maps.Values(last), func(a, b *kv.Event) int { return cmp.Compare(b.KV.ModRevision(), a.KV.ModRevision()) })
	var out []kv.Claim
	for _, e := range newest[:min(len(newest), maxClaims)] {
		out = append(out, kv.Claim{Key: string(e.KV.Key()), Revision: e.KV.ModRevision(), Held: leaves(e)})
	}
	return out
}

// Claims returns the versions that the cache holds of the most recently changed keys, for
// a comparison with etcd; nil if the cache has no state.
func (c *Cache) Claims() []kv.Claim {
	v := c.view.Load()
	if !v.ready || c.cfg.Stateless {
		return nil
	}
	var out []kv.Claim
	for _, key := range c.changes.newest(maxClaims) {
		held, _ := v.root.Get(keytree.Pivot(key))
		// As of the last change: the state is the same from that revision to the progress.
		out = append(out, kv.Claim{Key: key, Revision: v.changed, Held: held})
	}
	return out
}

// newest returns up to most keys: those of the last most/2 deletes, then the most recently put ones.
func (l *changeLog) newest(most int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	seen := make(map[string]bool)
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	for i := len(l.deletes) - 1; i >= 0 && i >= len(l.deletes)-most/2; i-- {
		add(l.deletes[i].Key)
	}
	l.byMod.Reverse(func(item *kv.KeyValue) bool {
		add(string(item.Key()))
		return len(out) < most
	})
	return out
}
