package mutants

func syncbatchGroup() Group {
	return Group{Package: "internal/edge/syncbatch", Mutants: []Mutant{
		{
			Name: "units-of-nobody", Bug: "one client's units take all bytes for keys of other nodes", File: "queue.go",
			Old: "router.ReadRequest{Range: key.Range, Holder: holder}", New: "router.ReadRequest{Range: key.Range}", Tests: "TestBatchesOfOneClientLeaveRoomForOthers",
		},
		{
			Name: "cancelled-units-of-nobody", Bug: "counts data loaded for a watch that was cancelled at once for no client", File: "queue.go",
			Old: `first, _ := x.holderLocked(nil)`, New: `var first budget.Client`, Tests: "TestACancelledBatchCountsForItsClient",
		},
		{
			Name: "units-refused-for-another", Bug: "refuses a unit to a client because another one has used its part", File: "queue.go",
			Old: "if errors.As(err, new(*kv.LimitError)) {\n\t\tq.mu", New: "if err == nil {\n\t\tq.mu", Tests: "TestBatchesOfOneClientLeaveRoomForOthers",
		},
		{
			Name: "shares-older-unit", Bug: "a watch shares a unit that is older than it needs", File: "queue.go",
			Old: `(x.body == nil || x.body.Revision >= least)`, New: `true`, Tests: "TestBatchesThatAreShared",
		},
		{
			Name: "shares-state", Bug: "sends a watch that requests the state one from before its request", File: "queue.go",
			Old: `x.state != Waits && x.key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < q.cfg.Patience.Share`, New: `x.state != Waits && now.Sub(x.begun) < q.cfg.Patience.Share`, Tests: "TestBatchesThatAreShared",
		},
		{
			Name: "shares-for-ever", Bug: "shares units regardless of their age", File: "queue.go",
			Old: `x.state != Waits && x.key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < q.cfg.Patience.Share`, New: `x.state != Waits && x.key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE`, Tests: "TestBatchesThatAreShared",
		},
		{
			Name: "least-of-the-last", Bug: "uses the last watch's minimum revision for a unit instead of the highest", File: "queue.go",
			Old: `x.watches[w], x.least = now, max(x.least, least)`, New: `x.watches[w], x.least = now, least`, Tests: "TestBatchesThatAreShared",
		},
		{
			Name: "unit-keeps-bytes", Bug: "a dropped unit keeps its bytes of the budget", File: "queue.go",
			Old: "\tx.body.Release()\n\tx.body, x.parts = nil, nil", New: "\tx.body, x.parts = nil, nil", Tests: "TestBatchesGiveTheirBytesBack",
		},
		{
			Name: "leaves-twice", Bug: "counts a watch that leaves its unit twice", File: "queue.go",
			Old: "\tif _, on := x.watches[w]; !on {\n\t\treturn\n\t}", New: ``, Tests: "TestPlaceOfABatchIsGivenBackOnce",
		},
		{
			Name: "place-kept-by-abandoned", Bug: "a unit without watches keeps its place", File: "queue.go",
			Old: `through || len(x.watches) == 0`, New: `through`, Tests: "TestPlaceOfABatchIsGivenBackOnce",
		},
		{
			Name: "place-kept-when-through", Bug: "a completely sent unit keeps its place", File: "queue.go",
			Old: `through || len(x.watches) == 0`, New: `len(x.watches) == 0`, Tests: "TestPlaceOfABatchIsGivenBackOnce",
		},
		{
			Name: "place-left-while-loading", Bug: "a loading unit without watches releases its place", File: "queue.go",
			Old: ` && x.state != Loads {`, New: ` {`, Tests: "TestCancelledBatchesAreLoadedOneByOne",
		},
		{
			Name: "place-left-while-a-state-loads", Bug: "a dropped state releases its place while it is loading", File: "queue.go",
			Old: "\t\tx.cancel() // load releases the slot when it has ended\n", New: "\t\tx.cancel()\n\t\tq.freeLocked(x)\n", Tests: "TestCancelledBatchesAreLoadedOneByOne",
		},
		{
			Name: "place-kept-after-loading", Bug: "a unit whose watches left during loading keeps its place", File: "queue.go",
			Old: `if err != nil || len(x.watches) == 0 {`, New: `if err != nil {`, Tests: "TestCancelledBatchesAreLoadedOneByOne",
		},
		{
			Name: "place-kept-by-dropped", Bug: "a unit that was dropped during loading keeps its place", File: "queue.go",
			Old: "\t\tq.freeLocked(x)\n\t\tbody.Release()", New: "\t\tbody.Release()", Tests: "TestCancelledBatchesAreLoadedOneByOne",
		},
		{
			Name: "unit-of-other-lineage", Bug: "updates a watch to another lineage than the promised one", File: "queue.go",
			Old: `err == nil && body.Lineage != key.Lineage`, New: `false`, Tests: "TestBatchIsOfThePromisedHistory",
		},
		{
			Name: "unit-too-old", Bug: "a unit is older than the watch needs", File: "queue.go",
			Old: `req.Revision, req.Exists = max(now, least), true`, New: `req.Revision, req.Exists = now, true`, Tests: "TestBatchIsOfThePromisedHistory",
		},
		{
			Name: "made-part-stalls", Bug: "drops a unit during the creation of a part", File: "queue.go",
			Old: ` || x.making > 0 {`, New: ` {`, Tests: "TestStalledBatches",
		},
		{
			Name: "one-unit-more-held", Bug: "keeps a unit more than the bound for watches that do not read", File: "queue.go",
			Old: `over := len(held) - holdFactor*q.cfg.MaxResyncs; over > 0`, New: `over := len(held) - 1 - holdFactor*q.cfg.MaxResyncs; over > 0`, Tests: "TestStalledBatches",
		},
		{
			Name: "units-outlive-their-node", Bug: "units keep their bytes of the budget when the node ends", File: "queue.go",
			Old: "\t\t\tq.dropAll()\n", New: "", Tests: "TestBatchesGiveTheirBytesBack",
		},
	}}
}
