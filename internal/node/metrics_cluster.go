package node

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// memberStates are the states of members, as metrics name them.
func memberStates() map[shard.State]string {
	return map[shard.State]string{shard.Alive: "alive", shard.Suspect: "suspect", shard.Dead: "dead", shard.Left: "left"}
}

// registerCluster registers the metrics of this node's view of the other nodes, and of
// its own role among them.
func (n *Node) registerCluster(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	var (
		ready    = in.Gauge("shardwatch.node.ready", "{bool}", "1 while the node is ready, as /readyz reports.")
		draining = in.Gauge("shardwatch.node.draining", "{bool}", "1 while the node drains: its shards and watches move to other nodes.")
		isolated = in.Gauge("shardwatch.node.cut_off", "{bool}", "1 while the node reaches no other node and its data gets no updates: all data when etcd does not answer either, otherwise that of shards on other nodes.")
		members  = in.Gauge("shardwatch.cluster.members", "{member}", "Nodes in this node's gossip view, by state.")
		zoneless = in.Gauge("shardwatch.cluster.members_without_zone", "{member}", "Live nodes without a --zone: replicas and voters are not spread over failure domains for them.")
		shards   = in.Gauge("shardwatch.cluster.shards", "{shard}", "Shards of the map that this node acts on.")
		short    = in.Gauge("shardwatch.cluster.shards_short", "{shard}", "Of these, shards with fewer replicas on live nodes than are wanted and possible.")
		lost     = in.Gauge("shardwatch.cluster.shards_lost", "{shard}", "Of these, shards with no replica on a live node.")
		level    = in.Gauge("shardwatch.cluster.feature_level", "{level}", "Feature level that is finalized, in the map that this node acts on.")
		common   = in.Gauge("shardwatch.cluster.feature_level_common", "{level}", "Newest feature level that all members that have not left understand, up to the level of this node's software. Above shardwatch_cluster_feature_level, an upgrade is not finalized.")
		voters   = in.Gauge("shardwatch.raft.voters", "{voter}", "Voters of the shard map. Absent on nodes that do not vote.")
		alive    = in.Gauge("shardwatch.raft.voters_alive", "{voter}", "Of these, those that are alive. Without a majority no shard is moved.")
		spare    = in.Gauge("shardwatch.raft.voters_spare", "{voter}", "Voters that can still be lost before the majority is lost; below 0, the number missing to a majority. Absent on nodes that do not vote.")
		changed  = in.Counter("shardwatch.raft.voter_changes", "{change}", "Changes of the voters that this node has made as the leader, by action: learn (it gets the log, to vote later), add, demote, remove, step_down.")
		known    = in.Gauge("shardwatch.raft.leader_known", "{bool}", "1 while this voter knows the leader. Absent on nodes that do not vote.")
		group    = in.Gauge("shardwatch.raft.generation", "{version}", "Map version of the last recovery of the voters, in this node's map; 0: never recovered. Nodes that differ in it for long belong to different groups.")
		version  = in.Gauge("shardwatch.node.map_version", "{version}", "Version of the shard map that this node acts on.")
		leads    = in.Gauge("shardwatch.raft.leader", "{bool}", "1 on the node that leads the voters.")
	)
	return in.Observe(func(o metric.Observer) {
		o.ObserveInt64(ready, telemetry.Bool(len(n.NotReady()) == 0))
		o.ObserveInt64(draining, telemetry.Bool(n.drained.Load()))
		o.ObserveInt64(isolated, telemetry.Bool(n.clock.isolation.off.Load()))
		all := n.members.Members()
		states, noZone := map[shard.State]int64{}, int64(0)
		votes := map[shard.NodeID]bool{}
		for i := range all {
			states[all[i].State]++
			votes[all[i].Name] = all[i].State == shard.Alive && all[i].Voter // not a voter that lost its disk
			noZone += telemetry.Bool(all[i].State == shard.Alive && all[i].Zone == "")
		}
		o.ObserveInt64(zoneless, noZone)
		for state, name := range memberStates() {
			o.ObserveInt64(members, states[state], metric.WithAttributes(attribute.String("state", name)))
		}
		m := n.placement.Map()
		o.ObserveInt64(version, int64(versionOf(m))) //nolint:gosec // a count of changes
		if m != nil {
			few, none := shortOf(m, all)
			o.ObserveInt64(shards, int64(len(m.Shards)))
			o.ObserveInt64(short, few)
			o.ObserveInt64(lost, none)
			o.ObserveInt64(level, int64(m.FinalLevel()))
			o.ObserveInt64(group, int64(m.Generation)) //nolint:gosec // a version of the map
			o.ObserveInt64(common, int64(shard.Common(all)))
		}
		leader, led := n.placement.Leader()
		o.ObserveInt64(leads, telemetry.Bool(led && leader == n.self))
		if vote := n.placement.Voters(); len(vote) > 0 {
			here := int64(0)
			for _, v := range vote {
				here += telemetry.Bool(votes[v])
			}
			o.ObserveInt64(voters, int64(len(vote)))
			o.ObserveInt64(alive, here)
			o.ObserveInt64(spare, here-int64(len(vote)/2+1))
			o.ObserveInt64(known, telemetry.Bool(led))
		}
		done := n.placement.Stats()
		for _, step := range planner.VoterSteps() {
			o.ObserveInt64(changed, done.Voters[step], metric.WithAttributes(attribute.String("change", string(step))))
		}
	})
}

func versionOf(m *shard.Map) uint64 {
	if m == nil {
		return 0
	}
	return m.Version
}

// shortOf counts the shards of a map that have fewer live replicas than wanted and
// possible with the present nodes, and the shards without any. As in the planner,
// draining nodes count as possible only if there are no others.
func shortOf(m *shard.Map, members []shard.Member) (short, lost int64) {
	living, could := map[shard.NodeID]bool{}, 0
	for i := range members {
		if n := &members[i]; n.State == shard.Alive {
			living[n.Name] = true
			could += int(telemetry.Bool(!n.Draining && !m.IsDrained(n.Name)))
		}
	}
	if could == 0 {
		could = len(living)
	}
	for i := range m.Shards {
		s := &m.Shards[i]
		have := 0
		for _, r := range s.Replicas {
			have += int(telemetry.Bool(living[r]))
		}
		short += telemetry.Bool(have < min(s.Wanted(m.Spec), could))
		lost += telemetry.Bool(have == 0)
	}
	return short, lost
}
