package mutants

func nodeGroup() Group {
	return Group{Package: "internal/node", Mutants: []Mutant{
		{
			Name: "restore-though-denied", Bug: "a restore is certain after a while though other nodes deny it", File: "lineage.go",
			Old: `deny == 0 && doubted > votePatience`, New: `doubted > votePatience`, Tests: "TestWhoWitnessesARestore",
		},
		{
			Name: "witness-of-another-lineage", Bug: "takes the word of a node in another lineage", File: "lineage.go",
			Old: `case s.GetLineage() != lineage:`, New: `case false:`, Tests: "TestWhoWitnessesARestore",
		},
		{
			Name: "denied-by-an-old-look", Bug: "a look at etcd from before the doubt denies a restore", File: "lineage.go",
			Old: `s.GetEtcdAge() != nil && s.GetEtcdAge().AsDuration() < doubted`, New: `s.GetEtcdAge() != nil`, Tests: "TestWhoWitnessesARestore",
		},
		{
			Name: "half-is-most", Bug: "takes half of the nodes for most of them", File: "lineage.go",
			Old: `return 2*some > all`, New: `return 2*some >= all`, Tests: "TestMostIsMoreThanHalf",
		},
		{
			Name: "too-old-waits", Bug: "a node that does not understand the cluster's map waits for ever", File: "followmap.go",
			Old: `|| !errors.Is(err, shard.ErrNewer) {`, New: `|| true || err == nil {`, Tests: "TestAnOlderNodeThatDoesNotVoteRefusesToJoin",
		},
		{
			Name: "too-old-by-damage", Bug: "one damaged byte of a map ends the node", File: "followmap.go",
			Old: `!ok || m.Level <= shard.Level || `, New: `!ok || m.Name == "" || `, Tests: "TestANodeOutlivesAMapWithADamagedLevel",
		},
		{
			Name: "wrong-copy-stays-on-disk", Bug: "keeps the saved history of a copy that was wrong", File: "renew.go",
			Old: `s.n.history.drop(r.id)`, New: `_ = s.n.history`, Tests: "TestWrongRecordThatWasSaved",
		},
	}}
}
