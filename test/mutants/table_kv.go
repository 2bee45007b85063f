package mutants

func kvGroup() Group {
	return Group{Package: "internal/kv", Mutants: []Mutant{
		{
			Name: "whole-key-shown", Bug: "prints keys of any length in logs and errors", File: "range.go",
			Old: `if len(key) <= maxQuoted {`, New: `if true {`, Tests: "TestRangeString",
		},
		{
			Name: "changed-without-previous", Bug: "accepts a change without its previous value as complete", File: "event.go",
			Old: `e.KV.Version() > 1:`, New: `e.KV.Version() > 2:`, Tests: "TestPreviousValueThatEtcdLeavesOut",
		},
		{
			Name: "deleted-without-previous", Bug: "accepts a delete without its previous value as complete", File: "event.go",
			Old: `case !put[string(e.KV.Key())]:`, New: `case false:`, Tests: "TestPreviousValueThatEtcdLeavesOut",
		},
		{
			Name: "batch-split-whole", Bug: "gives a range the events of other ranges", File: "runs.go",
			Old: `at >= 0 && !slices.ContainsFunc(`, New: `at >= 0 && true || at >= 0 && !slices.ContainsFunc(`, Tests: "TestSplitIsByRange",
		},
		{
			Name: "runs-over-gaps", Bug: "treats separate ranges as adjacent", File: "runs.go",
			Old: `at, found := ends[r.Start]`, New: `at, found := max(0, len(runs)-1), len(runs) > 0`, Tests: "TestRunsAreOfAdjacentRanges",
		},
	}}
}
