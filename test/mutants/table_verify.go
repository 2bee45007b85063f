package mutants

func verifyGroup() Group {
	return Group{Package: "internal/data/verify", Mutants: []Mutant{
		{
			Name: "half-of-the-copies-is-most", Bug: "accepts half of the copies as a majority", File: "compare.go",
			Old: `if 2*same > out.compared() {`, New: `if 2*same >= out.compared() {`, Tests: "TestMajorityIsMoreThanHalf",
		},
	}}
}
