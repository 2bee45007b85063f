package mutants

func farewellGroup() Group {
	return Group{Package: "internal/edge/farewell", Mutants: []Mutant{
		{
			Name: "farewell-takes-all-time", Bug: "a drain leaves clients no time to read", File: "farewell.go",
			Old: `took = min(took, time.Until(end)/2)`, New: `took = min(took, time.Until(end))`, Tests: "TestWatchesEndAtTheConfiguredRate",
		},
		{
			Name: "farewell-forgets-rest", Bug: "watches without a timely end message never get one", File: "farewell.go",
			Old: `return told, all
		}`, New: `return told, nil
		}`, Tests: "TestWatchesEndAtTheConfiguredRate",
		},
	}}
}
