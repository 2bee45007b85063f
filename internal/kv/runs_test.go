package kv_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Ranges form one run as long as each ends where the next one starts.
func TestRunsAreOfAdjacentRanges(t *testing.T) {
	for name, x := range map[string]struct {
		ranges []kv.Range
		want   string
	}{
		"none":              {nil, "[]"},
		"adjacent":          {[]kv.Range{{"c", "d"}, {"a", "b"}, {"b", "c"}}, "[[1 2 0]]"},
		"the whole space":   {[]kv.Range{{"", "b"}, {"b", ""}}, "[[0 1]]"},
		"with a gap":        {[]kv.Range{{"a", "b"}, {"c", "d"}, {"d", "e"}}, "[[0] [1 2]]"},
		"overlapping":       {[]kv.Range{{"a", "c"}, {"b", "d"}, {"c", "e"}}, "[[0 2] [1]]"},
		"twice":             {[]kv.Range{{"a", "b"}, {"a", "b"}, {"b", "c"}}, "[[0] [1 2]]"},
		"all keys, and all": {[]kv.Range{{"", ""}, {"", ""}}, "[[0] [1]]"},
	} {
		if got := fmt.Sprint(slices.Collect(kv.Runs(x.ranges))); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// Each range gets exactly the events of its keys, in the order of the batch.
func TestSplitIsByRange(t *testing.T) {
	ranges := []kv.Range{{"b", "c"}, {"c", "e"}, {"f", ""}}
	for keys, want := range map[string]string{
		"b":      "0:b",
		"d":      "1:d",
		"dc":     "1:dc",
		"a":      "",
		"e":      "",
		"z":      "2:z",
		"abcdef": "0:b 1:cd 2:f",
		"zbdbz":  "0:bb 1:d 2:zz",
	} {
		b := kv.Batch{Revision: 7}
		for _, key := range keys {
			b.Events = append(b.Events, kv.Event{KV: kv.NewKeyValue(kv.Fields{Key: []byte(string(key))})})
		}
		var got []string
		for at, part := range b.Split(ranges) {
			if part.Revision != 7 {
				t.Errorf("%s: a part has revision %d, want 7", keys, part.Revision)
			}
			one := fmt.Sprintf("%d:", at)
			for _, e := range part.Events {
				one += string(e.KV.Key())
			}
			got = append(got, one)
		}
		slices.Sort(got)
		if s := fmt.Sprint(got); s != "["+want+"]" {
			t.Errorf("%s: %s, want [%s]", keys, s, want)
		}
	}
}
