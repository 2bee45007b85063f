package keytree

import (
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Count returns the number of keys in r. It reads only a few keys, regardless of the
// number.
func (s *Snapshot) Count(r kv.Range) int {
	end := s.Root.Len()
	if r.End != "" {
		end = s.rank(r.End)
	}
	if r.Start == "" {
		return end
	}
	return max(0, end-s.rank(r.Start))
}

// rank returns the number of keys below key.
func (s *Snapshot) rank(key string) int {
	return sort.Search(s.Root.Len(), func(i int) bool {
		item, _ := s.Root.GetAt(i)
		return string(item.Key()) >= key
	})
}

// AscendN calls fn for n keys in order, from the first key at or after key, or until fn
// returns false. Unlike Ascend it does not compare keys, so a caller that knows the
// number reads less memory.
func (s *Snapshot) AscendN(key string, n int, fn func(*kv.KeyValue) bool) {
	if n <= 0 {
		return
	}
	s.Root.Ascend(Pivot(key), func(item *kv.KeyValue) bool {
		n--
		return fn(item) && n > 0
	})
}
