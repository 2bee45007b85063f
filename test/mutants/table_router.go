package mutants

func routerGroup() Group {
	return Group{Package: "internal/router", Mutants: []Mutant{
		{
			Name: "progress-before-events", Bug: "reports progress over shards of which one is behind", File: "watch.go",
			Old: `progress = min(progress, c.progress())`, New: `progress = max(min(progress, c.progress()), c.reached())`, Tests: "TestPositionOfAMerge|TestWatchAgainstHistory",
		},
		{
			Name: "transaction-torn", Bug: "delivers a revision before all shards have it", File: "watch.go",
			Old: `w.together.frontier.await(&w.together.held, lowest)
		return 0, dst, nil`, New: `w.together.frontier.await(&w.together.held, lowest)`, Tests: "TestWatchAgainstHistory",
		},
		{
			Name: "linearizable-without-waiting", Bug: "answers a linearizable read with what is present", File: "read.go",
			Old: `case !req.Serializable:`, New: `case false:`, Tests: "TestScan",
		},
	}}
}
