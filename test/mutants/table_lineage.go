package mutants

func lineageGroup() Group {
	return Group{Package: "internal/data/lineage", Mutants: []Mutant{
		{
			Name: "restore-though-denied", Bug: "confirms a restore after a while although other nodes deny it", File: "lineage.go",
			Old: `deny == 0 && doubted > votePatience`, New: `doubted > votePatience`, Tests: "TestConfirmationOfARestore",
		},
		{
			Name: "witness-of-another-lineage", Bug: "accepts the report of a node in another lineage", File: "lineage.go",
			Old: `case s.GetLineage() != lineage:`, New: `case false:`, Tests: "TestConfirmationOfARestore",
		},
		{
			Name: "denied-by-an-old-look", Bug: "an old check of etcd denies a restore", File: "lineage.go",
			Old: `s.GetEtcdAge() != nil && s.GetEtcdAge().AsDuration() < doubted`, New: `s.GetEtcdAge() != nil`, Tests: "TestConfirmationOfARestore",
		},
		{
			Name: "half-is-most", Bug: "accepts half of the nodes as a majority", File: "lineage.go",
			Old: `return 2*some > all`, New: `return 2*some >= all`, Tests: "TestMostIsMoreThanHalf",
		},
	}}
}
