package clienttest

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// placing is how changes of the map go.
type placing struct {
	done   map[string]uint64   // the version that each request made
	served []*pb.KeyRange      // what Settings has set; nil: all keys
	flags  map[string][]string // that nodes were started with and that are not in force
	hold   bool                // replicas stay half loaded
	lose   int                 // how many answers get lost once the change is made
}

// HoldFilling keeps replicas that a change moves half loaded, so that the change
// does not end, until it is called with false.
func (c *Cluster) HoldFilling(hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placing.hold = hold
	c.broadcastLocked()
}

// LoseChanges has the answers to the next n changes get lost: they are made, and
// the call fails.
func (c *Cluster) LoseChanges(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placing.lose = n
}

// Overrule has a node report flags that are not in force.
func (c *Cluster) Overrule(node string, flags ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.placing.flags == nil {
		c.placing.flags = make(map[string][]string)
	}
	c.placing.flags[node] = flags
}

// ChangePlacement makes a change at once. It knows the commonest refusals.
func (s *adminServer) ChangePlacement(r *pb.ChangePlacementRequest, stream pb.AdminService_ChangePlacementServer) error {
	c := s.n.c
	c.mu.Lock()
	plan, err := c.changeLocked(r)
	lost := err == nil && !r.GetDryRun() && c.placing.lose > 0
	if lost {
		c.placing.lose--
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case lost:
		return status.Error(codes.Unavailable, "the answer got lost") //nolint:wrapcheck // gRPC's own
	}
	send := func(m *pb.ChangePlacementResponse) error { return stream.Send(m) }
	if err := send(&pb.ChangePlacementResponse{Part: &pb.ChangePlacementResponse_Plan{Plan: plan}}); err != nil || r.GetDryRun() {
		return err
	}
	for told := -1; ; {
		c.mu.Lock()
		now, changed := c.progressLocked(plan), c.changed
		c.mu.Unlock()
		if left := int(now.GetShardsLeft()); left != told || now.GetDone() {
			told = left
			if err := send(&pb.ChangePlacementResponse{Part: &pb.ChangePlacementResponse_Progress{Progress: now}}); err != nil || now.GetDone() {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (c *Cluster) progressLocked(plan *pb.PlacementPlan) *pb.PlacementProgress {
	out := &pb.PlacementProgress{MapVersion: c.shardMap.GetVersion()}
	for _, step := range plan.GetSteps() {
		for _, node := range step.GetFilling() {
			if c.placing.hold {
				out.Filling = append(out.Filling, &pb.ReplicaFilling{Shard: step.GetTo()[0].GetId(), Node: node, Bytes: 512, OfBytes: 1024})
			}
		}
		if c.placing.hold && len(step.GetFilling()) > 0 {
			out.ShardsLeft++
		}
	}
	out.Done = out.GetShardsLeft() == 0
	return out
}

// changeLocked judges and, unless it is a dry run, makes a change.
func (c *Cluster) changeLocked(r *pb.ChangePlacementRequest) (*pb.PlacementPlan, error) {
	if version, ok := c.placing.done[r.GetRequestId()]; ok {
		return &pb.PlacementPlan{MapVersion: version}, nil
	}
	if v := r.GetIfVersion(); v != 0 && v != c.shardMap.GetVersion() {
		return nil, refusal("if_version", false, "the shard map has version %d, not %d", c.shardMap.GetVersion(), v)
	}
	next := c.cloneMapLocked()
	doubt, err := c.alterLocked(next, r)
	if err != nil {
		return nil, err
	}
	plan := &pb.PlacementPlan{MapVersion: c.shardMap.GetVersion()}
	if doubt != "" {
		if !r.GetForce() {
			return nil, refusal("nodes", true, "%s", doubt)
		}
		plan.Warnings = []string{doubt}
	}
	c.placeLocked(next, r.GetUndrain() != nil || r.GetRebalance() != nil)
	plan.Steps = steps(c.shardMap.GetShards(), next.GetShards())
	if r.GetDryRun() {
		return plan, nil
	}
	plan.MapVersion = next.GetVersion()
	if c.placing.done == nil {
		c.placing.done = make(map[string]uint64)
	}
	c.placing.done[r.GetRequestId()] = next.GetVersion()
	c.shardMap = next
	c.broadcastLocked()
	return plan, nil
}

// alterLocked changes the map but for the replicas, and says what speaks against
// it and can be overridden.
func (c *Cluster) alterLocked(m *pb.ShardMap, r *pb.ChangePlacementRequest) (doubt string, err error) {
	find := func(field string, id uint64) (int, error) {
		i := slices.IndexFunc(m.GetShards(), func(s *pb.Shard) bool { return s.GetId() == id })
		if i < 0 {
			err = invalid(field, "there is no shard %d", id)
		}
		return i, err
	}
	known := func(field string, names []string) error {
		for _, n := range names {
			if c.Node(n) == nil {
				return invalid(field, "there is no node %q", n)
			}
		}
		return nil
	}
	next := uint64(1)
	for _, s := range m.GetShards() {
		next = max(next, s.GetId()+1)
	}
	switch change := r.GetChange().(type) {
	case *pb.ChangePlacementRequest_Split:
		i, err := find("shard", change.Split.GetShard())
		if err != nil {
			return "", err
		}
		parent, parts := m.GetShards()[i], []*pb.Shard(nil)
		at := change.Split.GetAt()
		if len(at) == 0 {
			start, end, _ := span(parent.GetKey(), parent.GetRangeEnd())
			keys := c.hist.state(c.hist.revision(), start, end)
			if len(keys) < 2 {
				return "", refusal("at", false, "shard %d has too few keys (%d) to find its middle: name the key to split at", parent.GetId(), len(keys))
			}
			at = [][]byte{keys[len(keys)/2].GetKey()}
		}
		key := parent.GetKey()
		for n, end := range append(slices.Clone(at), parent.GetRangeEnd()) {
			if start, last, _ := span(key, parent.GetRangeEnd()); n < len(at) && (string(end) <= start || !contains(start, last, string(end))) {
				return "", invalid("at", "%q is outside shard %d", end, parent.GetId())
			}
			parts = append(parts, &pb.Shard{Id: next + uint64(n), Key: key, RangeEnd: end, Epoch: 1, Pins: parent.GetPins(), Replicas: parent.GetReplicas()})
			key = end
		}
		m.Shards = slices.Replace(m.GetShards(), i, i+1, parts...)
	case *pb.ChangePlacementRequest_Merge:
		i, err := find("shard", change.Merge.GetShard())
		if err != nil {
			return "", err
		}
		j, err := find("with", change.Merge.GetWith())
		if err != nil {
			return "", err
		}
		if i, j = min(i, j), max(i, j); j != i+1 {
			return "", invalid("with", "shards %d and %d are not adjacent", change.Merge.GetShard(), change.Merge.GetWith())
		}
		a, b := m.GetShards()[i], m.GetShards()[j]
		m.Shards = slices.Replace(m.GetShards(), i, j+1, &pb.Shard{Id: next, Key: a.GetKey(), RangeEnd: b.GetRangeEnd(), Epoch: 1, Pins: a.GetPins(), Replicas: a.GetReplicas()})
	case *pb.ChangePlacementRequest_Move:
		i, err := find("shard", change.Move.GetShard())
		if err != nil {
			return "", err
		}
		pins, field := change.Move.GetTo(), "to"
		if owner := change.Move.GetOwner(); owner != "" {
			pins, field = []string{owner}, "owner"
		}
		if len(pins) == 0 {
			return "", refusal("to", false, "shard %d would lose its last replica", change.Move.GetShard())
		}
		if err := known(field, pins); err != nil {
			return "", err
		}
		s := m.GetShards()[i]
		m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch(), Replicas: s.GetReplicas(), Pins: pins}
	case *pb.ChangePlacementRequest_Drain:
		names := change.Drain.GetNodes()
		if err := known("nodes", names); err != nil {
			return "", err
		}
		m.Drained = append(slices.Clone(m.GetDrained()), names...)
		slices.Sort(m.GetDrained())
		m.Drained = slices.Compact(m.GetDrained())
		switch left := len(c.nodes) - len(m.GetDrained()); {
		case left == 0:
			return "", refusal("nodes", false, "no node would be left to hold shards")
		case left < int(m.GetReplicas()):
			doubt = fmt.Sprintf("%d node would be left for %d replicas of each shard (--replicas)", left, m.GetReplicas())
		}
	case *pb.ChangePlacementRequest_Undrain:
		if err := known("nodes", change.Undrain.GetNodes()); err != nil {
			return "", err
		}
		m.Drained = slices.DeleteFunc(slices.Clone(m.GetDrained()), func(n string) bool { return slices.Contains(change.Undrain.GetNodes(), n) })
	case *pb.ChangePlacementRequest_Rebalance:
		for i, s := range m.GetShards() {
			m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch(), Replicas: s.GetReplicas()}
		}
	case *pb.ChangePlacementRequest_Finalize:
		for _, n := range c.nodes {
			if level := n.member().GetFeatureLevel(); level < change.Finalize.GetLevel() {
				return "", refusal("level", false, "not all members are known to understand feature level %d: %s runs test, which understands level %d: upgrade it", change.Finalize.GetLevel(), n.Name, level)
			}
		}
		m.FeatureLevel = max(m.GetFeatureLevel(), change.Finalize.GetLevel())
	case *pb.ChangePlacementRequest_Settings:
		if n := int(change.Settings.GetReplicas()); n > 64 {
			return "", invalid("replicas", "%d: use 1 to 64", n)
		} else if n > 0 {
			m.Replicas = change.Settings.GetReplicas()
		}
		if served := change.Settings.GetServed(); len(served) > 0 {
			m.Shards = tile(m.GetShards(), served, next)
			if !r.GetDryRun() {
				c.placing.served = served
			}
		}
	default:
		return "", invalid("change", "name the change")
	}
	return doubt, nil
}

// placeLocked gives each shard its replicas: its pins first, then those that it
// has, unless all are placed again, then the nodes that follow its own in their
// order, and none that is drained.
func (c *Cluster) placeLocked(m *pb.ShardMap, anew bool) {
	for i, s := range m.GetShards() {
		var names []string
		add := func(n string) {
			if len(names) < int(m.GetReplicas()) && !slices.Contains(names, n) && !slices.Contains(m.GetDrained(), n) {
				names = append(names, n)
			}
		}
		for _, n := range s.GetPins() {
			add(n)
		}
		for _, n := range s.GetReplicas() {
			if !anew {
				add(n)
			}
		}
		for at := range c.nodes {
			add(c.nodes[(int(s.GetId())-1+at)%len(c.nodes)].Name)
		}
		if !slices.Equal(names, s.GetReplicas()) {
			m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch() + 1, Replicas: names, Pins: s.GetPins()}
		}
	}
}

// tile returns shards that cover what is served: those of before as far as they lie in
// it, and new ones for the rest, with IDs from next on.
func tile(shards []*pb.Shard, served []*pb.KeyRange, next uint64) (out []*pb.Shard) {
	fresh := func(key, end string, of *pb.Shard) {
		s := &pb.Shard{Id: next, Key: []byte(key), RangeEnd: []byte(end), Epoch: 1, Replicas: of.GetReplicas(), Pins: of.GetPins()}
		if end == "" {
			s.RangeEnd = []byte{0}
		}
		out = append(out, s)
		next++
	}
	for _, r := range served {
		at, end, _ := span(r.GetKey(), r.GetRangeEnd())
		for _, s := range shards {
			from, to, _ := span(s.GetKey(), s.GetRangeEnd())
			if (to != "" && to <= at) || (end != "" && from >= end) {
				continue
			}
			if at < from {
				fresh(at, from, nil)
				at = from
			}
			if last := to; at != from || (end != "" && (to == "" || to > end)) {
				if end != "" && (to == "" || to > end) {
					last = end
				}
				fresh(at, last, s)
				at = last
			} else {
				out = append(out, s)
				at = to
			}
			if at == end {
				break
			}
		}
		if at != end {
			fresh(at, end, nil)
		}
	}
	return out
}

// steps returns what becomes of which shards: one step for each part of the key space
// that no shard reaches out of.
func steps(from, to []*pb.Shard) (out []*pb.PlacementStep) {
	overlap := func(a, b *pb.Shard) bool {
		aStart, aEnd, _ := span(a.GetKey(), a.GetRangeEnd())
		bStart, bEnd, _ := span(b.GetKey(), b.GetRangeEnd())
		return (aEnd == "" || bStart < aEnd) && (bEnd == "" || aStart < bEnd)
	}
	for len(from) > 0 || len(to) > 0 {
		i, j := 0, 0
		if len(to) == 0 || (len(from) > 0 && string(from[0].GetKey()) <= string(to[0].GetKey())) {
			i = 1
		} else {
			j = 1
		}
		for {
			if j < len(to) && slices.ContainsFunc(from[:i], func(s *pb.Shard) bool { return overlap(s, to[j]) }) {
				j++
			} else if i < len(from) && slices.ContainsFunc(to[:j], func(s *pb.Shard) bool { return overlap(s, from[i]) }) {
				i++
			} else {
				break
			}
		}
		step := &pb.PlacementStep{From: from[:i], To: to[:j]}
		for _, s := range step.GetTo() {
			for _, n := range s.GetReplicas() {
				switch {
				case i == 0:
					step.Filling, step.BytesToCopy = append(step.Filling, n), -1
				case !slices.Contains(from[0].GetReplicas(), n):
					step.Filling = append(step.Filling, n)
					step.BytesToCopy += 1024
				}
			}
		}
		for _, s := range step.GetFrom() {
			for _, n := range s.GetReplicas() {
				if !slices.ContainsFunc(step.GetTo(), func(to *pb.Shard) bool { return slices.Contains(to.GetReplicas(), n) }) {
					step.BytesToFree += 1024
				}
			}
		}
		if i != 1 || j != 1 || from[0].GetId() != to[0].GetId() || !slices.Equal(from[0].GetReplicas(), to[0].GetReplicas()) {
			out = append(out, step)
		}
		from, to = from[i:], to[j:]
	}
	return out
}

func refusal(field string, force bool, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	return failure(codes.FailedPrecondition, "REFUSED", field+": "+why, map[string]string{"field": field, "reason": why, "force": strconv.FormatBool(force)})
}

func invalid(field, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	return failure(codes.InvalidArgument, "INVALID_REQUEST", field+": "+why, map[string]string{"field": field, "reason": why})
}
