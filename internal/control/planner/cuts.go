package planner

import (
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// minKeys is how many keys a part must hold before it is cut off. Cuts made at the
// founding are permanent (no merge leaves fewer shards than the specification asks for),
// so the first few keys of an empty etcd must not decide the shards of all later keys.
const minKeys = 4

// Cutter finds the cuts that divide ranges into about n parts with about equal numbers
// of keys. The starts of ranges already count as cuts, so it finds at most
// n-len(ranges) cuts. Keys outside the ranges are ignored.
//
// A cut is the start of a directory (a prefix of a key that ends in '/') if there is
// one within a quarter part of the ideal position, preferably the highest in the tree;
// otherwise it is a whole key. No cut equals a range's start, and there are keys on
// both sides of each cut. Without keys there are no cuts.
//
// It keeps a bounded number of keys: positions are exact to a 64th of a part.
type Cutter struct {
	n      int
	ranges []kv.Range
	stats  []keyStats
	at     int // the range of the newest key
}

// NewCutter returns a Cutter for ordered, disjoint ranges and n parts.
func NewCutter(ranges []kv.Range, n int) *Cutter {
	c := &Cutter{n: n, ranges: ranges, stats: make([]keyStats, len(ranges))}
	for i := range c.stats {
		c.stats[i] = keyStats{stride: 1, limit: max(1024, 128*n)}
	}
	return c
}

// Add counts one key. Keys come in ascending order.
func (c *Cutter) Add(key string) {
	for c.at < len(c.ranges) && c.ranges[c.at].End != "" && key >= c.ranges[c.at].End {
		c.at++
	}
	if c.at < len(c.ranges) && c.ranges[c.at].Contains(key) {
		c.stats[c.at].add(key, c.ranges[c.at].Start)
	}
}

// Cuts returns the cuts for the keys so far.
func (c *Cutter) Cuts() []string {
	weights, most := make([]int, len(c.stats)), make([]int, len(c.stats))
	for i := range c.stats {
		weights[i], most[i] = c.stats[i].count, c.stats[i].count/minKeys
	}
	var cuts []string
	for i, parts := range apportion(weights, most, c.n) {
		cuts = append(cuts, c.stats[i].cuts(parts)...)
	}
	return cuts
}

// apportion divides n parts among the weights in proportion (highest quotient
// first). Each gets at least one part, and no more than its most.
func apportion(weights, most []int, n int) []int {
	parts := make([]int, len(weights))
	for i := range parts {
		parts[i] = 1
	}
	for range n - len(parts) {
		best := -1
		for i := range parts {
			if parts[i] < most[i] && (best < 0 || weights[i]*parts[best] > weights[best]*parts[i]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		parts[best]++
	}
	return parts
}

// keyStats are the statistics of one range's keys: a bucket for every stride of
// them. When there are too many buckets, the stride doubles.
type keyStats struct {
	count, stride, limit int
	prev                 string
	buckets              []keyBucket
}

type keyBucket struct {
	first mark // the bucket's first key
	dir   mark // the highest start of a directory in the tree; or none
}

// mark is a possible cut.
type mark struct {
	key   string // "": none
	index int    // number of keys before it
	depth int    // number of slashes in it
}

func (s *keyStats) add(key, start string) {
	i := s.count
	s.count++
	if i%s.stride == 0 {
		if len(s.buckets) == s.limit {
			s.thin()
		}
		if i%s.stride == 0 { // still, after thin may have doubled the stride
			s.buckets = append(s.buckets, keyBucket{first: mark{key: strings.Clone(key), index: i}})
		}
	}
	if dir := directory(s.prev, key); i > 0 && dir > start {
		b := &s.buckets[len(s.buckets)-1]
		m := mark{index: i, depth: strings.Count(dir, "/")}
		if b.dir.key == "" || m.depth < b.dir.depth {
			m.key = strings.Clone(dir)
			b.dir = m
		}
	}
	s.prev = key
}

// thin merges buckets in pairs.
func (s *keyStats) thin() {
	half := s.buckets[:0]
	for i := 0; i < len(s.buckets); i += 2 {
		b := s.buckets[i]
		if i+1 < len(s.buckets) {
			if o := s.buckets[i+1].dir; o.key != "" && (b.dir.key == "" || o.depth < b.dir.depth) {
				b.dir = o
			}
		}
		half = append(half, b)
	}
	clear(s.buckets[len(half):])
	s.buckets, s.stride = half, s.stride*2
}

// directory returns the shortest prefix of key that ends in '/' and that prev,
// the key before it, does not share; "" when there is none.
func directory(prev, key string) string {
	common := 0
	for common < len(prev) && common < len(key) && prev[common] == key[common] {
		common++
	}
	if i := strings.IndexByte(key[common:], '/'); i >= 0 {
		return key[:common+i+1]
	}
	return ""
}

func (s *keyStats) cuts(parts int) []string {
	var cuts []string
	last := 0 // index of the newest cut
	for p := 1; p < parts; p++ {
		target := s.count * p / parts
		if m := s.nearest(target, s.count/parts/4); m.index > last {
			cuts, last = append(cuts, m.key), m.index
		}
	}
	return cuts
}

// nearest returns the best mark within slack keys of target.
func (s *keyStats) nearest(target, slack int) mark {
	var dir, key mark
	closer := func(a, b mark) bool { return abs(a.index-target) < abs(b.index-target) }
	for i := max(0, (target-slack)/s.stride-1); i < len(s.buckets) && i <= (target+slack)/s.stride+1; i++ {
		b := s.buckets[i]
		if d := b.dir; d.key != "" && abs(d.index-target) <= slack &&
			(dir.key == "" || d.depth < dir.depth || (d.depth == dir.depth && closer(d, dir))) {
			dir = d
		}
		if b.first.index > 0 && (key.key == "" || closer(b.first, key)) {
			key = b.first
		}
	}
	if dir.key != "" {
		return dir
	}
	return key
}

func abs(i int) int { return max(i, -i) }

// Splits returns the splits that bring the map closer to Spec.Shards at the given
// cuts (see [Cutter]): none when there are enough shards, or when every cut is
// already made.
func Splits(m *shard.Map, cuts []string) []shard.Split {
	inside := make([][]string, len(m.Shards))
	weights, most := make([]int, len(m.Shards)), make([]int, len(m.Shards))
	for i := range m.Shards {
		r := m.Shards[i].Range
		for _, c := range cuts {
			if c > r.Start && r.Contains(c) {
				inside[i] = append(inside[i], c)
			}
		}
		weights[i] = len(inside[i]) + 1
		most[i] = weights[i]
	}
	var splits []shard.Split
	for i, parts := range apportion(weights, most, m.Spec.Shards) {
		var at []string
		for p := 1; p < parts; p++ { // evenly among the available cuts
			at = append(at, inside[i][p*weights[i]/parts-1])
		}
		if len(at) > 0 {
			splits = append(splits, shard.Split{Shard: m.Shards[i].ID, At: at})
		}
	}
	return splits
}

// LacksShards reports whether the map has fewer shards than Spec.Shards. That number
// counts only until shards are merged, or split by an operator or for their load.
func LacksShards(m *shard.Map) bool {
	return len(m.Shards) < m.Spec.Shards && !slices.ContainsFunc(m.Shards, func(s shard.Shard) bool { return s.Home.Seat != 0 })
}
