package planner

import "github.com/shardwatch/shardwatch/internal/shard"

// Operation is a leader's automatic action on a shard, as metrics name it.
type Operation string

// The operations. Those for the load begin with "load_": LoadMerge begins a merge, which
// is made once both shards are on the same nodes.
const (
	Moved             Operation = "moved"  // to other nodes
	Divided           Operation = "split"  // because there are fewer shards than the specification asks for
	Merged            Operation = "merged" // with a neighbour
	LoadSplit         Operation = "load_split"
	LoadMerge         Operation = "load_merge"
	LoadMoreReplicas  Operation = "load_more_replicas"
	LoadFewerReplicas Operation = "load_fewer_replicas"
	LoadUncuttable    Operation = "load_uncuttable" // nothing done: the shard has too few keys to be split
)

// Operations returns all operations.
func Operations() []Operation {
	return []Operation{Moved, Divided, Merged, LoadSplit, LoadMerge, LoadMoreReplicas, LoadFewerReplicas, LoadUncuttable}
}

// VoterSteps returns the steps that a leader takes to change the voters.
func VoterSteps() []VoterStep {
	return []VoterStep{LearnVoter, AddVoter, DemoteVoter, RemoveVoter, StepDown}
}

// OperationOf returns the operation that gives a shard of m the home h; "": none.
func OperationOf(m *shard.Map, h shard.ShardHome) Operation {
	s, _ := m.Shard(h.Shard)
	before, after := max(s.Home.Replicas, m.Spec.Replicas), max(h.Home.Replicas, m.Spec.Replicas)
	switch {
	case h.Home.Seat != s.Home.Seat:
		return LoadMerge
	case after > before:
		return LoadMoreReplicas
	case after < before:
		return LoadFewerReplicas
	}
	return ""
}
