package mutants

func routerGroup() Group {
	return Group{Package: "internal/router", Mutants: []Mutant{
		{
			Name: "fetched-keys-free", Bug: "keys of other nodes take nothing of the budget", File: "scan.go",
			Old: `return f.load.add(ctx, item)`, New: `return nil`, Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "fetched-keys-kept", Bug: "holds the bytes of a fetch that no list uses", File: "fetch.go",
			Old: "	f.load.release()\n", New: "", Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "fetched-keys-all-over", Bug: "any number of fetches may exceed their share", File: "load.go",
			Old: `own = 0 //`, New: `own = l.budget.Held(budget.Fetches) //`, Tests: "TestListsOfOtherNodesAreBounded",
		},
		{
			Name: "states-of-others-free", Bug: "states of shards on other nodes take nothing of the budget", File: "changes.go",
			Old: `out.load.add(ctx, items...)`, New: `error(nil)`, Tests: "TestStatesOfOtherNodesAreBounded",
		},
		{
			Name: "progress-before-events", Bug: "reports progress over shards of which one is behind", File: "watch.go",
			Old: `progress = min(progress, c.progress())`, New: `progress = max(min(progress, c.progress()), c.watcher.Progress())`, Tests: "TestPositionOfAMerge|TestWatchAgainstHistory",
		},
		{
			Name: "held-revision-as-progress", Bug: "counts a revision that is held back as returned", File: "watch.go",
			Old: `return c.revision - 1`, New: `return c.revision`, Tests: "TestWhatIsHeldBackIsNotProgress",
		},
		{
			Name: "transaction-torn", Bug: "delivers a revision before all shards have it", File: "watch.go",
			Old: `w.together.frontier.await(&w.together.held, lowest)
		return 0, dst, nil`, New: `w.together.frontier.await(&w.together.held, lowest)`, Tests: "TestWatchAgainstHistory",
		},
		{
			Name: "merge-out-of-order", Bug: "delivers all shards' next revisions as one", File: "watch.go",
			Old: `if c.revision == lowest {`, New: `if c.revision > 0 {`, Tests: "TestAMergeIsInOrder",
		},
		{
			Name: "homeless-position-lost", Bug: "a watch that loses its home forgets its progress", File: "watch.go",
			Old: `w.delivered, _ = w.Progress()`, New: ``, Tests: "TestAHomelessWatchKeepsItsPosition",
		},
		{
			Name: "wake-at-higher", Bug: "of two revisions to wake at, the first counts instead of the lowest", File: "watch.go",
			Old: `at == 0 || at > revision`, New: `at == 0`, Tests: "TestWakeAtTheLowest",
		},
		{
			Name: "youngest-shard-age", Bug: "the age of a watch is that of its freshest shard", File: "watch.go",
			Old: `age = max(age, one)`, New: `age = one`, Tests: "TestTheAgeOfAMerge",
		},
		{
			Name: "watch-of-any-lineage", Bug: "accepts a watch whose position is of another lineage", File: "watch.go",
			Old: `if req.Lineage != 0 && req.Lineage != m.Lineage {`, New: `if false {`, Tests: "TestWatchEndsWithItsLineage",
		},
		{
			Name: "frontier-users-miscounted", Bug: "a frontier is dropped with the first of its watches", File: "frontier.go",
			Old: `if f.users--; f.users > 0 {`, New: `if f.users--; f.users > 9 {`, Tests: "TestWatchesLeaveTheirFrontierOneByOne",
		},
		{
			Name: "place-index-stale", Bug: "leaving a wait corrupts the place of another watch", File: "frontier.go",
			Old: "\tw.places[p.index].index = p.index\n", New: "", Tests: "TestWatchesLeaveTheirFrontierOneByOne",
		},
		{
			Name: "frontier-wakes-early", Bug: "wakes when one of the shards has come, not all", File: "frontier.go",
			Old: `w.missing.Add(-1) > 0`, New: `w.missing.Add(-1) < 0`, Tests: "TestWakeAt|TestWatchesOfTheSameShardsAreWokenTogether",
		},
		{
			Name: "late-without-deliverable", Bug: "calls a watch late for events that another shard holds back", File: "position.go",
			Old: `if p.Revision == p.Newest {`, New: `if false {`, Tests: "TestWhatIsHeldBackIsNotProgress",
		},
		{
			Name: "linearizable-without-waiting", Bug: "answers a linearizable read with what is present", File: "read.go",
			Old: `case !req.Serializable:`, New: `case false:`, Tests: "TestScan|TestALinearizableReadSeesEveryWrite",
		},
		{
			Name: "read-age-since-answer", Bug: "the age of a linearizable read starts when it is done", File: "read.go",
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
			Old: `c != nil && ready(c)`, New: `c != nil`, Tests: "TestACopyThatDoesNotFitIsNotServed",
		},
		{
			Name: "answer-of-any-lineage", Bug: "takes another node's answer of another lineage", File: "read.go",
			Old: `if m.Lineage != g.Lineage {`, New: `if false {`, Tests: "TestAnAnswerOfAnotherLineageIsRefused",
		},
		{
			Name: "request-of-any-lineage", Bug: "asks another node for a revision without saying of which lineage", File: "read.go",
			Old: `req.ClusterId, req.Lineage = g.cluster, g.Lineage`, New: `_ = g.cluster`, Tests: "TestAShardElsewhereIsReadFromItsNodes",
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
			Name: "present-read-refused", Bug: "calls etcd's newest revision a future one", File: "read.go",
			Old: `if revision > now {`, New: `if revision >= now {`, Tests: "TestAReadAtARevision",
		},
		{
			Name: "stale-read-served", Bug: "a serializable read takes data older than it allows", File: "read.go",
			Old: `(!known || age > bound)`, New: `!known`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "unknown-age-served", Bug: "a serializable read takes data whose age is not known", File: "read.go",
			Old: `(!known || age > bound)`, New: `age > bound`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "staleness-bound-exclusive", Bug: "refuses data of just the age that is allowed", File: "read.go",
			Old: `age > bound)`, New: `age >= bound)`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "read-at-newest-of-shards", Bug: "a serializable read is at a revision that not all shards have", File: "read.go",
			Old: `revision == 0 || p < revision`, New: `p > revision`, Tests: "TestASerializableReadIsNotOlderThanItAllows",
		},
		{
			Name: "partial-answer-retried", Bug: "asks the next node after a part of an answer was used", File: "read.go",
			Old: `if err == nil || begun {`, New: `if err == nil || begun && false {`, Tests: "TestAShardElsewhereIsReadFromItsNodes",
		},
		{
			Name: "node-asks-itself", Bug: "forwards a read to itself", File: "read.go",
			Old: `if node == g.r.cfg.Self {`, New: `if false {`, Tests: "TestAShardElsewhereIsReadFromItsNodes",
		},
		{
			Name: "limit-per-shard", Bug: "applies the limit to each shard by itself", File: "read.go",
			Old: `left -= int64(len(chunk))`, New: `_ = left`, Tests: "TestEachNarrows",
		},
		{
			Name: "split-fails-reads", Bug: "a read fails when its shard is split", File: "read.go",
			Old: `if !errors.Is(err, errReplaced) || time.Since`, New: `if true || time.Since`, Tests: "TestAReadSurvivesASplit",
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
			Name: "chunk-skips-key", Bug: "between two chunks of a snapshot a key is lost", File: "changes.go",
			Old: `rng.Start = max(rng.Start, at.from)`, New: `rng.Start = max(rng.Start, at.from+"\x00")`, Tests: "TestHoldHasAllShards",
		},
		{
			Name: "fetch-kept", Bug: "what was fetched from another node is kept after its last reader", File: "fetch.go",
			Old: "	f.load.release()\n	if s.live[key] == f {", New: "	f.load.release()\n	if false {", Tests: "TestFetchesLeaveNothing",
		},
		{
			Name: "answer-of-any-cluster", Bug: "takes an answer of another cluster", File: "read.go",
			Old: `if m.Cluster != g.cluster {`, New: `if false {`, Tests: "TestAnAnswerOfAnotherClusterIsRefused",
		},
		{
			Name: "answer-at-another-revision", Bug: "mixes keys of another revision into a read", File: "read.go",
			Old: `if m.Revision != g.Revision {`, New: `if false {`, Tests: "TestAnAnswerAtAnotherRevisionIsRefused",
		},
		{
			Name: "empty-answer-is-empty-shard", Bug: "takes an answer without a message for an empty shard", File: "read.go",
			Old: `errors.Is(err, io.EOF) && begun`, New: `errors.Is(err, io.EOF)`, Tests: "TestAnAnswerWithoutAMessageIsNoEmptyShard",
		},
		{
			Name: "unfit-copy-read", Bug: "reads a copy of another lineage", File: "read.go",
			Old: `			homes[i] = nil
`, New: ``, Tests: "TestACopyOfAnotherLineageIsReadElsewhere",
		},
		{
			Name: "serializable-reads-shared", Bug: "shares fetches whose revision another node chooses", File: "scan.go",
			Old: `if g.Revision == 0 || limit < 0`, New: `if limit < 0`, Tests: "TestWhatIsNotShared",
		},
		{
			Name: "homeless-forgotten", Bug: "homeless watches beyond those that may look at a time are forgotten", File: "router.go",
			Old: `retry = time.After(homelessRetry)`, New: ``, Tests: "TestEveryHomelessWatchGetsItsTurn",
		},
	}}
}
