package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// The history of the planted faults: keys a, b, c; revision 4 changes all
// three, 7 deletes b.
var planted = []check.Batch{
	{Revision: 2, Events: []check.Event{put("a", 2, 2, 1)}},
	{Revision: 3, Events: []check.Event{put("b", 3, 3, 1)}},
	{Revision: 4, Events: []check.Event{put("a", 4, 2, 2), put("b", 4, 3, 2), put("c", 4, 4, 1)}},
	{Revision: 5, Events: []check.Event{put("c", 5, 4, 2)}},
	{Revision: 6, Events: []check.Event{put("b", 6, 3, 3)}},
	{Revision: 7, Events: []check.Event{check.Delete("b", 7)}},
	{Revision: 8, Events: []check.Event{put("a", 8, 2, 3)}},
}

func put(key string, mod, create kv.Revision, version int64) check.Event {
	return check.Put(check.Item{Key: key, Value: uint64(mod), Mod: mod, Create: create, Version: version})
}

func prev(e check.Event, p check.Event) check.Event {
	e.Prev = &p.KV
	return e
}

// ops returns the operations of a correct watcher of all keys from revision 2 on, with a
// break after 5 and a progress at 6.
func ops() []check.Op {
	p := planted
	batch := func(b check.Batch, events ...check.Event) check.Op {
		return check.Op{Kind: check.OpBatch, Revision: b.Revision, Events: events}
	}
	e := func(rev, n int) check.Event { return p[rev-2].Events[n] }
	return []check.Op{
		{Kind: check.OpCreated, Revision: 1, Node: "x"},
		batch(p[0], e(2, 0)),
		batch(p[1], e(3, 0)),
		batch(p[2], prev(e(4, 0), e(2, 0)), prev(e(4, 1), e(3, 0)), e(4, 2)),
		batch(p[3], prev(e(5, 0), e(4, 2))),
		{Kind: check.OpResumed, Revision: 6, Node: "y"}, // 5
		batch(p[4], prev(e(6, 0), e(4, 1))),             // 6
		{Kind: check.OpProgress, Revision: 6},           // 7
		batch(p[5], prev(e(7, 0), e(6, 0))),             // 8
		batch(p[6], prev(e(8, 0), e(4, 0))),             // 9
	}
}

var checkers = map[check.Promise]func(*check.History, check.Seen) []check.Violation{
	check.PromiseOrdered:      check.Ordered,
	check.PromiseUnique:       check.Unique,
	check.PromiseReliable:     check.Reliable,
	check.PromiseAtomic:       check.Atomic,
	check.PromiseResumable:    check.Resumable,
	check.PromiseBookmarkable: check.Bookmarkable,
	check.PromisePrevious:     check.PreviousValues,
	check.PromiseFiltered:     check.Filtered,
	check.PromiseExact:        check.ExactStates,
	check.PromiseDelta:        check.ExactDeltas,
}

// Each planted fault is found by the checkers of the guarantees that it breaks, and by no
// other checker.
func TestPlantedFaults(t *testing.T) {
	h := check.NewHistory(1, nil)
	for _, b := range planted {
		if err := h.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	type P = check.Promise
	const (
		ordered, unique, reliable, atomic = check.PromiseOrdered, check.PromiseUnique, check.PromiseReliable, check.PromiseAtomic
		resumable, bookmarkable           = check.PromiseResumable, check.PromiseBookmarkable
		previous, filtered, exact, delta  = check.PromisePrevious, check.PromiseFiltered, check.PromiseExact, check.PromiseDelta
	)
	// a watcher that had all events up to 3, and then a delta up to 7
	resynced := func(d check.Op) func(*check.Seen) {
		d.Kind, d.Revision = check.OpDelta, 7
		return func(s *check.Seen) { s.Ops = slices.Concat(s.Ops[:3], []check.Op{d}, s.Ops[9:]) }
	}
	item := func(rev, n int) check.Item { return planted[rev-2].Events[n].KV }
	for _, c := range []struct {
		name  string
		plant func(s *check.Seen)
		want  []P
		says  string
	}{
		{"nothing wrong", func(*check.Seen) {}, nil, ""},
		{"a revision dropped", func(s *check.Seen) {
			s.Ops = slices.Delete(s.Ops, 2, 3)
		}, []P{reliable}, `reliable: w at revision 3 key "b": expected PUT "b" mod 3 create 3 version 1`},
		{"the last revision dropped", func(s *check.Seen) {
			s.Ops = s.Ops[:9]
		}, []P{reliable}, `expected PUT "a" mod 8 create 2 version 3 value 0000000000000008, got nothing more`},
		{"one event of three dropped", func(s *check.Seen) {
			s.Ops[3].Events = s.Ops[3].Events[:2]
		}, []P{reliable, atomic}, `expected all 3 events at once: "a" "b" "c", got 2: "a" "b"`},
		{"a revision split", func(s *check.Seen) {
			a, b := s.Ops[3], s.Ops[3]
			a.Events, b.Events = a.Events[:1], b.Events[1:]
			s.Ops = slices.Replace(s.Ops, 3, 4, a, b)
		}, []P{atomic}, "at revision 4"},
		{"two revisions in one batch", func(s *check.Seen) {
			s.Ops[9].Events = append(slices.Clone(s.Ops[8].Events), s.Ops[9].Events...)
			s.Ops = slices.Delete(s.Ops, 8, 9)
		}, []P{reliable, atomic}, "expected events of one revision"},
		{"a revision twice", func(s *check.Seen) {
			s.Ops = slices.Insert(s.Ops, 2, s.Ops[1])
		}, []P{unique}, `unique: w at revision 2 key "a": expected each event once`},
		{"an older revision again", func(s *check.Seen) {
			s.Ops = slices.Insert(s.Ops, 5, s.Ops[1])
		}, []P{unique, ordered}, "expected a revision above 5, got revision 2 behind it"},
		{"an event twice in a batch", func(s *check.Seen) {
			s.Ops[1].Events = append(s.Ops[1].Events, s.Ops[1].Events[0])
		}, []P{unique}, "again"},
		{"two revisions swapped", func(s *check.Seen) {
			s.Ops[8], s.Ops[9] = s.Ops[9], s.Ops[8]
		}, []P{ordered, reliable}, "expected a revision above 8, got revision 7 behind it"},
		{"two events of a revision swapped", func(s *check.Seen) {
			e := slices.Clone(s.Ops[3].Events)
			e[0], e[2] = e[2], e[0]
			s.Ops[3].Events = e
		}, []P{ordered}, `expected etcd's order "a" "b" "c", got "c" "b" "a"`},
		{"the same in a watch over several shards", func(s *check.Seen) {
			e := slices.Clone(s.Ops[3].Events)
			e[0], e[2] = e[2], e[0]
			s.Ops[3].Events, s.Merged = e, true
		}, nil, ""},
		{"another value", func(s *check.Seen) {
			s.Ops[1].Events[0].KV.Value = 99
		}, []P{reliable}, "value 0000000000000063"},
		{"another version", func(s *check.Seen) {
			s.Ops[1].Events[0].KV.Version = 7
		}, []P{reliable}, "version 7"},
		{"a delete reported as a put", func(s *check.Seen) {
			s.Ops[8].Events[0].Type = kv.Put
		}, []P{reliable}, `expected DELETE "b" at 7`},
		{"an event that never was", func(s *check.Seen) {
			s.Ops = slices.Insert(s.Ops, 1, check.Op{Kind: check.OpBatch, Revision: 2, Events: []check.Event{put("q", 2, 2, 1)}})
		}, []P{reliable}, "expected no event"},
		{"the previous value of before", func(s *check.Seen) {
			p := planted[1].Events[0].KV
			s.Ops[6].Events[0].Prev = &p
		}, []P{previous}, `previous values: w at revision 6 key "b": expected previous value "b" mod 4`},
		{"a previous value forgotten", func(s *check.Seen) {
			s.Ops[8].Events[0].Prev = nil
		}, []P{previous}, "got no previous value"},
		{"a previous value of a new key", func(s *check.Seen) {
			p := planted[0].Events[0].KV
			s.Ops[2].Events[0].Prev = &p
		}, []P{previous}, "expected no previous value"},
		{"previous values not asked for", func(s *check.Seen) {
			s.Prev = false
		}, []P{previous}, "expected no previous value"},
		{"progress too early", func(s *check.Seen) {
			s.Ops[7].Revision = 7
		}, []P{bookmarkable}, `bookmarkable: w at revision 7 key "b": expected DELETE "b" at 7, got progress 7 before it`},
		{"progress beyond etcd", func(s *check.Seen) {
			s.Ops = append(s.Ops, check.Op{Kind: check.OpProgress, Revision: 9})
		}, []P{bookmarkable}, "expected at most etcd's own revision, 8"},
		{"created too late", func(s *check.Seen) {
			s.Start, s.Ops[0].Revision = 0, 2
		}, []P{bookmarkable}, "expected nothing up to 2 any more"},
		{"a resume that skips, the events missing", func(s *check.Seen) {
			s.Ops[5].Revision = 7
			s.Ops = slices.Delete(s.Ops, 6, 7)
			s.Ops = slices.Delete(s.Ops, 6, 7) // the progress as well
		}, []P{resumable, reliable}, `expected PUT "b" mod 6 create 3 version 3 value 0000000000000006, got resumed on node "y" from 7`},
		{"a right resume, the first event missing", func(s *check.Seen) {
			s.Ops = slices.Delete(s.Ops, 6, 8)
		}, []P{resumable, reliable}, "expected to resume with revision 6 after 5, got revision 7"},
		{"a resume that repeats", func(s *check.Seen) {
			s.Ops[5].Revision = 5
			s.Ops = slices.Insert(s.Ops, 6, s.Ops[4])
		}, []P{resumable, unique}, "expected a revision above 5, which was delivered before"},
		{"nothing after a resume", func(s *check.Seen) {
			s.Ops = s.Ops[:6]
		}, []P{resumable, reliable}, "and nothing came"},
		{"a key not asked for", func(s *check.Seen) {
			s.Range = kv.Single("a")
		}, []P{filtered}, `filtered: w at revision 3 key "b": expected keys of "a", got PUT "b"`},
		{"puts without a request", func(s *check.Seen) {
			s.NoPuts, s.Ops = true, slices.Concat(s.Ops[:2], s.Ops[8:9])
		}, []P{filtered}, `filtered: w at revision 2 key "a": expected the types of events asked for, got PUT "a"`},
		{"a delete that a watch of deletes did not get", func(s *check.Seen) {
			s.NoPuts, s.Ops = true, s.Ops[:1]
		}, []P{reliable}, `expected DELETE "b" at 7, got nothing more`},
		{"a put of several that a watch of puts did not get", func(s *check.Seen) {
			s.NoDeletes = true
			s.Ops[3].Events = s.Ops[3].Events[:2]
			s.Ops = slices.Delete(s.Ops, 8, 9) // the delete
		}, []P{reliable, atomic}, `got 2: "a" "b"`},
		{"a revision below the start", func(s *check.Seen) {
			s.Start = 3
		}, []P{filtered}, "expected revisions from 3 on"},
		{"nothing seen and nothing to see", func(s *check.Seen) {
			s.Range, s.Start, s.Ops = kv.Single("b"), 8, nil
		}, nil, ""},
		{"nothing seen", func(s *check.Seen) {
			s.Range, s.Start, s.Ops = kv.Single("b"), 7, nil
		}, []P{reliable}, `expected DELETE "b" at 7, got nothing more`},
		{"never started", func(s *check.Seen) {
			s.Start, s.Ops = 0, nil
		}, []P{reliable}, "expected a watch that has started"},
		{"a state with an old key", func(s *check.Seen) {
			s.Start, s.Ops = 0, []check.Op{
				{Kind: check.OpState, Revision: 8, Items: []check.Item{planted[6].Events[0].KV, planted[4].Events[0].KV, planted[3].Events[0].KV}},
			}
		}, []P{exact}, `exact state: w at revision 8 key "b": expected no such key`},
		{"a state without a key", func(s *check.Seen) {
			s.Start, s.Ops = 0, []check.Op{
				{Kind: check.OpState, Revision: 8, Items: []check.Item{planted[6].Events[0].KV}},
			}
		}, []P{exact}, `key "c"`},
		{"a right delta", resynced(check.Op{From: 3, Items: []check.Item{item(5, 0), item(4, 0)}, Deleted: []string{"b"}}), nil, ""},
		{"a right delta that is more than needed", resynced(check.Op{From: 2, Items: []check.Item{item(5, 0), item(4, 0)}, Deleted: []string{"b"}}), nil, ""},
		{"a delta from further on", resynced(check.Op{From: 5, Deleted: []string{"b"}}), []P{reliable}, "a delta from 5"},
		{"a delta without a changed key", resynced(check.Op{From: 3, Items: []check.Item{item(5, 0)}, Deleted: []string{"b"}}), []P{delta}, `key "a"`},
		{"a delta without a deleted key", resynced(check.Op{From: 3, Items: []check.Item{item(5, 0), item(4, 0)}}), []P{delta}, `key "b"`},
		{"a delta of another snapshot", resynced(check.Op{From: 3, Items: []check.Item{item(4, 2), item(4, 0)}, Deleted: []string{"b"}}), []P{delta}, `key "c"`},
		{"a delta with a key twice", resynced(check.Op{From: 3, Items: []check.Item{item(5, 0), item(4, 0), item(4, 0)}, Deleted: []string{"b"}}), []P{delta}, "each key once"},
		{"an event of before a delta after it", func(s *check.Seen) {
			resynced(check.Op{From: 3, Items: []check.Item{item(5, 0), item(4, 0)}, Deleted: []string{"b"}})(s)
			e := planted[5].Events[0]
			s.Ops = slices.Insert(s.Ops, 4, check.Op{Kind: check.OpBatch, Revision: 7, Events: []check.Event{prev(e, planted[4].Events[0])}})
		}, []P{bookmarkable}, "expected nothing up to 7 any more"},
		{"a previous value that etcd has forgotten", func(s *check.Seen) {
			s.Ops[8].Events[0].Prev, s.Ops[8].Forgetful = nil, true
		}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := check.Seen{Watch: check.Watch{Name: "w", Start: 2, Prev: true}, Ops: ops(), Until: 8}
			c.plant(&s)
			var broken []check.Promise
			var texts []string
			for p, judge := range checkers {
				vs := judge(h, s)
				if len(vs) > 0 {
					broken = append(broken, p)
				}
				for _, v := range vs {
					if v.Promise != p {
						t.Errorf("the checker of %q reports %v", p, v)
					}
					texts = append(texts, v.String())
				}
			}
			slices.Sort(broken)
			slices.Sort(c.want)
			if !slices.Equal(broken, c.want) {
				t.Errorf("found %q, want %q:\n%s", broken, c.want, strings.Join(texts, "\n"))
			}
			if !strings.Contains(strings.Join(texts, "\n"), c.says) {
				t.Errorf("no violation contains %s:\n%s", c.says, strings.Join(texts, "\n"))
			}
			// The streaming checker finds the same number of violations.
			k := check.NewChecker(s.Watch)
			for _, op := range s.Ops {
				k.Feed(op)
				k.Judge(h)
			}
			k.Finish(h, s.Until)
			if _, n := k.Violations(); n != len(texts) {
				t.Errorf("streaming checker: %d violations, want %d", n, len(texts))
			}
		})
	}
}

func TestEqualState(t *testing.T) {
	a, b := put("a", 2, 2, 1).KV, put("b", 3, 3, 1).KV
	older := b
	older.Mod = 2
	for _, c := range []struct {
		want, got []check.Item
		n         int
	}{
		{nil, nil, 0},
		{[]check.Item{a, b}, []check.Item{b, a}, 0},
		{[]check.Item{a, b}, []check.Item{a}, 1},
		{[]check.Item{a}, []check.Item{a, b}, 1},
		{[]check.Item{a, b}, []check.Item{a, older}, 1},
		{[]check.Item{a}, []check.Item{b}, 2},
	} {
		if vs := check.EqualState("mirror", 3, c.want, c.got); len(vs) != c.n {
			t.Errorf("%v against %v: %v, want %d", c.want, c.got, vs, c.n)
		}
	}
}

func TestReads(t *testing.T) {
	h := check.NewHistory(1, nil)
	for _, b := range planted {
		if err := h.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	at5 := []check.Item{planted[2].Events[0].KV, planted[2].Events[1].KV, planted[3].Events[0].KV}
	for name, c := range map[string]struct {
		read check.Read
		want check.Promise
	}{
		"right":            {check.Read{Revision: 5, Items: at5, NotBefore: 5, Linearizable: true}, ""},
		"right, limited":   {check.Read{Revision: 5, Items: at5[:2], Limit: 2}, ""},
		"misses a write":   {check.Read{Revision: 5, Items: at5, NotBefore: 6, Linearizable: true}, check.PromiseLinearizable},
		"too old":          {check.Read{Revision: 5, Items: at5, NotBefore: 6}, check.PromiseFresh},
		"right, as asked":  {check.Read{Revision: 5, Items: at5, At: 5}, ""},
		"not as asked":     {check.Read{Revision: 5, Items: at5, At: 4}, check.PromiseExact},
		"torn":             {check.Read{Revision: 6, Items: at5}, check.PromiseExact},
		"from the future":  {check.Read{Revision: 9, Items: at5}, check.PromiseExact},
		"a key is missing": {check.Read{Revision: 5, Items: at5[1:]}, check.PromiseExact},
	} {
		vs := c.read.Check(h)
		switch {
		case c.want == "" && len(vs) > 0:
			t.Errorf("%s: %v", name, vs)
		case c.want != "" && (len(vs) == 0 || vs[0].Promise != c.want):
			t.Errorf("%s: %v, want %s", name, vs, c.want)
		}
	}
}
