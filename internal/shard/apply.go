package shard

import (
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Apply returns the map after c is applied to m. m is nil before the cluster is
// founded, and is never changed. Every change increments the version.
//
// It refuses a command with an error that wraps [ErrRefused]: a [StaleError]
// when c was made for another version, or one of the sentinels beside it. It is
// deterministic, and stays so in later versions: voters replay old commands.
func Apply(m *Map, c Command) (*Map, error) {
	var current uint64
	if m != nil {
		current = m.Version
	}
	_, founding := c.Change.(Found)
	switch {
	case c.Change == nil:
		return nil, fmt.Errorf("%w: command without a change", ErrInvalid)
	case founding && m != nil:
		return nil, ErrFounded
	case !founding && m == nil:
		return nil, ErrNotFounded
	case c.IfVersion != current:
		return nil, &StaleError{IfVersion: c.IfVersion, Current: current}
	}
	next, err := c.Change.apply(m)
	if err != nil {
		return nil, err
	}
	next.Version = current + 1
	if err := next.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return next, nil
}

func (f Found) apply(*Map) (*Map, error) {
	m := &Map{ClusterID: f.ClusterID, EtcdClusterID: f.EtcdClusterID, Lineage: 1, NextID: 1, Spec: f.Spec, Finalized: f.Finalized}
	cuts := f.Cuts
	for _, r := range f.Spec.Ranges {
		n := 0
		for n < len(cuts) && r.Contains(cuts[n]) {
			n++
		}
		parts, err := cut(r, cuts[:n])
		if err != nil {
			return nil, err
		}
		cuts = cuts[n:]
		for _, p := range parts {
			m.Shards = append(m.Shards, Shard{ID: m.NextID, Range: p, Epoch: 1})
			m.NextID++
		}
	}
	if len(cuts) > 0 {
		return nil, fmt.Errorf("%w: cut %q is out of order or lies in no served range", ErrInvalid, cuts[0])
	}
	if len(f.Replicas) > 0 && len(f.Replicas) != len(m.Shards) {
		return nil, fmt.Errorf("%w: replicas for %d shards, the cuts make %d", ErrInvalid, len(f.Replicas), len(m.Shards))
	}
	for i, r := range f.Replicas {
		m.Shards[i].Replicas = r
	}
	return m.Clone(), nil // the command's slices remain the caller's
}

func (a Assign) apply(m *Map) (*Map, error) {
	if len(a.Moves) == 0 {
		return nil, fmt.Errorf("%w: no moves", ErrInvalid)
	}
	next := m.next()
	moved := make(map[ID]bool, len(a.Moves))
	at := next.positions()
	for _, mv := range a.Moves {
		i, ok := at[mv.Shard]
		switch {
		case !ok:
			return nil, fmt.Errorf("move shard %d: %w", mv.Shard, ErrUnknownShard)
		case moved[mv.Shard]:
			return nil, fmt.Errorf("%w: shard %d is moved twice", ErrInvalid, mv.Shard)
		case len(mv.Replicas) == 0:
			return nil, fmt.Errorf("%w: shard %d would lose its last replica", ErrInvalid, mv.Shard)
		}
		moved[mv.Shard] = true
		s := &next.Shards[i]
		if !slices.Equal(s.Replicas, mv.Replicas) {
			s.Replicas = slices.Clone(mv.Replicas)
			s.Epoch++
		}
	}
	return next, nil
}

func (c Split) apply(m *Map) (*Map, error) {
	i := slices.IndexFunc(m.Shards, func(s Shard) bool { return s.ID == c.Shard })
	if i < 0 {
		return nil, fmt.Errorf("split shard %d: %w", c.Shard, ErrUnknownShard)
	}
	if len(c.At) == 0 {
		return nil, fmt.Errorf("%w: split shard %d: no cuts", ErrInvalid, c.Shard)
	}
	next := m.next()
	parent := next.Shards[i]
	parts, err := cut(parent.Range, c.At)
	if err != nil {
		return nil, fmt.Errorf("split shard %d: %w", c.Shard, err)
	}
	children := make([]Shard, 0, len(parts))
	for _, p := range parts {
		child := Shard{ID: next.NextID, Range: p, Epoch: 1, Replicas: slices.Clone(parent.Replicas), Home: parent.Home.clone()}
		child.Home.Seat = 0
		if c.Stay && len(children) == 0 {
			child.Home = parent.HomeFor(child.ID)
		}
		if c.Watches > 0 {
			child.Home.Parting, child.Home.Whole = c.Watches, 0
		}
		children = append(children, child)
		next.NextID++
	}
	next.Shards = slices.Replace(next.Shards, i, i+1, children...)
	return next, nil
}

func (c Merge) apply(m *Map) (*Map, error) {
	switch {
	case len(c.Shards) < 2:
		return nil, fmt.Errorf("%w: merge of %d shards; at least two are needed", ErrInvalid, len(c.Shards))
	case len(c.Replicas) == 0:
		return nil, fmt.Errorf("%w: the merged shard would have no replica", ErrInvalid)
	}
	at := m.positions()
	for _, id := range c.Shards {
		if _, ok := at[id]; !ok {
			return nil, fmt.Errorf("merge shard %d: %w", id, ErrUnknownShard)
		}
	}
	first := at[c.Shards[0]]
	for i, id := range c.Shards {
		if first+i == len(m.Shards) || m.Shards[first+i].ID != id || (i > 0 && m.Shards[first+i].Range.Start != m.Shards[first+i-1].Range.End) {
			return nil, fmt.Errorf("%w: shard %d does not begin where shard %d ends", ErrInvalid, id, c.Shards[max(i-1, 0)])
		}
		for _, n := range c.Replicas {
			if !slices.Contains(m.Shards[first+i].Replicas, n) {
				return nil, fmt.Errorf("%w: node %q has no replica of shard %d: bring the shards together first", ErrInvalid, n, id)
			}
		}
	}
	next := m.next()
	parts := next.Shards[first : first+len(c.Shards)]
	merged := Shard{
		ID: next.NextID, Epoch: 1, Replicas: slices.Clone(c.Replicas), Home: parts[0].HomeFor(next.NextID),
		Range: kv.Range{Start: parts[0].Range.Start, End: parts[len(parts)-1].Range.End},
	}
	next.NextID++
	next.Shards = slices.Replace(next.Shards, first, first+len(c.Shards), merged)
	return next, nil
}

func (c Rehome) apply(m *Map) (*Map, error) {
	if len(c.Homes) == 0 {
		return nil, fmt.Errorf("%w: no homes", ErrInvalid)
	}
	next := m.next()
	at := next.positions()
	for _, h := range c.Homes {
		i, ok := at[h.Shard]
		if !ok {
			return nil, fmt.Errorf("home of shard %d: %w, or it is named twice", h.Shard, ErrUnknownShard)
		}
		delete(at, h.Shard)
		next.Shards[i].Home = h.Home.clone()
		if h.Home.Seat == h.Shard {
			next.Shards[i].Home.Seat = 0
		}
	}
	return next, nil
}

func (c Drain) apply(m *Map) (*Map, error) {
	if len(c.Nodes) == 0 {
		return nil, fmt.Errorf("%w: no node is named", ErrInvalid)
	}
	next := m.next()
	if c.Undo {
		next.Drained = slices.DeleteFunc(slices.Clone(m.Drained), func(n NodeID) bool { return slices.Contains(c.Nodes, n) })
	} else {
		next.Drained = slices.Concat(m.Drained, c.Nodes)
		slices.Sort(next.Drained)
		next.Drained = slices.Compact(next.Drained)
	}
	if len(next.Drained) == 0 {
		next.Drained = nil
	}
	return next, nil
}

func (c Finalize) apply(m *Map) (*Map, error) {
	if c.Level <= m.Finalized {
		return nil, fmt.Errorf("%w: feature level %d is not above the finalized level %d", ErrInvalid, c.Level, m.Finalized)
	}
	next := m.next()
	next.Finalized = c.Level
	return next, nil
}

// next returns a copy of m to change. It shares slices and maps within its shards with m: replace
// them, never write to them.
func (m *Map) next() *Map {
	c := *m
	c.Shards = slices.Clone(m.Shards)
	return &c
}

// positions returns the index of each shard in the map.
func (m *Map) positions() map[ID]int {
	at := make(map[ID]int, len(m.Shards))
	for i := range m.Shards {
		at[m.Shards[i].ID] = i
	}
	return at
}

func (r Renew) apply(m *Map) (*Map, error) {
	switch {
	case r.Lineage != m.Lineage:
		return nil, &LineageError{Ended: r.Lineage, Current: m.Lineage}
	case r.EtcdClusterID == 0:
		return nil, fmt.Errorf("%w: lineage without an etcd cluster", ErrInvalid)
	case r.Origin.Cause == "":
		return nil, fmt.Errorf("%w: lineage without a cause", ErrInvalid)
	}
	next := m.next()
	next.Lineage++
	next.EtcdClusterID, next.Origin = r.EtcdClusterID, &r.Origin
	return next, nil
}

// cut cuts r at the given keys, and returns the parts.
func cut(r kv.Range, at []string) ([]kv.Range, error) {
	parts := make([]kv.Range, 0, len(at)+1)
	for _, c := range at {
		if c <= r.Start || !r.Contains(c) {
			return nil, fmt.Errorf("%w: cut %q is outside %v", ErrInvalid, c, r)
		}
		parts = append(parts, kv.Range{Start: r.Start, End: c})
		r.Start = c
	}
	return append(parts, r), nil
}
