package mutants

func nodeGroup() Group {
	return Group{Package: "internal/node", Mutants: []Mutant{
		{
			Name: "wrong-copy-stays-on-disk", Bug: "keeps the saved history of a copy that was wrong", File: "renew.go",
			Old: `s.n.history.drop(r.id)`, New: `_ = s.n.history`, Tests: "TestWrongRecordThatWasSaved",
		},
	}}
}
