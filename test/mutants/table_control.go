package mutants

func shardGroup() Group {
	return Group{Package: "internal/shard", Mutants: []Mutant{
		{
			Name: "epoch-reset", Bug: "a shard's epoch restarts when it moves", File: "apply.go",
			Old: `s.Epoch++`, New: `s.Epoch = 1`, Tests: "TestEpochGrowsOnlyWithReplicas",
		},
	}}
}
