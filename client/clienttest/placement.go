package clienttest

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// placing controls the changes of the map.
type placing struct {
	done   map[string]uint64   // the map version of each request
	served []*pb.KeyRange      // as set by Settings; nil: all keys
	flags  map[string][]string // of nodes, that the settings override
	hold   bool                // replicas stay half loaded
	lose   int                 // how many answers are lost after the change is made
}

// HoldFilling keeps replicas that a change moves half loaded, so that the change does
// not end until HoldFilling(false).
func (c *Cluster) HoldFilling(hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placing.hold = hold
	c.broadcastLocked()
}

// LoseChanges drops the answers to the next n changes: they are made, and the call fails.
func (c *Cluster) LoseChanges(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.placing.lose = n
}

// Overrule makes a node report flags that the settings override.
func (c *Cluster) Overrule(node string, flags ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.placing.flags == nil {
		c.placing.flags = make(map[string][]string)
	}
	c.placing.flags[node] = flags
}

// ChangePlacement makes a change at once. It implements the most common rejections.
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

// changeLocked checks a change and, unless it is a dry run, makes it.
func (c *Cluster) changeLocked(r *pb.ChangePlacementRequest) (*pb.PlacementPlan, error) {
	if version, ok := c.placing.done[r.GetRequestId()]; ok {
		return &pb.PlacementPlan{MapVersion: version}, nil
	}
	if v := r.GetIfVersion(); v != 0 && v != c.shardMap.GetVersion() {
		return nil, refusal("if_version", false, "the shard map has version %d, not %d", c.shardMap.GetVersion(), v)
	}
	change := newAlteration(c)
	doubt, err := change.apply(r)
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
	change.place(r.GetUndrain() != nil || r.GetRebalance() != nil)
	plan.Steps = steps(c.shardMap.GetShards(), change.m.GetShards())
	if r.GetDryRun() {
		return plan, nil
	}
	next := change.m
	plan.MapVersion = next.GetVersion()
	if c.placing.done == nil {
		c.placing.done = make(map[string]uint64)
	}
	c.placing.done[r.GetRequestId()] = next.GetVersion()
	c.shardMap = next
	c.broadcastLocked()
	return plan, nil
}

// alteration is a change of the map before it is applied, under the cluster's lock.
type alteration struct {
	c    *Cluster
	m    *pb.ShardMap // the next map; a copy
	next uint64       // the lowest ID that no shard has
}

func newAlteration(c *Cluster) *alteration {
	a := &alteration{c: c, m: c.cloneMapLocked(), next: 1}
	for _, s := range a.m.GetShards() {
		a.next = max(a.next, s.GetId()+1)
	}
	return a
}

// find returns the index of the shard that a field of the request names.
func (a *alteration) find(field string, id uint64) (int, error) {
	i := slices.IndexFunc(a.m.GetShards(), func(s *pb.Shard) bool { return s.GetId() == id })
	if i < 0 {
		return 0, invalid(field, "there is no shard %d", id)
	}
	return i, nil
}

// known fails unless all nodes that a field of the request names exist.
func (a *alteration) known(field string, names []string) error {
	for _, n := range names {
		if a.c.Node(n) == nil {
			return invalid(field, "there is no node %q", n)
		}
	}
	return nil
}

// apply changes the map, except the replicas. It returns the objection, if any, that
// --force overrides.
func (a *alteration) apply(r *pb.ChangePlacementRequest) (doubt string, err error) {
	switch change := r.GetChange().(type) {
	case *pb.ChangePlacementRequest_Split:
		return "", a.split(change.Split)
	case *pb.ChangePlacementRequest_Merge:
		return "", a.merge(change.Merge)
	case *pb.ChangePlacementRequest_Move:
		return "", a.move(change.Move)
	case *pb.ChangePlacementRequest_Drain:
		return a.drain(change.Drain.GetNodes())
	case *pb.ChangePlacementRequest_Undrain:
		names := change.Undrain.GetNodes()
		a.m.Drained = slices.DeleteFunc(slices.Clone(a.m.GetDrained()), func(n string) bool { return slices.Contains(names, n) })
		return "", a.known("nodes", names)
	case *pb.ChangePlacementRequest_Rebalance:
		for i, s := range a.m.GetShards() {
			a.m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch(), Replicas: s.GetReplicas()}
		}
		return "", nil
	case *pb.ChangePlacementRequest_Finalize:
		return "", a.finalize(change.Finalize.GetLevel())
	case *pb.ChangePlacementRequest_Settings:
		return "", a.set(change.Settings.GetReplicas(), change.Settings.GetServed(), r.GetDryRun())
	}
	return "", invalid("change", "name the change")
}

func (a *alteration) split(r *pb.SplitShard) error {
	i, err := a.find("shard", r.GetShard())
	if err != nil {
		return err
	}
	parent, parts := a.m.GetShards()[i], []*pb.Shard(nil)
	at := r.GetAt()
	if len(at) == 0 {
		start, end, _ := span(parent.GetKey(), parent.GetRangeEnd())
		keys := a.c.hist.state(a.c.hist.revision(), start, end)
		if len(keys) < 2 {
			return refusal("at", false, "shard %d has too few keys (%d) to find its middle: name the key to split at", parent.GetId(), len(keys))
		}
		at = [][]byte{keys[len(keys)/2].GetKey()}
	}
	key := parent.GetKey()
	for n, end := range append(slices.Clone(at), parent.GetRangeEnd()) {
		if start, last, _ := span(key, parent.GetRangeEnd()); n < len(at) && (string(end) <= start || !contains(start, last, string(end))) {
			return invalid("at", "%q is outside shard %d", end, parent.GetId())
		}
		parts = append(parts, &pb.Shard{Id: a.next + uint64(n), Key: key, RangeEnd: end, Epoch: 1, Pins: parent.GetPins(), Replicas: parent.GetReplicas()})
		key = end
	}
	a.m.Shards = slices.Replace(a.m.GetShards(), i, i+1, parts...)
	return nil
}

func (a *alteration) merge(r *pb.MergeShards) error {
	i, err := a.find("shard", r.GetShard())
	if err != nil {
		return err
	}
	j, err := a.find("with", r.GetWith())
	if err != nil {
		return err
	}
	if i, j = min(i, j), max(i, j); j != i+1 {
		return invalid("with", "shards %d and %d are not adjacent", r.GetShard(), r.GetWith())
	}
	left, right := a.m.GetShards()[i], a.m.GetShards()[j]
	a.m.Shards = slices.Replace(a.m.GetShards(), i, j+1, &pb.Shard{Id: a.next, Key: left.GetKey(), RangeEnd: right.GetRangeEnd(), Epoch: 1, Pins: left.GetPins(), Replicas: left.GetReplicas()})
	return nil
}

func (a *alteration) move(r *pb.MoveShard) error {
	i, err := a.find("shard", r.GetShard())
	if err != nil {
		return err
	}
	pins, field := r.GetTo(), "to"
	if owner := r.GetOwner(); owner != "" {
		pins, field = []string{owner}, "owner"
	}
	if len(pins) == 0 {
		return refusal("to", false, "shard %d would lose its last replica", r.GetShard())
	}
	if err := a.known(field, pins); err != nil {
		return err
	}
	s := a.m.GetShards()[i]
	a.m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch(), Replicas: s.GetReplicas(), Pins: pins}
	return nil
}

func (a *alteration) drain(names []string) (doubt string, err error) {
	if err := a.known("nodes", names); err != nil {
		return "", err
	}
	a.m.Drained = append(slices.Clone(a.m.GetDrained()), names...)
	slices.Sort(a.m.GetDrained())
	a.m.Drained = slices.Compact(a.m.GetDrained())
	switch left := len(a.c.nodes) - len(a.m.GetDrained()); {
	case left == 0:
		return "", refusal("nodes", false, "no node would be left to hold shards")
	case left < int(a.m.GetReplicas()):
		doubt = fmt.Sprintf("%d node would be left for %d replicas of each shard (--replicas)", left, a.m.GetReplicas())
	}
	return doubt, nil
}

func (a *alteration) finalize(level int32) error {
	for _, n := range a.c.nodes {
		if has := n.member().GetFeatureLevel(); has < level {
			return refusal("level", false, "not all members are known to understand feature level %d: %s runs test, which understands level %d: upgrade it", level, n.Name, has)
		}
	}
	a.m.FeatureLevel = max(a.m.GetFeatureLevel(), level)
	return nil
}

func (a *alteration) set(replicas int32, served []*pb.KeyRange, dryRun bool) error {
	if replicas > 64 {
		return invalid("replicas", "%d: use 1 to 64", replicas)
	} else if replicas > 0 {
		a.m.Replicas = replicas
	}
	if len(served) > 0 {
		a.m.Shards = tile(a.m.GetShards(), served, a.next)
		if !dryRun {
			a.c.placing.served = served
		}
	}
	return nil
}

// place assigns the replicas of each shard: its pins first, then its current replicas,
// unless all are placed again (anew), then the nodes that follow its own in order.
// Drained nodes get none.
func (a *alteration) place(anew bool) {
	for i, s := range a.m.GetShards() {
		var names []string
		add := func(n string) {
			if len(names) < int(a.m.GetReplicas()) && !slices.Contains(names, n) && !slices.Contains(a.m.GetDrained(), n) {
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
		for at := range a.c.nodes {
			add(a.c.nodes[(int(s.GetId())-1+at)%len(a.c.nodes)].Name)
		}
		if !slices.Equal(names, s.GetReplicas()) {
			a.m.Shards[i] = &pb.Shard{Id: s.GetId(), Key: s.GetKey(), RangeEnd: s.GetRangeEnd(), Epoch: s.GetEpoch() + 1, Replicas: names, Pins: s.GetPins()}
		}
	}
}

// tile returns shards that cover the served keys: the previous shards as far as they
// overlap them, and new ones for the rest, with IDs from next on.
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

// steps returns the changes of the shards: one step for each part of the key space
// whose bounds no shard crosses.
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
