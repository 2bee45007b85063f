package mutants

func nativeGroup() Group {
	return Group{Package: "internal/edge/native", Mutants: []Mutant{
		{
			Name: "age-of-unsent-data", Bug: "reports the age of data that the watches have not been sent", File: "age.go",
			Old: `if !next.at.IsZero() && sent >= next.revision {`, New: `if !next.at.IsZero() {
		sent = max(sent, next.revision)`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "age-of-busy-watch-unknown", Bug: "a watch that always has unread events has no age", File: "age.go",
			Old: `p.fresh.at.IsZero() {
		p.fresh = next`, New: `true {
		p.fresh = fresh{}`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "age-target-moves", Bug: "waits for newer data before it has reached the earlier data", File: "age.go",
			Old: `if known || p.fresh.at.IsZero() {`, New: `if true {`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "native-previous-place", Bug: "a watch that returns to the window never leaves its reader", File: "sync.go",
			Old: `w.inner, w.place = l.inner, 0`, New: `w.inner = l.inner`, Tests: "TestAWatchLeavesItsNewReader",
		},
		{
			Name: "token-before-state", Bug: "gives a client a position before it has the state", File: "watch.go",
			Old: "\tif !w.owesState() {\n\t\tc.ResumeToken", New: "\tif true {\n\t\tc.ResumeToken", Tests: "TestStateFirst", Package: "internal/edge/server",
		},
		{
			Name: "opening-kept-after-release", Bug: "keeps resources opened for a watch that was cancelled meanwhile", File: "watch.go",
			Old: `w.resync.opened.Swap(&opened{})`, New: `w.resync.opened.Swap(nil)`, Tests: "TestCanceledWhileItsStateEnds", Package: "internal/edge/server",
		},
		{
			Name: "empty-reader-offered", Bug: "offers a reader without a window to other watches", File: "reader.go",
			Old: `if len(r.watches) == 0 { // the reader is closed`, New: `if false {`, Tests: "TestNoWatchJoinsAReaderWithoutWindow",
		},
		{
			Name: "native-map-for-one", Bug: "keeps a map of readers for the only watch of a stream", File: "reader.go",
			Old: `if c.readers == nil && !r.s.several.Load() {`, New: `if false {`, Tests: "TestTheOnlyWatchHasNoMapOfReaders",
		},
		{
			Name: "native-never-several", Bug: "watches of a stream never share a reader", File: "stream.go",
			Old: `s.several.CompareAndSwap(false, len(s.watches) > 1)`, New: ``, Tests: "TestWatchesOfAStreamShareAReader", Package: "internal/edge/server",
		},
		{
			Name: "reader-joined-elsewhere", Bug: "lets watches join a reader that is at another revision", File: "reader.go",
			Old: `at == reached {`, New: `at >= reached || at < reached {`, Tests: "TestReadersAtDifferentRevisionsStayApart",
		},
		{
			Name: "joined-watch-unnamed", Bug: "omits the new watches of a reader in messages for all", File: "reader.go",
			Old: `	other.stale = true
`, New: ``, Tests: "TestWatchesOfAStreamShareAReader", Package: "internal/edge/server",
		},
		{
			Name: "ended-watch-named", Bug: "names an ended watch in messages for all", File: "reader.go",
			Old: `r.ids[:last], true`, New: `r.ids[:last], false`, Tests: "TestWatchesOfAStreamShareAReader", Package: "internal/edge/server",
		},
		{
			Name: "previous-values-shared", Bug: "lets watches with and without previous values share a reader", File: "sync.go",
			Old: `prev: w.prev, follows: w.follows}`, New: `follows: w.follows}`, Tests: "TestCrowdSeesEverythingOnce", Package: "internal/edge/server",
		},
		{
			Name: "one-falls", Bug: "sends a catch-up to only one watch of a reader that is below the window", File: "reader.go",
			Old: `		if w.fall(err) {
			w.task.Wake()
		}
`, New: `		if w.fall(err) {
			w.task.Wake()
		}
		break
`, Tests: "TestWatchesThatShareAReaderFallBehindTogether", Package: "internal/edge/server",
		},
		{
			Name: "delta-from-before-the-reader", Bug: "uses a watch's position from before it shared a reader", File: "sync.go",
			Old: `w.at = max(w.at, w.inner.at)`, New: ``, Tests: "TestWatchesThatShareAReaderFallBehindTogether", Package: "internal/edge/server",
		},
		{
			Name: "turns-of-connections", Bug: "each connection of a client has a separate turn", File: "stream.go",
			Old: `	case s.holder.Name != "":`, New: `	case false:`, Tests: "TestStreamsOfAClientShareItsTurn",
		},
		{
			Name: "delta-across-lineages", Bug: "sends a delta to a watch whose position is of another lineage", File: "sync.go",
			Old: `case errors.As(err, &lineage) && w.phase == creating:`,
			New: `case errors.As(err, &lineage):
		w.follows.lineage = lineage.Current
		return w.delta(), true
	case errors.As(err, &lineage) && w.phase == creating:`, Tests: "TestAnotherLineageResyncs|TestLineageEndsWhileWatching", Package: "internal/edge/server",
		},
		{
			Name: "resync-misses-chunk", Bug: "omits a chunk of a resync", File: "sync.go",
			Old: `if part.Keys > 0 {`, New: `if part.Keys > 0 && c.part != 2 {`, Tests: "TestServeModes", Package: "internal/edge/server",
		},
		{
			Name: "position-before-end", Bug: "advances the position at the start of a unit", File: "sync.go",
			Old: `c.begun = true`, New: `c.begun, w.at = true, body.Revision`, Tests: "TestServeModes|TestUnitBeginsAgainOnAnotherNode", Package: "internal/edge/server",
		},
		{
			Name: "page-of-another-revision", Bug: "reads the next page at another revision", File: "read.go",
			Old: `req.Revision, options.From = p.Revision, p.Next`, New: `options.From = p.Next`, Tests: "TestListIsOneRevision|TestListEdges", Package: "internal/edge/server",
		},
		{
			Name: "page-of-any-lineage", Bug: "accepts a page token of another lineage", File: "read.go",
			Old: `(history{p.Cluster, p.Lineage}).judge(here, "page token"); err != nil`, New: `(history{p.Cluster, p.Lineage}).judge(here, "page token"); false && err != nil`, Tests: "TestListEdges|TestReadsOfAnotherClustersRevision", Package: "internal/edge/server",
		},
		{
			Name: "foreign-token-renamed", Bug: "issues a token of this cluster for a position of another one", File: "watch.go",
			Old: `Cluster: w.in.cluster,`, New: `Cluster: w.follows.cluster,`, Tests: "TestAnotherClustersPositionResyncs", Package: "internal/edge/server",
		},
		{
			Name: "read-of-any-lineage", Bug: "reads at a revision of another lineage", File: "read.go",
			Old: `return claimed(clusterID, lineage, here).judge(here, "revision")`, New: `return nil`, Tests: "TestReadsOfAnotherClustersRevision", Package: "internal/edge/server",
		},
		{
			Name: "position-of-any-cluster", Bug: "accepts a position that another cluster issued", File: "stream.go",
			Old: `case h.cluster != here.cluster:`, New: `case false:`, Tests: "TestJudgeAPosition",
		},
		{
			Name: "position-of-older-lineage", Bug: "accepts a position of an earlier lineage", File: "stream.go",
			Old: `case h.lineage != 0 && h.lineage != here.lineage:`, New: `case h.lineage > here.lineage:`, Tests: "TestJudgeAPosition",
		},
		{
			Name: "resume-repeats-revision", Bug: "resumes at the token's revision instead of after it", File: "stream.go",
			Old: `out.from, out.in, what = p.Revision+1,`, New: `out.from, out.in, what = p.Revision,`, Tests: "TestServeModes|TestSlowReaderGetsDeltas|TestAnotherLineageResyncs|TestAnotherClustersPositionResyncs|TestServeModesAgainstModel", Package: "internal/edge/server",
		},
		{
			Name: "cancelled-watch-counted", Bug: "counts an ended watch against the caller's limit", File: "stream.go",
			Old: "\n\tauthz.CloseWatch(s.api.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\n", Tests: "TestEndedCallsAreNotCounted", Package: "internal/edge/server",
		},
		{
			Name: "closed-stream-counted", Bug: "counts the watches of an ended stream against the caller's limit", File: "stream.go",
			Old: "\t\tauthz.CloseWatch(s.api.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\t\t_ = w\n", Tests: "TestEndedCallsAreNotCounted", Package: "internal/edge/server",
		},
		{
			Name: "watch-limit-exceeded", Bug: "lets a caller open more watches than its limit", File: "stream.go",
			Old: `full = authz.OpenWatch(s.api.cfg.Budget, s.holder, s.caller, rng)`, New: `full = nil`, Tests: "TestEndedCallsAreNotCounted", Package: "internal/edge/server",
		},
		{
			Name: "watches-per-stream-exceeded", Bug: "permits one watch too many on a stream", File: "stream.go",
			Old: `len(s.watches) >= s.api.cfg.MaxWatchesPerStream`, New: `len(s.watches) > s.api.cfg.MaxWatchesPerStream`, Tests: "TestTooManyWatches", Package: "internal/edge/server",
		},
		{
			Name: "watch-id-reused", Bug: "a watch replaces another one with its ID", File: "stream.go",
			Old: `if s.watches[id] != nil {`, New: `if false {`, Tests: "TestStreamRefused|TestWatchRefused", Package: "internal/edge/server",
		},
		{
			Name: "watch-not-permitted", Bug: "opens watches that the policy does not permit", File: "stream.go",
			Old: `err = s.caller.May(s.ctx, policy.Watch, rng)`, New: `_ = policy.Watch`, Tests: "TestAPolicyThatChangesEndsWatches", Package: "internal/edge/server",
		},
		{
			Name: "stale-watch-goes-on", Bug: "uses a watch's last known age when its age is unknown", File: "age.go",
			Old: `if age = now.Sub(w.freshAt); age <= w.maxStaleness {`, New: `if age <= w.maxStaleness {`, Tests: "TestAWatchIsStaleAfterItsBound",
		},
		{
			Name: "stale-at-bound", Bug: "treats a watch as stale at exactly the permitted age", File: "age.go",
			Old: `age <= w.maxStaleness {`, New: `age < w.maxStaleness {`, Tests: "TestAWatchIsStaleAfterItsBound",
		},
		{
			Name: "unit-of-ended-lineage", Bug: "sends the rest of a unit whose history has ended", File: "sync.go",
			Old: `err == nil && lineage != w.follows.lineage`, New: `false`, Tests: "TestLineageEndsDuringAUnit", Package: "internal/edge/server",
		},
		{
			Name: "token-of-the-stream", Bug: "sends tokens to a client that did not request them", File: "progress.go",
			Old: `if tokens {`, New: `if tokens || true {`, Tests: "TestProgressBringsTokens", Package: "internal/edge/server",
		},
		{
			Name: "token-without-position", Bug: "sends a token for a watch without a position", File: "progress.go",
			Old: `if at, ok := w.position(); ok {`, New: `if at, _ := w.position(); true {`, Tests: "TestNoTokenBeforeTheState", Package: "internal/edge/server",
		},
		{
			Name: "progress-passes-unit", Bug: "progress advances the client's position in the middle of a unit", File: "sync.go",
			Old: `w.resync.begun && w.phase == syncing || w.latest.body != nil`, New: `w.latest.body != nil`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-passes-conflated-unit", Bug: "progress advances the client's position in the middle of a conflated unit", File: "sync.go",
			Old: `w.resync.begun && w.phase == syncing || w.latest.body != nil`, New: `w.resync.begun && w.phase == syncing`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-of-other-history", Bug: "sends progress to a watch with a position in another history", File: "sync.go",
			Old: `w.owesState() || w.in != w.follows`, New: `w.owesState()`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-without-state", Bug: "sends progress to a watch without its state", File: "sync.go",
			Old: `w.owesState() || w.in != w.follows`, New: `w.in != w.follows`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-passes-collected", Bug: "progress is later than events that a conflated watch collects", File: "sync.go",
			Old: `w.phase == live && !w.latest.collecting()`, New: `w.phase == live`, Tests: "TestProgressStaysAtTheClientsPosition",
		},
		{
			Name: "progress-before-created", Bug: "progress advances a watch that is not created yet", File: "sync.go",
			Old: `w.phase == live || w.phase == syncing || w.phase == opening`, New: `true`, Tests: "TestProgressOfAStream",
		},
		{
			Name: "progress-goes-back", Bug: "progress moves a watch backwards", File: "sync.go",
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
			Name: "watch-ends-with-etcd", Bug: "ends watches when etcd cannot confirm their rights", File: "guard.go",
			Old: `err != nil && !wire.IsUnavailable(err)`, New: `err != nil && (true || !wire.IsUnavailable(err))`, Tests: "TestWatchesSurviveWhileEtcdCannotCheckTheirRights", Package: "internal/edge/server",
		},
		{
			Name: "unknown-age-ignored", Bug: "a stream's age ignores watches of unknown age", File: "age.go",
			Old: "\t\tif !known {\n\t\t\treturn fresh{}\n\t\t}", New: `if !known { continue }`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "age-of-the-newest", Bug: "reports the age of the freshest watch as the stream's", File: "age.go",
			Old: `at.Before(oldest.at)`, New: `at.After(oldest.at)`, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "staleness-at-bound-refused", Bug: "refuses the minimum max_staleness", File: "age.go",
			Old: `bound.AsDuration() < minWatchStaleness`, New: `bound.AsDuration() <= minWatchStaleness`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "unknown-age-is-zero", Bug: "reports an unknown age as 0", File: "age.go",
			Old: "\tif !known {\n\t\treturn nil\n\t}", New: ``, Tests: "TestAgeOfAStreamIsThatOfItsOldestWatch",
		},
		{
			Name: "conflate-at-bound-refused", Bug: "refuses the minimum interval of a conflated watch", File: "conflate.go",
			Old: `d.AsDuration() < minConflate`, New: `d.AsDuration() <= minConflate`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "conflate-without-bound", Bug: "accepts a conflated watch with an interval of days", File: "conflate.go",
			Old: `d.AsDuration() > maxConflate`, New: `false`, Tests: "TestBoundsOfAWatchsRequest",
		},
		{
			Name: "page-without-map", Bug: "a node without a map rejects page tokens as foreign", File: "read.go",
			Old: "\t\tif here.lineage == 0 {\n\t\t\treturn req, options, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: \"this node has no shard map yet\"}\n\t\t}", New: ``, Tests: "TestReadsOfAPositionWithoutAShardMap", Package: "internal/edge/server",
		},
		{
			Name: "revision-without-map", Bug: "a node without a map rejects revisions as foreign", File: "read.go",
			Old: "\tif here.lineage == 0 {\n\t\treturn nil // no shard map yet: the read itself fails\n\t}", New: ``, Tests: "TestReadsOfAPositionWithoutAShardMap", Package: "internal/edge/server",
		},
		{
			Name: "changes-of-any-lineage", Bug: "lists changes since a revision of another history", File: "read.go",
			Old: `r.GetRevision() > 0 || r.GetChangedSince() > 0`, New: `r.GetRevision() > 0`, Tests: "TestReadsOfAnotherClustersRevision", Package: "internal/edge/server",
		},
		{
			Name: "drain-lets-in", Bug: "a draining node accepts new streams", File: "api.go",
			Old: "if a.draining {\n\t\treturn false", New: "if false {\n\t\treturn false", Tests: "TestDrainIsPaced|TestDrain", Package: "internal/edge/server",
		},
		{
			Name: "policy-change-ignored", Bug: "continues watches that the policy no longer permits", File: "guard.go",
			Old: `w.end(ended(err, nil))`, New: `_, _ = w, err`, Tests: "TestAPolicyThatChangesEndsWatches", Package: "internal/edge/server",
		},
		{
			Name: "skipped-not-counted", Bug: "a turn of a stream examines batches of other keys for all of its watches", File: "crowd.go",
			Old: `		p.skipped += r.Skipped()
`, New: "", Tests: "TestATurnSkipsABoundedNumberOfBatches",
		},
		{
			Name: "collected-unbounded", Bug: "conflated watches collect any number of keys for clients that do not read", File: "conflate.go",
			Old: `for l.size > max(l.taken, freeCollected) {`, New: `for false {`, Tests: "TestCollectedKeysAreBounded",
		},
		{
			Name: "collected-held", Bug: "the bytes of a sent unit do not return to the budget", File: "conflate.go",
			Old: `if l.taken > 0 {`, New: `if false {`, Tests: "TestCollectedKeysAreBounded",
		},
	}}
}
