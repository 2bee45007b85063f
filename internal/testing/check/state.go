package check

import (
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// exactStates needs no memory: a state is right or wrong on its own.
type exactStates struct{}

func (exactStates) step(h *History, w *Watch, op *Op, out []Violation) []Violation {
	if op.Kind != OpState {
		return out
	}
	return append(out, diff(PromiseExact, w.Name, op.Revision, h.State(w.Range, op.Revision), op.Items)...)
}

func (exactStates) finish(_ *History, _ *Watch, _ kv.Revision, out []Violation) []Violation {
	return out
}

// EqualState compares the state that name holds at rev with etcd's own, both
// in any order.
func EqualState(name string, rev kv.Revision, want, got []Item) []Violation {
	return diff(PromiseEqual, name, rev, want, got)
}

// diff reports the first few keys in which two states differ. It does not change
// its arguments.
func diff(p Promise, name string, rev kv.Revision, want, got []Item) []Violation {
	want, got = slices.Clone(want), slices.Clone(got)
	sortByKey(want)
	sortByKey(got)
	const most = 5
	var out []Violation
	wrong := 0
	report := func(key, expected, was string) {
		if wrong++; wrong <= most {
			out = append(out, Violation{Promise: p, Watcher: name, Revision: rev, Key: key, Expected: expected, Got: was})
		}
	}
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || (len(want) > 0 && want[0].Key < got[0].Key):
			report(want[0].Key, want[0].String(), "no such key")
			want = want[1:]
		case len(want) == 0 || got[0].Key < want[0].Key:
			report(got[0].Key, "no such key", got[0].String())
			got = got[1:]
		default:
			if want[0] != got[0] {
				report(got[0].Key, want[0].String(), got[0].String())
			}
			want, got = want[1:], got[1:]
		}
	}
	if wrong > most {
		out[most-1].Got += fmt.Sprintf(" (and %d more keys differ)", wrong-most)
	}
	return out
}
