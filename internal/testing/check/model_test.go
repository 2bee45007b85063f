package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// model is an etcd that is too simple to be wrong: a map, and all its changes.
type model struct {
	rng     *rand.Rand
	now     map[string]check.Item
	rev     kv.Revision
	batches []check.Batch // with previous values
}

func newModel(rng *rand.Rand) *model { return &model{rng: rng, now: map[string]check.Item{}, rev: 1} }

// change makes one revision of one to four events over 24 keys.
func (m *model) change() {
	keys := m.rng.Perm(24)[:1+m.rng.IntN(4)]
	b := check.Batch{Revision: m.rev + 1}
	for _, n := range keys {
		key := fmt.Sprintf("/%c/%d", 'a'+n/6, n%6)
		old, exists := m.now[key]
		var e check.Event
		if exists && m.rng.IntN(3) == 0 {
			e = check.Delete(key, b.Revision)
			delete(m.now, key)
		} else {
			i := check.Item{Key: key, Value: m.rng.Uint64(), Create: b.Revision, Mod: b.Revision, Version: 1}
			if exists {
				i.Create, i.Version = old.Create, old.Version+1
			}
			e = check.Put(i)
			m.now[key] = i
		}
		if exists {
			e.Prev = &old
		}
		b.Events = append(b.Events, e)
	}
	m.rev++
	m.batches = append(m.batches, b)
}

// history returns the model's history without previous values, which the checker must find.
func (m *model) history(t *testing.T) *check.History {
	t.Helper()
	h := check.NewHistory(1, nil)
	for _, b := range m.batches {
		bare := check.Batch{Revision: b.Revision}
		for _, e := range b.Events {
			e.Prev = nil
			bare.Events = append(bare.Events, e)
		}
		if err := h.Append(bare); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// state replays the history up to rev.
func (m *model) state(r kv.Range, rev kv.Revision) (out []check.Item) {
	at := map[string]check.Item{}
	for _, b := range m.batches {
		if b.Revision > rev {
			break
		}
		for _, e := range b.Events {
			if delete(at, e.KV.Key); e.Type == kv.Put {
				at[e.KV.Key] = e.KV
			}
		}
	}
	for k, i := range at {
		if r.Contains(k) {
			out = append(out, i)
		}
	}
	return out
}

// watch returns the operations of a correct watcher, with progress and breaks at random.
func (m *model) watch(w check.Watch, stateFirst bool) check.Seen {
	s := check.Seen{Watch: w, Until: m.rev}
	pos := w.Start - 1
	if stateFirst {
		pos = 2 + kv.Revision(m.rng.Int64N(int64(m.rev-2)))
		s.Ops = append(s.Ops, check.Op{Kind: check.OpState, Revision: pos, Items: m.state(w.Range, pos)})
	} else if w.Start == 0 {
		pos = 2 + kv.Revision(m.rng.Int64N(int64(m.rev-2)))
	}
	s.Ops = append(s.Ops, check.Op{Kind: check.OpCreated, Revision: pos, Node: "a"})
	for _, b := range m.batches {
		if b.Revision <= pos {
			continue
		}
		var events []check.Event
		for _, e := range b.Events {
			if !w.Range.Contains(e.KV.Key) || (w.NoPuts && e.Type == kv.Put) || (w.NoDeletes && e.Type == kv.Delete) {
				continue
			}
			if !w.Prev {
				e.Prev = nil
			}
			events = append(events, e)
		}
		if len(events) > 0 {
			s.Ops = append(s.Ops, check.Op{Kind: check.OpBatch, Revision: b.Revision, Events: events})
		}
		switch m.rng.IntN(8) {
		case 0:
			s.Ops = append(s.Ops, check.Op{Kind: check.OpProgress, Revision: b.Revision})
		case 1:
			s.Ops = append(s.Ops, check.Op{Kind: check.OpResumed, Revision: b.Revision + 1, Node: "b"})
		}
	}
	return s
}

func randomWatch(rng *rand.Rand, rev kv.Revision) (w check.Watch, stateFirst bool) {
	w = check.Watch{Name: "watcher 1", Prev: rng.IntN(2) == 0}
	switch rng.IntN(3) {
	case 0:
		w.Range = kv.Single("/b/2")
	case 1:
		w.Range = kv.Prefix("/c/")
	}
	switch rng.IntN(4) {
	case 0:
		w.NoPuts = true
	case 1:
		w.NoDeletes = true
	}
	if rng.IntN(2) == 0 {
		w.Start = 2 + kv.Revision(rng.Int64N(int64(rev)))
	} else {
		stateFirst = rng.IntN(2) == 0
	}
	return w, stateFirst
}
