package mutants

func routerGroup() Group {
	return Group{Package: "internal/router", Mutants: []Mutant{
		{
			Name: "relay-without-until", Bug: "a watch waits for its relay until its context ends", File: "watch.go",
			Old: `if !until.IsZero() {`, New: `if false {`, Tests: "TestAWatchWaitsForItsRelayUntilTheDeadline",
		},
		{
			Name: "relay-until-never", Bug: "a watch without a bound does not wait for its relay", File: "watch.go",
			Old: `if !until.IsZero() {`, New: `if true {`, Tests: "TestAWatchWaitsForItsRelayUntilTheDeadline",
		},
		{
			Name: "merged-look-allocates", Bug: "a watch allocates with each read of its merged window", File: "watch.go",
			Old: "err == nil || w.place.merged == nil || !errors.As", New: "w.place.merged == nil || !errors.As", Tests: "TestWatchesOfTheSameShardsAreWokenOnce",
		},
		{
			Name: "fetched-keys-free", Bug: "keys of other nodes take no bytes of the budget", File: "scan.go",
			Old: `return f.load.add(ctx, item)`, New: `return nil`, Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "fetched-keys-kept", Bug: "keeps the bytes of an unused fetch", File: "fetch.go",
			Old: "	f.load.release()\n", New: "", Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "fetched-keys-all-over", Bug: "lets any number of fetches exceed their share", File: "load.go",
			Old: `own = 0 //`, New: `own = l.budget.Held(budget.Fetches) //`, Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "states-of-others-free", Bug: "states of shards on other nodes take no bytes of the budget", File: "changes.go",
			Old: `out.load.add(ctx, items...)`, New: `error(nil)`, Tests: "TestStatesOfOtherNodesAreBounded",
		},
		{
			Name: "progress-before-events", Bug: "reports progress over shards although one is behind", File: "merge.go",
			Old: `progress = min(progress, m.cursors[i].progress())`, New: `progress = max(min(progress, m.cursors[i].progress()), m.cursors[i].watcher.Progress())`, Tests: "TestWatchAgainstHistory",
		},
		{
			Name: "held-revision-as-progress", Bug: "treats a delayed revision as returned", File: "merge.go",
			Old: `return c.revision - 1`, New: `return c.revision`, Tests: "TestHeldBackEventsAreNotProgress",
		},
		{
			Name: "transaction-torn", Bug: "delivers a revision before all shards have it", File: "merge.go",
			Old: `if c := &m.cursors[i]; c.lags(lowest) {
			return`, New: `if c := &m.cursors[i]; c.lags(lowest) && false {
			return`, Tests: "TestWatchWaitsForTheLateShard|TestWatchAgainstHistory",
		},
		{
			Name: "merge-out-of-order", Bug: "delivers all shards' next revisions as one", File: "merge.go",
			Old: `if c.revision == lowest {`, New: `if c.revision > 0 {`, Tests: "TestAMergeIsInOrder",
		},
		{
			Name: "joins-too-early", Bug: "a watch joins the merged window at the position of one shard", File: "watch.go",
			Old: `p.alone.progress()+1, w.waker`, New: `p.alone.newest()+1, w.waker`, Tests: "TestAWatchBelowTheMergedWindowJoinsIt",
		},
		{
			Name: "skips-when-joining", Bug: "a watch that joins the merged window omits undelivered events", File: "watch.go",
			Old: `p.alone.progress()+1, w.waker`, New: `max(p.alone.progress(), p.alone.held())+1, w.waker`, Tests: "TestAWatchBelowTheMergedWindowJoinsIt",
		},
		{
			Name: "skips-when-separating", Bug: "a watch that falls below the merged window omits a revision", File: "watch.go",
			Old: `p.one.Progress()+1, w.waker`, New: `p.one.Progress()+2, w.waker`, Tests: "TestAWatchThatFallsBelowTheMergedWindow",
		},
		{
			Name: "below-merged-is-compacted", Bug: "a watch that falls below the merged window is ended", File: "watch.go",
			Old: `if err == nil || w.place.merged == nil || !errors`, New: `if true || !errors`, Tests: "TestAWatchThatFallsBelowTheMergedWindow",
		},
		{
			Name: "never-joins", Bug: "a watch that was below the merged window merges separately forever", File: "watch.go",
			Old: `if p.merged == nil {
		return false`, New: `if p.merged == nil || true {
		return false`, Tests: "TestAWatchBelowTheMergedWindowJoinsIt",
		},
		{
			Name: "merged-ahead-of-slowest", Bug: "the merged window reports progress that its slowest shard has not made", File: "merged.go",
			Old: `if progress := f.merge.progress(); progress`, New: `if progress := f.merge.newest(); progress`, Tests: "TestHeldBackEventsAreNotProgress|TestWakeAt",
		},
		{
			Name: "merged-never-asks", Bug: "does not request progress from the shards that delay a revision", File: "merged.go",
			Old: `	f.m.demand(revision)
}`, New: `}`, Tests: "TestWatchesOfTheSameShardsAreWokenOnce",
		},
		{
			Name: "merged-keeps-quiet", Bug: "the merged window ignores the progress of idle shards", File: "merged.go",
			Old: `		a.bell.Wake()
`, New: ``, Tests: "TestWakeAt",
		},
		{
			Name: "merged-batch-of-one-shard", Bug: "the merged window has half of a revision in two shards", File: "merged.go",
			Old: `if len(b.Events) == len(events) && `, New: `if `, Tests: "TestAMergeIsInOrder",
		},
		{
			Name: "merged-outlives-shard", Bug: "the merged window of an ended shard continues", File: "merged.go",
			Old: `if errors.Is(err, cache.ErrRetired) {`, New: `if errors.Is(err, cache.ErrRetired) && false {`, Tests: "TestAWatchThatWaitsForARetiredShardIsWoken|TestWatchAgainstHistory",
		},
		{
			Name: "merged-of-ended-shard", Bug: "opens a watch over an ended shard", File: "watch.go",
			Old: `retired := h.cache.Reached(0); retired {`, New: `retired := h.cache.Reached(0); retired && false {`, Tests: "TestAWatchOverARetiredShard",
		},
		{
			Name: "merged-longer-than-shards", Bug: "the merged window keeps events that its shards have evicted", File: "merged.go",
			Old: `min(cfg.WindowBytes, bytes/2)`, New: `min(cfg.WindowBytes, bytes)`, Tests: "TestAWatchThatFallsBelowItsShards",
		},
		{
			Name: "merged-windows-unbounded", Bug: "creates a merged window for every set of shards", File: "merged.go",
			Old: `r.nWindows == maxMerged`, New: `false`, Tests: "TestFurtherSetsOfShardsMergeAlone",
		},
		{
			Name: "homeless-position-lost", Bug: "a watch that loses its source forgets its progress", File: "watch.go",
			Old: `w.delivered, _ = w.Progress()`, New: ``, Tests: "TestAHomelessWatchKeepsItsPosition",
		},
		{
			Name: "wake-at-higher", Bug: "uses the first of two wake-up revisions instead of the lowest", File: "watch.go",
			Old: `p.wished > at && p.wished <= revision`, New: `p.wished > at`, Tests: "TestWakeAtTheLowest",
		},
		{
			Name: "merge-waits-for-what-has-come", Bug: "a watch that merges separately waits for a shard that has reached its revision", File: "merge.go",
			Old: `return held == 0 || m.wakeAt(held)`, New: `return held == 0 || m.wakeAt(held) || true`, Tests: "TestAMergeDoesNotWaitForAShardThatHasCome",
		},
		{
			Name: "wake-at-what-has-come", Bug: "does not wake a watch that merges separately at a revision that its shards have reached", File: "watch.go",
			Old: `w.waker.Wake() // Next may return the events that it held back`, New: ``, Tests: "TestAMergeDoesNotWaitForAShardThatHasCome",
		},
		{
			Name: "waits-for-what-is-reached", Bug: "a conflated watch waits for a revision that it has reached meanwhile", File: "watch.go",
			Old: "\tif at >= revision {\n\t\treturn true", New: "\tif at >= revision {\n\t\treturn false", Tests: "TestWakeAt",
		},
		{
			Name: "merge-waits-for-idle-shards-only", Bug: "does not wait for progress of a shard whose event another shard delays", File: "merge.go",
			Old: `if w := m.cursors[i].watcher; w.Progress() < revision {`, New: `if w := m.cursors[i].watcher; m.cursors[i].lags(revision) {`, Tests: "TestAMergeWaitsForAShardWithAnEventThatIsHeldBack",
		},
		{
			Name: "youngest-shard-age", Bug: "reports the age of a watch's freshest shard", File: "merge.go",
			Old: `out = max(out, one)`, New: `out = one`, Tests: "TestTheAgeOfAMerge",
		},
		{
			Name: "watch-of-any-lineage", Bug: "accepts a watch with a position in another lineage", File: "watch.go",
			Old: `if req.Lineage != 0 && req.Lineage != m.Lineage {`, New: `if false {`, Tests: "TestWatchEndsWithItsLineage",
		},
		{
			Name: "merged-users-miscounted", Bug: "a merged window ends with the first of its watches", File: "merged.go",
			Old: `if m.users--; m.users > 0 {`, New: `if m.users--; m.users > 9 {`, Tests: "TestWatchesLeaveTheirWindowOneByOne",
		},
		{
			Name: "merged-kept", Bug: "a merged window continues without a watch", File: "merged.go",
			Old: `if m.users--; m.users > 0 {`, New: `if m.users--; true {`, Tests: "TestWatchesLeaveTheirWindowOneByOne",
		},
		{
			Name: "late-without-deliverable", Bug: "reports a watch as late for events that another shard delays", File: "position.go",
			Old: `if p.Revision == p.Newest {`, New: `if false {`, Tests: "TestHeldBackEventsAreNotProgress",
		},
		{
			Name: "linearizable-without-waiting", Bug: "answers a linearizable read from the current data", File: "read.go",
			Old: `case !req.Serializable:`, New: `case false:`, Tests: "TestScan|TestALinearizableReadSeesEveryWrite",
		},
		{
			Name: "read-age-since-answer", Bug: "counts the age of a linearizable read from its end", File: "read.go",
			Old: `out.freshAt = began`, New: `out.freshAt = time.Now().Add(time.Hour)`, Tests: "TestALinearizableReadSeesEveryWrite",
		},
		{
			Name: "copy-of-any-lineage", Bug: "serves reads from a copy of another lineage", File: "read.go",
			Old: ` && c.Lineage() == lineage`, New: ``, Tests: "TestACopyThatDoesNotFitIsNotServed",
		},
		{
			Name: "copy-of-any-range", Bug: "serves reads from a copy that lacks a part of the range", File: "read.go",
			Old: ` && c.Range().Covers(rng)`, New: ``, Tests: "TestACopyThatDoesNotFitIsNotServed",
		},
		{
			Name: "copy-still-loading", Bug: "serves reads from a copy that is still loading", File: "read.go",
			Old: `wait.Over(c.Ready()) && `, New: ``, Tests: "TestACopyThatDoesNotFitIsNotServed",
		},
		{
			Name: "answer-of-any-lineage", Bug: "accepts another node's answer of another lineage", File: "read.go",
			Old: `if m.Lineage != g.Lineage {`, New: `if false {`, Tests: "TestAnAnswerOfAnotherLineageIsRefused",
		},
		{
			Name: "request-of-any-lineage", Bug: "requests a revision from another node without its lineage", File: "read.go",
			Old: `req.ClusterId, req.Lineage = g.cluster, g.Lineage`, New: `_ = g.cluster`, Tests: "TestARemoteShardIsReadFromItsNodes",
		},
		{
			Name: "answer-lineage-once", Bug: "checks the lineage of an answer's first message only", File: "read.go",
			Old: `if m.Lineage != g.Lineage {`, New: `if !begun && m.Lineage != g.Lineage {`, Tests: "TestAnAnswerOfAnotherLineageIsRefused",
		},
		{
			Name: "future-read-accepted", Bug: "waits for a revision that etcd has not reached", File: "read.go",
			Old: `if revision > now {`, New: `if false {`, Tests: "TestAReadAtARevision",
		},
		{
			Name: "present-read-refused", Bug: "refuses etcd's newest revision as a future one", File: "read.go",
			Old: `if revision > now {`, New: `if revision >= now {`, Tests: "TestAReadAtARevision",
		},
		{
			Name: "stale-read-served", Bug: "a serializable read uses data older than permitted", File: "read.go",
			Old: `(!known || age > bound)`, New: `!known`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "unknown-age-served", Bug: "a serializable read uses data of unknown age", File: "read.go",
			Old: `(!known || age > bound)`, New: `age > bound`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "staleness-bound-exclusive", Bug: "refuses data of exactly the permitted age", File: "read.go",
			Old: `age > bound)`, New: `age >= bound)`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "read-at-newest-of-shards", Bug: "a serializable read is at a revision that not all shards have", File: "read.go",
			Old: `revision == 0 || p < revision`, New: `p > revision`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "age-of-merge-at-any-shard", Bug: "the age of a merge holds at the revision of one shard", File: "merged.go",
			Old: `lowest = min(lowest, m.homes[i].cache.Progress())`, New: `lowest = m.homes[i].cache.Progress()`, Tests: "TestTheAgeOfAMerge",
		},
		{
			Name: "silent-node-awaited", Bug: "waits for a silent node until the client gives up", File: "read.go",
			Old: `func() { cancel(errSilent) }`, New: `func() {}`, Tests: "TestANodeThatHangsDoesNotHoldUpReads",
		},
		{
			Name: "silent-node-takes-all", Bug: "waits for a silent node although others can be asked", File: "read.go",
			Old: `patience = min(patience, nodeTimeout)`, New: `_ = nodeTimeout`, Tests: "TestANodeThatHangsDoesNotHoldUpReads",
		},
		{
			Name: "late-node-dropped", Bug: "a node that answers late is not asked again when the others have failed", File: "read.go",
			Old: `nodes, again = again, nil`, New: `break`, Tests: "TestANodeThatHangsDoesNotHoldUpReads",
		},
		{
			Name: "silent-node-first", Bug: "waits for a silent node once for each shard", File: "read.go",
			Old: `case slices.Contains(g.silent, node):`, New: `case slices.Contains(g.silent[:0], node):`, Tests: "TestANodeThatHangsDoesNotHoldUpReads",
		},
		{
			Name: "slow-reader-as-silence", Bug: "a slow reader counts as a silent node", File: "read.go",
			Old: `silence.Stop() // the reader`, New: `_ = silence // the reader`, Tests: "TestANodeThatHangsInItsAnswer",
		},
		{
			Name: "silence-in-answer", Bug: "waits without a bound for the rest of an answer", File: "read.go",
			Old: `silence.Reset(patience)`, New: `_ = silence`, Tests: "TestANodeThatHangsInItsAnswer",
		},
		{
			Name: "partial-answer-retried", Bug: "queries the next node after a part of an answer was used", File: "read.go",
			Old: `if err == nil || begun {`, New: `if err == nil || begun && false {`, Tests: "TestARemoteShardIsReadFromItsNodes",
		},
		{
			Name: "node-asks-itself", Bug: "forwards a read to itself", File: "read.go",
			Old: `case node == g.r.cfg.Self:`, New: `case false:`, Tests: "TestARemoteShardIsReadFromItsNodes",
		},
		{
			Name: "limit-per-shard", Bug: "applies the limit to each shard separately", File: "read.go",
			Old: `left -= int64(len(chunk))`, New: `_ = left`, Tests: "TestEachNarrows",
		},
		{
			Name: "split-fails-reads", Bug: "fails a read when its shard is split", File: "read.go",
			Old: `if !dropped && !errors.Is(err, errReplaced) {`, New: `if !dropped {`, Tests: "TestAReadSurvivesASplit",
		},
		{
			Name: "large-transaction-fails-reads", Bug: "fails a read without a revision as compacted when its shard applies a large transaction", File: "read.go",
			Old: `if !dropped && !errors.Is(err, errReplaced) {`, New: `if !errors.Is(err, errReplaced) {`, Tests: "TestAReadOutlivesALargeTransaction",
		},
		{
			Name: "dropped-revision-read-elsewhere", Bug: "requests a revision from another node where a large transaction has evicted it, too", File: "read.go",
			Old: `new(*kv.CompactedError)) && req.Revision == 0 && !elsewhere:`, New: `new(*kv.CompactedError)) && false:`, Tests: "TestAReadOutlivesALargeTransaction",
		},
		{
			Name: "serializable-read-asks-nobody", Bug: "a serializable read repeatedly chooses the same evicted revision", File: "read.go",
			Old: `behind(homes, homes[i].Progress())`, New: ``, Tests: "TestAReadOutlivesALargeTransaction",
		},
		{
			Name: "dropped-revision-read-here-alone", Bug: "while etcd is unavailable, fails a serializable read of a revision that another node has", File: "read.go",
			Old: `last = time.Since(failed) > changeTimeout`, New: `if time.Since(failed) > changeTimeout {
			return nil, unkept(err)
		}`, Tests: "TestASerializableReadTakesADroppedRevisionFromAnotherNode",
		},
		{
			Name: "dropped-revision-is-final", Bug: "reports to a read without a revision that its revision is compacted", File: "read.go",
			Old: `err = unkept(err)`, New: ``, Tests: "TestAReadThatFindsNoKeptRevisionCanBeTriedAgain",
		},
		{
			Name: "revision-dropped-elsewhere-is-final", Bug: "reports to a read without a revision that another node has evicted its revision", File: "read.go",
			Old: `if g.req.Revision == 0 && errors.As`, New: `if false && errors.As`, Tests: "TestARemoteShardIsReadFromItsNodes",
		},
		{
			Name: "delta-from-some-shards", Bug: "a delta omits a shard that does not reach back far enough", File: "changes.go",
			Old: `if floor > 0 {`, New: `if floor < 0 {`, Tests: "TestChangesOfSeveralShards",
		},
		{
			Name: "delta-floor-of-last", Bug: "the floor of a refused delta is too low for another shard", File: "changes.go",
			Old: `floor = max(floor, compacted.Floor)`, New: `floor = compacted.Floor`, Tests: "TestChangesOfSeveralShards",
		},
		{
			Name: "chunk-skips-key", Bug: "loses a key between two chunks of a snapshot", File: "changes.go",
			Old: `rng.Start = max(rng.Start, at.from)`, New: `rng.Start = max(rng.Start, at.from+"\x00")`, Tests: "TestHoldHasAllShards",
		},
		{
			Name: "fetch-kept", Bug: "keeps data fetched from another node after its last reader", File: "fetch.go",
			Old: "	f.load.release()\n	if s.live[key] == f {", New: "	f.load.release()\n	if false {", Tests: "TestFetchesReleaseTheirSlots",
		},
		{
			Name: "answer-of-any-cluster", Bug: "accepts an answer of another cluster", File: "read.go",
			Old: `if m.Cluster != g.cluster {`, New: `if false {`, Tests: "TestAnAnswerOfAnotherClusterIsRefused",
		},
		{
			Name: "answer-at-another-revision", Bug: "mixes keys of another revision into a read", File: "read.go",
			Old: `if m.Revision != g.Revision {`, New: `if false {`, Tests: "TestAnAnswerAtAnotherRevisionIsRefused",
		},
		{
			Name: "empty-answer-is-empty-shard", Bug: "treats an answer without a message as an empty shard", File: "read.go",
			Old: `errors.Is(err, io.EOF) && begun`, New: `errors.Is(err, io.EOF)`, Tests: "TestAnAnswerWithoutAMessageIsNoEmptyShard",
		},
		{
			Name: "unfit-copy-read", Bug: "reads a copy of another lineage", File: "read.go",
			Old: `			homes[i] = nil
`, New: ``, Tests: "TestACopyOfAnotherLineageIsReadFromAnotherNode",
		},
		{
			Name: "serializable-reads-shared", Bug: "shares fetches although another node chooses the revision", File: "scan.go",
			Old: `if g.Revision == 0 || limit < 0`, New: `if limit < 0`, Tests: "TestReadsThatAreNotShared",
		},
		{
			Name: "homeless-forgotten", Bug: "forgets watches without a source beyond the number that may search at a time", File: "router.go",
			Old: `retry = time.After(homelessRetry)`, New: ``, Tests: "TestEveryHomelessWatchGetsItsTurn",
		},
	}}
}
