package mutants

func mapfollowGroup() Group {
	return Group{Package: "internal/control/mapfollow", Mutants: []Mutant{
		{
			Name: "too-old-waits", Bug: "a node that cannot decode the cluster's map waits forever", File: "follow.go",
			Old: `|| !errors.Is(err, shard.ErrNewer) {`, New: `|| true || err == nil {`, Tests: "TestAnOlderNodeThatDoesNotVoteRefusesToJoin", Package: "internal/node",
		},
		{
			Name: "too-old-by-damage", Bug: "one damaged byte of a map ends the node", File: "follow.go",
			Old: `!ok || m.Level <= shard.Level || `, New: `!ok || m.Name == "" || `, Tests: "TestANodeOutlivesAMapWithADamagedLevel", Package: "internal/node",
		},
	}}
}
