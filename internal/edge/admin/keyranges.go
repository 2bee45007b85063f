package admin

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// maxMapRanges bounds the ranges of a WatchShardMap request.
const maxMapRanges = 1024

// keyRanges are ranges of keys, in order and disjoint.
type keyRanges []kv.Range

// newKeyRanges merges the ranges of a request. field names them in errors.
func newKeyRanges(field string, asked []*shardwatchv1.KeyRange) (keyRanges, error) {
	if n := len(asked); n > maxMapRanges {
		return nil, &kv.InvalidError{Field: field, Reason: fmt.Sprintf("%d ranges; at most %d, or none to follow all shards", n, maxMapRanges)}
	}
	all := make([]kv.Range, 0, len(asked))
	for _, a := range asked {
		one, err := kv.RangeFromEtcd(a.GetKey(), a.GetRangeEnd())
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b kv.Range) int { return cmp.Compare(a.Start, b.Start) })
	var out keyRanges
	for _, r := range all {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].End != "" && out[last].End < r.Start:
			out = append(out, r)
		case out[last].End != "" && (r.End == "" || r.End > out[last].End):
			out[last].End = r.End
		}
	}
	return out, nil
}

// want reports whether r has keys of the ranges.
func (rs keyRanges) want(r kv.Range) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].End == "" || rs[i].End > r.Start })
	return i < len(rs) && rs[i].Overlaps(r)
}

// in returns a function that reports whether the shard at an index of m has keys of
// the ranges.
func (rs keyRanges) in(m *shard.Map) func(i int) bool {
	return func(i int) bool { return rs.want(m.Shards[i].Range) }
}
