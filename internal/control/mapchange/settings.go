package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Settings changes the settings of the cluster: the flags of nodes apply only when a
// cluster is founded.
type Settings struct {
	// Replicas is the number of replicas of each shard; 0: unchanged.
	Replicas int
	// Ranges are the keys to serve, in any order; none: unchanged.
	Ranges []kv.Range
}

// maxSettingsBytes bounds the keys of the served ranges: all nodes and clients hold
// them.
const maxSettingsBytes = 64 << 10

func (r Settings) String() string {
	var out []string
	if r.Replicas != 0 {
		out = append(out, fmt.Sprintf("replicas %d", r.Replicas))
	}
	if len(r.Ranges) > 0 {
		out = append(out, "serve "+ranges(r.Ranges))
	}
	return "set " + strings.Join(out, ", ")
}

func (r Settings) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	spec := c.Map.Spec
	want, err := r.wanted(c)
	if err != nil {
		return nil, nil, err
	}
	if want.Replicas == spec.Replicas && slices.Equal(want.Ranges, spec.Ranges) {
		return nil, nil, nil
	}
	var doubts []*RefusedError
	if !slices.ContainsFunc(want.Ranges, func(w kv.Range) bool { return slices.ContainsFunc(spec.Ranges, w.Overlaps) }) {
		doubts = append(doubts, doubt("served", "none of the keys that are served now would still be served: %s now, %s then", ranges(spec.Ranges), ranges(want.Ranges)))
	}
	change := shard.Configure{Replicas: want.Replicas, Owners: want.Owners, Ranges: want.Ranges}
	if err := shard.Allows(c.Map, change, shard.LevelSettings, c.Members); err != nil {
		return nil, nil, err // fail before the operator sees a plan
	}
	return change, doubts, nil
}

// wanted returns the specification after the change.
func (r Settings) wanted(c *Cluster) (shard.Spec, error) {
	spec := c.Map.Spec
	switch {
	case r.Replicas == 0 && len(r.Ranges) == 0:
		return spec, &kv.InvalidError{Field: "settings", Reason: "name the number of replicas or the served keys"}
	case r.Replicas < 0 || r.Replicas > shard.MaxReplicas:
		return spec, &kv.InvalidError{Field: "replicas", Reason: fmt.Sprintf("%d: use 1 to %d", r.Replicas, shard.MaxReplicas)}
	case len(r.Ranges) > shard.MaxRanges:
		return spec, &kv.InvalidError{Field: "served", Reason: fmt.Sprintf("%d ranges: use %d at most", len(r.Ranges), shard.MaxRanges)}
	}
	if r.Replicas != 0 {
		spec.Replicas = r.Replicas
	}
	if len(r.Ranges) == 0 {
		return spec, nil
	}
	spec.Ranges = slices.Clone(r.Ranges)
	slices.SortFunc(spec.Ranges, func(a, b kv.Range) int { return strings.Compare(a.Start, b.Start) })
	size := 0
	for i, one := range spec.Ranges {
		size += len(one.Start) + len(one.End)
		switch {
		case one.End != "" && one.End <= one.Start:
			return spec, &kv.InvalidError{Field: "served", Reason: fmt.Sprintf("%v has no keys", one)}
		case i > 0 && one == spec.Ranges[i-1]:
			return spec, &kv.InvalidError{Field: "served", Reason: fmt.Sprintf("%v is given twice", one)}
		case i > 0 && one.Overlaps(spec.Ranges[i-1]):
			return spec, &kv.InvalidError{Field: "served", Reason: fmt.Sprintf("%v and %v overlap: keep the wider one", spec.Ranges[i-1], one)}
		}
	}
	if size > maxSettingsBytes {
		return spec, &kv.InvalidError{Field: "served", Reason: fmt.Sprintf("the keys have %d bytes together: use %d at most", size, maxSettingsBytes)}
	}
	return spec, nil
}

// warnings returns the side effects of the change that do not prevent it.
func (r Settings) warnings(c *Cluster) (out []string) {
	want, err := r.wanted(c)
	if err != nil {
		return nil
	}
	nodes := 0
	for i := range c.Members {
		if c.takes(&c.Members[i]) {
			nodes++
		}
	}
	if r.Replicas > nodes {
		out = append(out, fmt.Sprintf("%s can have shards now: each shard has %d of %d replicas until more nodes join", count(nodes, "node"), nodes, r.Replicas))
	}
	if r.Replicas == 1 {
		out = append(out, "with one replica, a shard whose node dies is loaded again from etcd, and watches that have fallen behind receive the state again")
	}
	if r.Replicas != 0 {
		pinned := 0
		for i := range c.Map.Shards {
			if s := &c.Map.Shards[i]; len(s.Home.Pins) > 0 && s.Wanted(want) != r.Replicas {
				pinned++
			}
		}
		if pinned > 0 {
			out = append(out, fmt.Sprintf("%s moved by hand to another number of nodes: cachectl rebalance ends that", count(pinned, "shard")))
		}
	}
	if r.narrows(c.Map.Spec) {
		out = append(out,
			fmt.Sprintf("only %s is served then: all other watches end, in the native API as invalid, in etcd's API cancelled with the reason; other keys are read from etcd in etcd's API, and refused in the native API", ranges(want.Ranges)),
			c.ending())
	}
	return out
}

// narrows reports whether the change ends the service of some keys.
func (r Settings) narrows(spec shard.Spec) bool {
	if len(r.Ranges) == 0 {
		return false
	}
	want := shard.Spec{Ranges: slices.SortedFunc(slices.Values(r.Ranges), func(a, b kv.Range) int { return strings.Compare(a.Start, b.Start) })}
	return slices.ContainsFunc(spec.Ranges, func(now kv.Range) bool { return !want.Covers(now) })
}

// AskEnding returns the nodes whose [Ending] watches [NewPlan] needs: all of them if r
// ends the service of some keys.
func AskEnding(m *shard.Map, members []shard.Member, r Request) (nodes []shard.NodeID) {
	if s, ok := r.(Settings); !ok || !s.narrows(m.Spec) {
		return nil
	}
	for i := range members {
		if members[i].State != shard.Left {
			nodes = append(nodes, members[i].Name)
		}
	}
	return nodes
}

// ending formats how many watches end, and which nodes were not counted.
func (c *Cluster) ending() string {
	var all Ending
	var silent []shard.NodeID
	for i := range c.Members {
		switch e, known := c.Ending[c.Members[i].Name]; {
		case known:
			all.Native, all.Etcd = all.Native+e.Native, all.Etcd+e.Etcd
		case c.Members[i].State != shard.Left:
			silent = append(silent, c.Members[i].Name)
		}
	}
	text := fmt.Sprintf("watches that end: %d of the native API, %d of etcd's API", all.Native, all.Etcd)
	if len(silent) > 0 {
		text += fmt.Sprintf("; those at %s are not counted, because it did not answer", names(silent))
	}
	return text
}

func (Settings) about(*shard.Shard) bool        { return true }
func (Settings) touches(_, _ *shard.Shard) bool { return true }

// ranges formats a list of ranges for messages.
func ranges(of []kv.Range) string {
	out := make([]string, len(of))
	for i, r := range of {
		switch {
		case r == kv.Range{}:
			out[i] = "all keys"
		case kv.Prefix(r.Start) == r:
			out[i] = fmt.Sprintf("%q", r.Start)
		default:
			out[i] = r.String()
		}
	}
	return strings.Join(out, ", ")
}
