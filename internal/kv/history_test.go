package kv_test

import (
	"errors"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestMarkJudges(t *testing.T) {
	mark := kv.Mark{Cluster: 1, Term: 4, Index: 50, Revision: 30}
	for _, c := range []struct {
		name string
		is   kv.Mark
		want kv.Cause // "": no contradiction
	}{
		{"the same", mark, ""},
		{"further", kv.Mark{Cluster: 1, Term: 5, Index: 51, Revision: 31}, ""},
		{"an unknown mark proves nothing", kv.Mark{}, ""},
		{"another cluster", kv.Mark{Cluster: 2, Term: 1, Index: 1, Revision: 1}, kv.CauseCluster},
		{"an older state", kv.Mark{Cluster: 1, Term: 2, Index: 5, Revision: 29}, kv.CauseRevision},
		{"an older state, with a bumped revision", kv.Mark{Cluster: 1, Term: 2, Index: 5, Revision: 1_000_000_030}, kv.CauseTerm},
		{"an older state, written to since", kv.Mark{Cluster: 1, Term: 4, Index: 49, Revision: 31}, kv.CauseIndex},
	} {
		got := mark.Judge(c.is)
		if (got == nil) != (c.want == "") || got != nil && got.Cause != c.want {
			t.Errorf("%s: %v, want %q", c.name, got, c.want)
		}
	}
	if e := (kv.Mark{}).Judge(mark); e != nil {
		t.Errorf("an unknown mark contradicts another one: %v", e)
	}
	e := error(mark.Judge(kv.Mark{Revision: 1}))
	var away *kv.UnavailableError
	if !errors.Is(e, kv.ErrOtherHistory) || !errors.As(e, &away) || away.RetryAfter <= 0 {
		t.Errorf("%v", e)
	}
	if j := (kv.Mark{Term: 3, Index: 9}).Join(kv.Mark{Cluster: 1, Term: 2, Revision: 7}); j != (kv.Mark{Cluster: 1, Term: 3, Index: 9, Revision: 7}) {
		t.Errorf("joined: %+v", j)
	}
}
