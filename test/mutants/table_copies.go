package mutants

func copiesGroup() Group {
	return Group{Package: "internal/data/copies", Mutants: []Mutant{
		{
			Name: "loaded-without-an-age", Bug: "reports a node as ready before the age of its data is known", File: "copies.go",
			Old: `			out.Ageless++
`, New: ``, Tests: "TestLoadedWithoutAnAge",
		},
		{
			Name: "wrong-copy-stays-on-disk", Bug: "keeps the saved history of a wrong copy", File: "renew.go",
			Old: `s.cfg.History.Drop(r.id)`, New: `_ = s.cfg.History`, Tests: "TestWrongRecordThatWasSaved", Package: "internal/node",
		},
	}}
}
