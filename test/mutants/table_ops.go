package mutants

func configGroup() Group {
	return Group{Package: "internal/ops/config", Mutants: []Mutant{
		{
			Name: "help-shows-expert-flags", Bug: "--help shows the flags for experts", File: "flags.go",
			Old: `func(title string) bool { return title == groupExpert }`, New: `func(title string) bool { return false }`, Tests: "TestUsagesShowGroups",
		},
		{
			Name: "founders-without-a-shard", Bug: "bootstraps a cluster of more nodes than replicas with one shard", File: "config.go",
			Old: `return max(c.BootstrapExpect, len(c.Prefixes))`, New: `return max(1, len(c.Prefixes))`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "shards-that-part-nothing", Bug: "bootstraps a cluster with a shard for each node although all nodes replicate all shards", File: "config.go",
			Old: `case c.BootstrapExpect <= c.Replicas:`, New: `case c.BootstrapExpect < c.Replicas:`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "asked-shards-ignored", Bug: "ignores --shards", File: "config.go",
			Old: `case c.Shards > 0:`, New: `case c.Shards < 0:`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "dev-shards-of-voters", Bug: "a dev cluster starts with shards for its voters only", File: "dev.go",
			Old: `c.Shards = d.Nodes`, New: `c.Shards = d.voters()`, Tests: "TestADevClusterBeginsWithAShardForEachNode",
		},
	}}
}

func telemetryGroup() Group {
	return Group{Package: "internal/ops/telemetry", Mutants: []Mutant{
		{
			Name: "refusals-on-one-connection", Bug: "accepts any number of refused requests on a connection", File: "serve.go",
			Old: "				w.Header().Set(\"Connection\", \"close\") // as with probes\n", New: "", Tests: "TestAConnectionCarriesOneProbe",
		},
	}}
}
