package mutants

// serverChecks are mutants of the checks between nodes, of freshness and of what is
// given back.
func serverChecks() []Mutant {
	return []Mutant{
		{
			Name: "unit-of-ended-lineage", Bug: "sends the rest of a unit whose history has ended", File: "sync.go",
			Old: `err == nil && lineage != w.follows.lineage`, New: `false`, Tests: "TestLineageEndsDuringAUnit",
		},
		{
			Name: "token-of-the-stream", Bug: "sends tokens to a client that did not ask for them", File: "progress.go",
			Old: `if p.tokens.Load() {`, New: `if true {`, Tests: "TestProgressBringsTokens",
		},
		{
			Name: "token-without-position", Bug: "sends a token of a watch that has no position", File: "progress.go",
			Old: `if at, ok := w.position(); ok {`, New: `if at, _ := w.position(); true {`, Tests: "TestNoTokenBeforeTheState",
		},
		{
			Name: "progress-passes-unit", Bug: "progress passes the client's position while it is sent a unit", File: "sync.go",
			Old: `w.climb.begun && w.phase == syncing || w.latest.body != nil`, New: `w.latest.body != nil`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-passes-conflated-unit", Bug: "progress passes the client's position while it is sent a conflated unit", File: "sync.go",
			Old: `w.climb.begun && w.phase == syncing || w.latest.body != nil`, New: `w.climb.begun && w.phase == syncing`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-of-other-history", Bug: "tells progress to a watch whose position is of another history", File: "sync.go",
			Old: `w.owes() || w.in != w.follows`, New: `w.owes()`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-without-state", Bug: "tells progress to a watch that has not had its state", File: "sync.go",
			Old: `w.owes() || w.in != w.follows`, New: `w.in != w.follows`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-passes-collected", Bug: "progress passes the events that a conflated watch collects", File: "sync.go",
			Old: `w.phase == live && !w.latest.collecting()`, New: `w.phase == live`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-before-created", Bug: "progress moves a watch that is not created yet", File: "sync.go",
			Old: `w.phase == live || w.phase == syncing || w.phase == landing`, New: `true`, Tests: "TestProgressOfAStream",
		},
		{
			Name: "progress-goes-back", Bug: "progress moves a watch back", File: "sync.go",
			Old: `w.at = max(w.at, revision)`, New: `w.at = revision`, Tests: "TestProgressOfAStream",
		},
		{
			Name: "answer-one-early", Bug: "answers a progress request one revision early", File: "progress.go",
			Old: `r.revision >= p.wanted || r.idle`, New: `r.revision >= p.wanted-1 || r.idle`, Tests: "TestProgressRequestIsAnswered",
		},
		{
			Name: "idle-not-answered", Bug: "does not answer a progress request on a stream without watches", File: "progress.go",
			Old: `r.revision >= p.wanted || r.idle`, New: `r.revision >= p.wanted`, Tests: "TestProgressRequestIsAnswered",
		},
		{
			Name: "answer-one-late", Bug: "answers a progress request one revision late", File: "progress.go",
			Old: `r.revision >= p.wanted || r.idle`, New: `r.revision > p.wanted || r.idle`, Tests: "TestProgressRequestIsAnswered",
		},
		{
			Name: "probe-reported", Bug: "reports every connection that is closed before its handshake", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && (true || !errors.Is(err, io.EOF)) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "closed-reported", Bug: "reports connections that the server has closed", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "dispatched-reported", Bug: "reports connections that another protocol serves", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "handshake-not-reported", Bug: "does not report a handshake that fails", File: "handshake.go",
			Old: `err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, New: `false && err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "clone-silent", Bug: "a copy of the credentials reports no handshake that fails", File: "handshake.go",
			Old: `return &handshakes{h.TransportCredentials.Clone(), h.failed}`, New: `return h.TransportCredentials.Clone()`, Tests: "TestFailedHandshakesAreReported",
		},
		{
			Name: "watch-ends-with-etcd", Bug: "ends watches when etcd cannot tell their rights", File: "guard.go",
			Old: `err != nil && !wire.IsUnavailable(err)`, New: `err != nil`, Tests: "TestWatchesSurviveAnEtcdThatCannotTellTheirRights",
		},
		{
			Name: "shares-older-unit", Bug: "a watch shares a unit that is older than it needs", File: "units.go",
			Old: `(x.body == nil || x.body.Revision >= least)`, New: `true`, Tests: "TestUnitsThatAreShared",
		},
		{
			Name: "shares-state", Bug: "a watch that asks for the state is sent that of before its question", File: "units.go",
			Old: `x.state != unitWaits && x.key.kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < u.patience.share`, New: `x.state != unitWaits && now.Sub(x.begun) < u.patience.share`, Tests: "TestUnitsThatAreShared",
		},
		{
			Name: "shares-for-ever", Bug: "units are shared however old they are", File: "units.go",
			Old: `x.state != unitWaits && x.key.kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < u.patience.share`, New: `x.state != unitWaits && x.key.kind != shardwatchv1.SyncKind_SYNC_KIND_STATE`, Tests: "TestUnitsThatAreShared",
		},
		{
			Name: "least-of-the-last", Bug: "a unit is as new as the last watch needs, not as all need", File: "units.go",
			Old: `x.riders[w], x.least = now, max(x.least, least)`, New: `x.riders[w], x.least = now, least`, Tests: "TestUnitsThatAreShared",
		},
		{
			Name: "unit-keeps-bytes", Bug: "a unit that is dropped keeps its bytes of the budget", File: "units.go",
			Old: "\tx.body.Release()\n\tx.body, x.parts = nil, nil", New: "\tx.body, x.parts = nil, nil", Tests: "TestUnitsGiveTheirBytesBack",
		},
		{
			Name: "units-outlive-their-node", Bug: "units keep their bytes of the budget when the node ends", File: "units.go",
			Old: "\t\t\tu.dropAll()\n", New: "", Tests: "TestUnitsGiveTheirBytesBack",
		},
		{
			Name: "leaves-twice", Bug: "a watch that leaves its unit twice is counted twice", File: "units.go",
			Old: "\tif _, on := x.riders[w]; !on {\n\t\treturn\n\t}", New: ``, Tests: "TestPlaceOfAUnitIsGivenBackOnce",
		},
		{
			Name: "place-kept-by-abandoned", Bug: "a unit without watches keeps its place", File: "units.go",
			Old: `through || len(x.riders) == 0`, New: `through`, Tests: "TestPlaceOfAUnitIsGivenBackOnce",
		},
		{
			Name: "place-kept-when-through", Bug: "a unit that was sent whole keeps its place", File: "units.go",
			Old: `through || len(x.riders) == 0`, New: `len(x.riders) == 0`, Tests: "TestPlaceOfAUnitIsGivenBackOnce",
		},
		{
			Name: "unit-of-other-lineage", Bug: "brings a watch up to date with another lineage than it was promised", File: "units.go",
			Old: `err == nil && body.Lineage != key.lineage`, New: `false`, Tests: "TestUnitIsOfThePromisedHistory",
		},
		{
			Name: "unit-too-old", Bug: "a unit is older than the watch needs", File: "units.go",
			Old: `req.Revision, req.Exists = max(now, least), true`, New: `req.Revision, req.Exists = now, true`, Tests: "TestUnitIsOfThePromisedHistory",
		},
		{
			Name: "unknown-age-ignored", Bug: "a stream's age leaves out watches whose age is not known", File: "age.go",
			Old: "\t\tif !ok {\n\t\t\treturn 0, false\n\t\t}", New: `if !ok { continue }`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "age-of-the-newest", Bug: "a stream's age is that of its newest watch", File: "age.go",
			Old: `age, known = max(age, one), true`, New: `age, known = min(age, one), true`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "staleness-at-bound-refused", Bug: "refuses the least max_staleness", File: "age.go",
			Old: `bound.AsDuration() < minWatchStaleness`, New: `bound.AsDuration() <= minWatchStaleness`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "unknown-age-is-zero", Bug: "an age that is not known is told as 0", File: "age.go",
			Old: "\tif !known {\n\t\treturn nil\n\t}", New: ``, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "conflate-at-bound-refused", Bug: "refuses the least interval of a conflated watch", File: "conflate.go",
			Old: `d.AsDuration() < minConflate`, New: `d.AsDuration() <= minConflate`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "conflate-without-bound", Bug: "accepts a conflated watch that is sent nothing for days", File: "conflate.go",
			Old: `d.AsDuration() > maxConflate`, New: `false`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "page-without-map", Bug: "a node without a map calls page tokens foreign", File: "read.go",
			Old: "\t\tif here.lineage == 0 {\n\t\t\treturn &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: \"this node has no shard map yet\"}\n\t\t}", New: ``, Tests: "TestReadsOfAPositionWithoutAShardMap",
		},
		{
			Name: "revision-without-map", Bug: "a node without a map calls revisions foreign", File: "read.go",
			Old: "\tif here.lineage == 0 {\n\t\treturn nil // no shard map: the read fails for that\n\t}", New: ``, Tests: "TestReadsOfAPositionWithoutAShardMap",
		},
		{
			Name: "changes-of-any-lineage", Bug: "lists changes since a revision of another history", File: "read.go",
			Old: `r.GetRevision() > 0 || r.GetChangedSince() > 0`, New: `r.GetRevision() > 0`, Tests: "TestReadsOfAnotherClustersRevision",
		},
		{
			Name: "made-part-stalls", Bug: "drops a unit of which a part is being made", File: "units.go",
			Old: ` || x.making > 0 {`, New: ` {`, Tests: "TestWhichUnitsStall",
		},
		{
			Name: "one-unit-more-held", Bug: "holds a unit more than the bound for watches that do not read", File: "units.go",
			Old: `over := len(held) - holdFactor*u.cfg.MaxResyncs; over > 0`, New: `over := len(held) - 1 - holdFactor*u.cfg.MaxResyncs; over > 0`, Tests: "TestWhichUnitsStall",
		},
	}
}
