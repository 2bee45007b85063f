package chaos

import (
	"errors"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// smallHistory puts a, b and c, and deletes b: to revision 5.
func smallHistory(t *testing.T) *check.History {
	t.Helper()
	h := check.NewHistory(1, nil)
	for i, key := range []string{"a", "b", "c"} {
		rev := kv.Revision(i + 2)
		put := check.Put(check.Item{Key: key, Value: check.HashValue([]byte(key)), Create: rev, Mod: rev, Version: 1})
		if err := h.Append(check.Batch{Revision: rev, Events: []check.Event{put}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Append(check.Batch{Revision: 5, Events: []check.Event{check.Delete("b", 5)}}); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAnswersAreJudged(t *testing.T) {
	h := smallHistory(t)
	all := h.State(kv.Range{}, 4)
	right := func() answer { // a and b, all three
		return answer{api: Etcd, Read: check.Read{Revision: 4, Items: all[:2], Limit: 2}, counted: true, count: 3, more: true}
	}
	for name, c := range map[string]struct {
		change func(*answer)
		want   check.Promise
	}{
		"right":                          {func(*answer) {}, ""},
		"a key is missing":               {func(a *answer) { a.Items = all[:1] }, check.PromiseExact},
		"the count of the page":          {func(a *answer) { a.count = 2 }, check.PromiseExact},
		"no more, though there is":       {func(a *answer) { a.more = false }, check.PromiseExact},
		"more, though there is not":      {func(a *answer) { a.Limit, a.Items = 3, all }, check.PromiseExact},
		"a count only":                   {func(a *answer) { a.countOnly, a.Items, a.Limit, a.more = true, nil, 0, false }, ""},
		"a wrong count":                  {func(a *answer) { a.countOnly, a.Items, a.Limit, a.more, a.count = true, nil, 0, false, 4 }, check.PromiseExact},
		"an old read":                    {func(a *answer) { a.NotBefore, a.Linearizable = 5, true }, check.PromiseLinearizable},
		"from the future":                {func(a *answer) { a.Revision = 6 }, check.PromiseExact},
		"as asked":                       {func(a *answer) { a.At, a.notBefore, a.now = 4, 5, 5 }, ""},
		"as asked, with an old header":   {func(a *answer) { a.At, a.notBefore, a.now = 4, 5, 4 }, check.PromiseExact},
		"as asked, with a future header": {func(a *answer) { a.At, a.notBefore, a.now = 4, 5, 6 }, check.PromiseExact},
		"a native answer is not counted": {func(a *answer) { a.counted, a.count = false, 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := right()
			c.change(&a)
			var as answers
			as.add(a, nil)
			as.add(answer{api: Etcd}, errors.New("no"))
			if got := as.newest(); got != int64(max(a.Revision, a.now)) {
				t.Errorf("newest %d of %+v", got, a)
			}
			j := as.judge(h)[Etcd]
			if j.reads != 1 || j.refused["no"] != 1 {
				t.Errorf("%+v", j)
			}
			switch {
			case c.want == "" && len(j.broken) > 0:
				t.Error(j.broken)
			case c.want != "" && (len(j.broken) == 0 || j.broken[0].Promise != c.want):
				t.Errorf("%v, want %s", j.broken, c.want)
			}
			if again := as.judge(h); len(again) > 0 {
				t.Errorf("judged twice: %v", again)
			}
		})
	}
}

// After a restore the history begins at the revision of the snapshot; a read at an older one may
// have keys that were deleted before the snapshot.
func TestReadsBeforeARestoreAreNotJudged(t *testing.T) {
	whole := smallHistory(t)
	h := check.NewHistory(5, whole.State(kv.Range{}, 5))
	read := func(at kv.Revision) answer {
		all := whole.State(kv.Range{}, 4)
		return answer{api: Etcd, Read: check.Read{At: at, Revision: at, Items: all}, counted: true, count: int64(len(all)), now: 5}
	}
	for at, broken := range map[kv.Revision]bool{4: false, 5: true} {
		a := read(at)
		if got := a.check(h); (len(got) > 0) != broken {
			t.Errorf("a read at %d: %v", at, got)
		}
	}
}

func TestWritesThroughNodesAreJudged(t *testing.T) {
	h := smallHistory(t)
	if err := h.Append(check.Batch{Revision: 6, Events: []check.Event{ // a again, as if a node had retried
		check.Put(check.Item{Key: "a", Value: check.HashValue([]byte("a")), Create: 2, Mod: 6, Version: 2}),
	}}); err != nil {
		t.Fatal(err)
	}
	put := func(key string, rev kv.Revision) written {
		return written{key: key, value: check.HashValue([]byte(key)), behind: 1, rev: rev}
	}
	for name, c := range map[string]struct {
		w    written
		want bool
	}{
		"right":                         {put("c", 4), false},
		"reported a wrong revision":     {put("c", 3), true},
		"acknowledged and never done":   {put("d", 4), true},
		"no answer, and done":           {put("c", 0), false},
		"no answer, and not done":       {put("d", 0), false},
		"no answer, and done twice":     {put("a", 0), true},
		"acknowledged and done twice":   {put("a", 2), true},
		"a delete":                      {written{key: "b", delete: true, behind: 1, rev: 5}, false},
		"a delete that never was":       {written{key: "c", delete: true, behind: 1, rev: 5}, true},
		"an older one of the same kind": {written{key: "a", value: check.HashValue([]byte("a")), behind: 2, rev: 6}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &passed{}
			var err error
			if c.w.rev == 0 {
				err = errors.New("unavailable")
			}
			p.note(int64(c.w.rev), err, c.w)
			n, unknown, broken := p.judge(h)
			if n != 1 || (unknown["unavailable"] == 1) != (c.w.rev == 0) || (len(broken) > 0) != c.want {
				t.Errorf("%d judged, %v unknown, %v", n, unknown, broken)
			}
		})
	}
}
