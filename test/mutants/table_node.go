package mutants

func nodeGroup() Group {
	return Group{Package: "internal/node", Mutants: []Mutant{
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
