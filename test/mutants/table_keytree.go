package mutants

func keytreeGroup() Group {
	return Group{Package: "internal/data/keytree", Mutants: []Mutant{
		{
			Name: "digest-of-key-alone", Bug: "compares copies by their keys only", File: "digest.go",
			Old: `return xxhash.Sum64(item.Encoded())`, New: `return xxhash.Sum64(item.Key())`, Tests: "TestDigestDependsOnEveryByte",
		},
	}}
}
