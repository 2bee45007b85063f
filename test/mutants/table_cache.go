package mutants

func cacheGroup() Group {
	return Group{Package: "internal/cache", Mutants: []Mutant{
		{
			Name: "duplicate-at-change-over", Bug: "applies again what a new source repeats", File: "apply.go",
			Old: `if b.Revision <= old.progress {`, New: `if false {`, Tests: "TestResumeAfterLoss",
		},
		{
			Name: "previous-of-same-revision", Bug: "the previous value is one of the same revision", File: "apply.go",
			Old: `prev != nil && prev.ModRevision() == b.Revision`, New: `false`, Tests: "TestPreviousValueWithinARevision",
		},
		{
			Name: "replay-skips-boundary", Bug: "a replay omits the revision it starts at", File: "watcher.go",
			Old: `w.state.Store(v.win.seek(from) << 1)`, New: `w.state.Store(v.win.seek(from+1) << 1)`, Tests: "TestAgainstModel",
		},
		{
			Name: "filtered-progress-forgotten", Bug: "a watcher does not move past events outside its range", File: "watcher.go",
			Old: `w.from = max(w.from, progress+1)`, New: `_ = progress`, Tests: "TestAgainstModel|TestCompactedAtSource",
		},
		{
			Name: "tombstone-forgotten", Bug: "a delete is not remembered for deltas", File: "changes.go",
			Old: `l.buryLocked(b.Received, kv.Tombstone{`, New: `_ = (kv.Tombstone{`, Tests: "TestAgainstModel",
		},
		{
			Name: "delta-of-another-snapshot", Bug: "a delta has values newer than its revision", File: "changes.go",
			Old: `if item.ModRevision() > state.Revision {`, New: `if false {`, Tests: "TestAgainstModel",
		},
		{
			Name: "delta-over-hole", Bug: "a delta starts inside a leap, where deletes are not known", File: "changes.go",
			Old: `if revision > h.after && revision < h.before {`, New: `if false {`, Tests: "TestAgainstModel",
		},
		{
			Name: "split-without-window", Bug: "the halves of a split inherit the state without its window", File: "seed.go",
			Old: "\tif stateless {\n\t\ts.base =", New: "\ts.past.Batches = nil\n\tif stateless {\n\t\ts.base =", Tests: "TestSplitInheritsWindowAndState",
		},
		{
			Name: "merge-of-two-moments", Bug: "a merged shard starts with parts of different revisions", File: "seed.go",
			Old: `roots, next = append(roots, root), max(next, oldest)`, New: `_ = root; roots, next = append(roots, v.root), max(next, oldest)`, Tests: "TestHeirsAgainstModel",
		},
		{
			Name: "merge-drops-half", Bug: "of a revision in two shards that are merged, one half is lost", File: "seed.go",
			Old: `whole[n-1].Events = append(whole[n-1].Events, b.Events...)`, New: `continue`, Tests: "TestHeirsAgainstModel",
		},
		{
			Name: "floor-not-raised", Bug: "events leave the window and its floor stays", File: "window.go",
			Old: `w.floor = last.Revision + 1`, New: `_ = last.Revision`, Tests: "TestAgainstModel",
		},
		{
			Name: "source-after-gap", Bug: "follows a source that begins after a gap", File: "follow.go",
			Old: `case u.Revision > have:`, New: `case false:`, Tests: "TestSourceOutOfTurn",
		},
		{
			Name: "stale-source", Bug: "takes the state of a source that is older than its own", File: "follow.go",
			Old: `if u.Revision < have {`, New: `if false {`, Tests: "TestOlderStateIsRefused",
		},
		{
			Name: "digest-of-key-alone", Bug: "compares copies by their keys alone", File: "digest.go",
			Old: `return xxhash.Sum64(item.Encoded())`, New: `return xxhash.Sum64(item.Key())`, Tests: "TestDigestTellsEveryByte",
		},
		{
			Name: "fresh-before-caught-up", Bug: "calls data fresh that has not caught up", File: "freshness.go",
			Old: `if revision <= f.reach {`, New: `if true {`, Tests: "TestFreshness",
		},
	}}
}
