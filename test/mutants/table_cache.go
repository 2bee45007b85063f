package mutants

func cacheGroup() Group {
	return Group{Package: "internal/cache", Mutants: []Mutant{
		{
			Name: "quiet-before-the-window", Bug: "treats the time before the window as a time without events", File: "position.go",
			Old: `return v.changed, v.progress`, New: `if v.changed < v.win.floor {
		return 0, v.progress
	}
	return v.changed, v.progress`, Tests: "TestQuiet",
		},
		{
			Name: "quiet-after-late-event", Bug: "a repeated event makes the newest one older", File: "apply.go",
			Old: `if b.Revision <= old.progress {`, New: `if false {`, Tests: "TestQuiet",
		},
		{
			Name: "duplicate-at-change-over", Bug: "applies events again that a new source repeats", File: "apply.go",
			Old: `if b.Revision <= old.progress {`, New: `if false {`, Tests: "TestResumeAfterLoss",
		},
		{
			Name: "previous-of-same-revision", Bug: "takes the previous value from the same revision", File: "apply.go",
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
			Name: "tombstone-forgotten", Bug: "does not record a delete for deltas", File: "changes.go",
			Old: `l.buryLocked(b.Received, kv.Tombstone{`, New: `_ = (kv.Tombstone{`, Tests: "TestAgainstModel",
		},
		{
			Name: "delta-of-another-snapshot", Bug: "a delta has values newer than its revision", File: "changes.go",
			Old: `if item.ModRevision() > state.Revision {`, New: `if false {`, Tests: "TestAgainstModel",
		},
		{
			Name: "delta-over-hole", Bug: "a delta starts inside a leap, for which deletes are unknown", File: "changes.go",
			Old: `if revision > h.after && revision < h.before {`, New: `if false {`, Tests: "TestAgainstModel",
		},
		{
			Name: "split-without-window", Bug: "the halves of a split inherit the state without its window", File: "seed.go",
			Old: "\tif stateless {\n\t\ts.base =", New: "\ts.past.Batches = nil\n\tif stateless {\n\t\ts.base =", Tests: "TestSplitInheritsWindowAndState",
		},
		{
			Name: "merge-of-two-moments", Bug: "a merged shard starts with parts of different revisions", File: "seed.go",
			Old: `roots, next = append(roots, root), max(next, oldest)`, New: `_ = root; roots, next = append(roots, v.root), max(next, oldest)`, Tests: "TestSplitsAndMergesAgainstModel",
		},
		{
			Name: "merge-drops-half", Bug: "loses half of a revision that is in both merged shards", File: "seed.go",
			Old: `whole[n-1].Events = append(whole[n-1].Events, b.Events...)`, New: `continue`, Tests: "TestSplitsAndMergesAgainstModel",
		},
		{
			Name: "floor-not-raised", Bug: "drops events from the window without raising its floor", File: "window.go",
			Old: `w.floor = last.Revision + 1`, New: `_ = last.Revision`, Tests: "TestAgainstModel",
		},
		{
			Name: "evicted-position-forgotten", Bug: "a watcher whose batch was evicted forgets its position", File: "window.go",
			Old: "\t\tw.pass(s)\n\t\tw.floor", New: "\t\tw.floor", Tests: "TestAWatcherBehindTheWindowKeepsItsPosition",
		},
		{
			Name: "evicted-position-too-new", Bug: "a watcher whose batch was evicted counts as having received it", File: "window.go",
			Old: `reached: first.Revision - 1,`, New: `reached: s.batches[s.n-1].Revision,`, Tests: "TestAWatcherBehindTheWindowKeepsItsPosition",
		},
		{
			Name: "passed-kept-forever", Bug: "remembers every evicted batch", File: "window.go",
			Old: `if len(w.passed) == maxPassed {`, New: `if false {`, Tests: "TestKnowledgeOfOldPositionsIsBounded",
		},
		{
			Name: "idle-with-watches", Bug: "reports idle with open watches", File: "idle.go",
			Old: `c.wakeups.used.Swap(false) || c.wakeups.index.count > 0`, New: `c.wakeups.used.Swap(false)`, Tests: "TestIdle",
		},
		{
			Name: "idle-while-read", Bug: "reports idle during reads", File: "idle.go",
			Old: `c.wakeups.used.Swap(false) || c.wakeups.index.count > 0`, New: `c.wakeups.index.count > 0`, Tests: "TestIdle",
		},
		{
			Name: "first-watch-not-told", Bug: "does not notify the source of a new watch", File: "watcher.go",
			Old: "\tarrived()\n\tv := c.view", New: "\t_ = arrived\n\tv := c.view", Tests: "TestIdle",
		},
		{
			Name: "deferral-without-bound", Bug: "does not wake a deferring watcher however much is pending", File: "watcher.go",
			Old: `before < w.deferral && w.pending >= w.deferral`, New: `before > w.pending`, Tests: "TestDefer",
		},
		{
			Name: "deferral-shows-the-past", Bug: "returns events as pending that a watcher has already read", File: "watcher.go",
			Old: `if w.deferral > 0 && w.state.Load()&idleBit == 0 {`, New: `if w.deferral > 0 {`, Tests: "TestDefer",
		},
		{
			Name: "deferral-counts-the-past", Bug: "counts events as pending that a watcher has already read", File: "watcher.go",
			Old: "if first {\n\t\tw.pending = 0", New: "if false {\n\t\tw.pending = 0", Tests: "TestDefer",
		},
		{
			Name: "deferral-misses-the-end", Bug: "does not notify a deferring watcher of the end of the cache", File: "wakeups.go",
			Old: `w.wakeFor(seq) || w.deferral > 0`, New: `w.wakeFor(seq)`, Tests: "TestDefer",
		},
		{
			Name: "source-after-gap", Bug: "follows a source that begins after a gap", File: "follow.go",
			Old: `case u.Revision > have:`, New: `case false:`, Tests: "TestUpdatesOutOfOrderAreRejected",
		},
		{
			Name: "stale-source", Bug: "accepts the state of a source that is older than its own", File: "follow.go",
			Old: `if u.Revision < have {`, New: `if false {`, Tests: "TestOlderStateIsRefused",
		},
		{
			Name: "fresh-before-caught-up", Bug: "reports data as fresh before it has caught up", File: "freshness.go",
			Old: `if revision <= f.reach {`, New: `if true {`, Tests: "TestFreshness",
		},
		{
			Name: "freshness-one-early", Bug: "confirms freshness one revision early", File: "freshness.go",
			Old: "if f.first != nil && f.first.revision <= progress {\n\t\tf.confirmLocked(f.first.at)\n\t\tf.first, f.newest", New: "if f.first != nil && f.first.revision <= progress+1 {\n\t\tf.confirmLocked(f.first.at)\n\t\tf.first, f.newest", Tests: "TestFreshWithTheRevisionItself",
		},
		{
			Name: "observed-one-early", Bug: "reports data as fresh that lacks one revision", File: "freshness.go",
			Old: `if revision <= f.reach {`, New: `if revision <= f.reach+1 {`, Tests: "TestFreshness",
		},
		{
			Name: "freshness-goes-back", Bug: "an older observation increases the age of data", File: "freshness.go",
			Old: `if !f.known || at > f.freshAt {`, New: `if true {`, Tests: "TestFreshness",
		},
		{
			Name: "gap-of-one", Bug: "follows a source that begins one revision too late", File: "follow.go",
			Old: `case u.Revision > have:`, New: `case u.Revision > have+1:`, Tests: "TestUpdatesOutOfOrderAreRejected",
		},
		{
			Name: "load-ends-early", Bug: "accepts events while it loads the state", File: "follow.go",
			Old: `if l != nil || c.tree == nil {`, New: `if c.tree == nil && l == nil {`, Tests: "TestUpdatesOutOfOrderAreRejected",
		},
		{
			Name: "histories-joined-over-gap", Bug: "joins histories over a gap of one revision", File: "seed.go",
			Old: `if older.Progress >= h.Floor-1 && older.Floor < h.Floor {`, New: `if older.Progress >= h.Floor-2 && older.Floor < h.Floor {`, Tests: "TestHistoriesJoinWithoutAGap",
		},
		{
			Name: "deletes-joined-over-gap", Bug: "joins deletes of two histories over a gap of one revision", File: "seed.go",
			Old: `older.Progress < h.DeltaFloor-1`, New: `older.Progress < h.DeltaFloor-2`, Tests: "TestHistoriesJoinWithoutAGap",
		},
		{
			Name: "future-delta", Bug: "answers a delta since a revision that the state has not reached", File: "changes.go",
			Old: `if since > state.Revision {`, New: `if false {`, Tests: "TestADeltaStartsAfterItsRevision",
		},
		{
			Name: "delete-at-floor-forgotten", Bug: "forgetting a leap drops the delete just after it, which deltas still need", File: "changes.go",
			Old: `l.deletes[i].Revision >= l.floor`, New: `l.deletes[i].Revision > l.floor`, Tests: "TestPositionsAroundLeaps",
		},
		{
			Name: "state-one-older", Bug: "loads a state that is one revision older than the served one", File: "follow.go",
			Old: `if u.Revision < have {`, New: `if u.Revision < have-1 {`, Tests: "TestCompactedAtSource",
		},
		{
			Name: "leap-from-nothing", Bug: "treats a set of changes as the whole state when it has none", File: "follow.go",
			Old: `case u.Leap && c.tree == nil:`, New: `case false:`, Tests: "TestUpdatesOutOfOrderAreRejected",
		},
		{
			Name: "delta-floor-one-low", Bug: "answers a delta from one revision below its known deletes", File: "changes.go",
			Old: `if revision+1 < l.floor {`, New: `if revision+2 < l.floor {`, Tests: "TestDeletesAreForgottenForTheirBytes",
		},
		{
			Name: "delta-repeats-since", Bug: "a delta contains the changes of its start revision", File: "changes.go",
			Old: `return l.deletes[i].Revision > revision`, New: `return l.deletes[i].Revision >= revision`, Tests: "TestADeltaStartsAfterItsRevision",
		},
		{
			Name: "read-before-progress", Bug: "reads a revision that the cache has not reached", File: "read.go",
			Old: `if c.view.Load().progress < revision {`, New: `if false {`, Tests: "TestRetire",
		},
		{
			Name: "read-of-retired", Bug: "reads from a cache that is no longer served", File: "read.go",
			Old: `case v.retired:`, New: `case false:`, Tests: "TestRetire",
		},
		{
			Name: "watch-below-floor", Bug: "starts a watch one revision before the window", File: "watcher.go",
			Old: `case from < v.win.floor:`, New: `case from+1 < v.win.floor:`, Tests: "TestTheFloorIsTheOldestRevisionToWatchFrom",
		},
		{
			Name: "watch-before-ready", Bug: "starts a watch on a cache that is still loading", File: "watcher.go",
			Old: `case !v.ready:`, New: `case false:`, Tests: "TestWatchFrom",
		},
		{
			Name: "waiter-woken-late", Bug: "a waiter at the cache's own revision waits for the next", File: "wakeups.go",
			Old: `(u.waiting[0].revision > progress && !retired)`, New: `(u.waiting[0].revision >= progress && !retired)`, Tests: "TestResumeAfterLoss",
		},
		{
			Name: "retired-waiters-stay", Bug: "does not wake waiters when the cache is retired", File: "wakeups.go",
			Old: `u.waiting[0].revision > progress && !retired`, New: `u.waiting[0].revision > progress`, Tests: "TestRetire",
		},
		{
			Name: "idle-waiter-not-asked-for", Bug: "does not ask a new source for the revision that a merged window waits for", File: "follow.go",
			Old: `c.wakeups.nearest(true)`, New: `c.wakeups.nearest(false)`, Tests: "TestTheNextSourceIsAskedForAnIdleWaiter",
		},
		{
			Name: "direct-progress-while-loading", Bug: "accepts progress before the state is loaded", File: "follow.go",
			Old: `loaded := l == nil && c.tree != nil`, New: `loaded := true`, Tests: "TestDirectProgress",
		},
		{
			Name: "window-over-budget", Bug: "lets the window exceed its bytes", File: "window.go",
			Old: `if w.bytes <= w.maxBytes && now.Sub`, New: `if now.Sub`, Tests: "TestSlowWatcherPinsNothing",
		},
		{
			Name: "window-too-old", Bug: "the window keeps batches past their age", File: "window.go",
			Old: `w.bytes <= w.maxBytes && now.Sub(last.Received) <= w.maxAge`, New: `w.bytes <= w.maxBytes`, Tests: "TestWindowAgainstHistory",
		},
		{
			Name: "one-claim-of-many", Bug: "reports only one of several contradicted keys", File: "agree.go",
			Old: `claims = append(claims, claim)
		return`, New: `claims = append(claims[:0], claim)
		return`, Tests: "TestAContradictionNamesTheCachedVersions",
		},
		{
			Name: "quiet-window-kept", Bug: "keeps the window of an idle cache beyond its time", File: "apply.go",
			Old: `c.win.evict(now)`, New: ``, Tests: "TestAQuietCacheEvictsOldBatches",
		},
		{
			Name: "end-of-leap-unknown", Bug: "does not record deletes since the end of a leap", File: "changes.go",
			Old: `revision < h.before`, New: `revision <= h.before`, Tests: "TestPositionsAroundLeaps",
		},
		{
			Name: "forgotten-leap-known", Bug: "answers a position just before the end of a leap that was forgotten", File: "changes.go",
			Old: `l.holes[0].before+1, l.holes[1:]`, New: `l.holes[0].before, l.holes[1:]`, Tests: "TestPositionsAroundLeaps",
		},
		{
			Name: "newest-look-forgotten", Bug: "a read at an older revision replaces the newest one", File: "freshness.go",
			Old: `if f.newest == nil {`, New: `if true {`, Tests: "TestFreshness",
		},
		{
			Name: "late-look-counts", Bug: "a late, earlier read at the same revision increases the age of data", File: "freshness.go",
			Old: `f.first.at = max(f.first.at, at)`, New: `f.first.at = at`, Tests: "TestFreshness",
		},
		{
			Name: "skip-unbounded", Bug: "one call of Next examines the whole window for a watcher of other keys", File: "watcher.go",
			Old: `skipped >= maxSkipped && pos < v.win.next`, New: `false`, Tests: "TestNextSkipsABoundedNumberOfBatches",
		},
		{
			Name: "skip-unwoken", Bug: "a watcher that has passed many batches is not read again", File: "watcher.go",
			Old: `w.waker.Wake() // the writer`, New: `_ = 0 // the writer`, Tests: "TestNextSkipsABoundedNumberOfBatches",
		},
	}}
}
