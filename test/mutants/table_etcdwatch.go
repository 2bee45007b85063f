package mutants

func etcdwatchGroup() Group {
	return Group{Package: "internal/edge/etcdwatch", Mutants: []Mutant{
		{
			Name: "etcdwatch-map-for-one", Bug: "keeps a map of readers for the only watch of a stream", File: "reader.go",
			Old: "if !s.several.Load() {", New: "if false {", Tests: "TestTheOnlyWatchHasNoMapOfReaders",
		},
		{
			Name: "etcdview-old-lineage", Bug: "counts revisions of an old lineage as revisions of the new one", File: "../etcdview/view.go",
			Old: "s.lineage > lineage:\n\t\t\treturn nil", New: "s.lineage > lineage:\n\t\t\treturn s", Tests: "TestRevisionsOfAnOldLineageAreNotTheNewest", Package: "internal/edge/etcdview",
		},
		{
			Name: "etcdwatch-never-several", Bug: "watches of a stream of etcd's API never share a reader", File: "stream.go",
			Old: "if len(s.watches) > 1 {", New: "if false {", Tests: "TestWatchesOfAStreamAreReadTogether", Package: "internal/edge/etcdapi",
		},
		{
			Name: "starts-too-late", Bug: "a watch of etcd's API from now on misses the next revision", File: "watch.go",
			Old: `return now + 1, now, nil`, New: `return now + 2, now, nil`, Tests: "TestWatchStart", Package: "internal/edge/etcdapi",
		},
		{
			Name: "gate-of-connections", Bug: "each connection of a client has a separate turn", File: "watch.go",
			Old: `gate.Enter(w.s.holder.Name, func`, New: `gate.Enter(w.s.from.String(), func`, Tests: "TestAClientsConnectionsShareItsTurn", Package: "internal/edge/etcdapi",
		},
		{
			Name: "floor-itself-compacted", Bug: "ends a watch at exactly the compact revision when another one needs less", File: "past.go",
			Old: `wants < compacted.Floor || wants == x.from`, New: `wants <= compacted.Floor || wants == x.from`, Tests: "TestCompactedBeforeASharedRead", Package: "internal/edge/etcdapi",
		},
		{
			Name: "log-of-next-lineage", Bug: "sends a watch events from the next lineage's log", File: "past.go",
			Old: `p.of.cfg.Router.History().Lineage != x.key.lineage || overtaken(err)`, New: `overtaken(err)`, Tests: "TestALineageEndsDuringARead", Package: "internal/edge/etcdapi",
		},
		{
			Name: "left-window-from-the-start", Bug: "sends a watch that leaves the window the window's events again", File: "reader.go",
			Old: `max(w.next, at+1), compacted.Floor`, New: `w.next, compacted.Floor`, Tests: "TestWatchSlowerThanTheWindow", Package: "internal/edge/etcdapi",
		},
		{
			Name: "unserved-ends-stream", Bug: "a watch of keys that are no longer served ends its stream", File: "reader.go",
			Old: `	case errors.As(err, new(*kv.NotServedError)):
		for _, w := range watches {
			w.finish(w.unserved(err))
		}
`, New: ``, Tests: "TestANarrowerPrefixEndsOnlyTheWatchesOutside", Package: "internal/edge/etcdapi",
		},
		{
			Name: "homeless-keeps-its-place", Bug: "a watch without a source keeps a place that others need", File: "watch.go",
			Old: `	if o.found && w.homeless(err) && time.Now().Before(o.until) {
		return false
	}`, New: `	for o.found && w.homeless(err) && time.Now().Before(o.until) {
		w.reader, err = w.lookForHome(o.from)
		}`, Tests: "TestAHomelessShardBlocksNoOtherWatch", Package: "internal/edge/etcdapi",
		},
		{
			Name: "joins-at-another-revision", Bug: "lets watches join a reader that is at another revision", File: "reader.go",
			Old: `other == nil || other.reached() != reached`, New: `other == nil`, Tests: "TestAWatchInTheFutureIsNotReadWithOthers", Package: "internal/edge/etcdapi",
		},
		{
			Name: "reader-without-window-is-joined", Bug: "lets watches join a reader that released its window, where they get no more events", File: "reader.go",
			Old: "r.close()\n\tr.watches, r.ids = nil, nil", New: `r.close()`, Tests: "TestNoWatchJoinsAReaderWithoutWindow",
		},
		{
			Name: "fragments-are-mixed", Bug: "lets watches with fragments share a reader, which mixes their fragments", File: "reader.go",
			Old: `r.fragment || r.bare > reached`, New: `r.bare > reached`, Tests: "TestFragmentsOfEqualWatchesAreNotMixed", Package: "internal/edge/etcdapi",
		},
		{
			Name: "joins-none", Bug: "reads watches of the same kind and revision separately", File: "reader.go",
			Old: `other == nil || other.reached() != reached`, New: `true`, Tests: "TestWatchesOfAStreamAreReadTogether", Package: "internal/edge/etcdapi",
		},
		{
			Name: "last-watch-leaves-the-reader-open", Bug: "keeps a reader without watches open", File: "reader.go",
			Old: `if r.watches, r.ids = r.watches[:last], r.ids[:last]; last == 0 {`, New: `if r.watches, r.ids = r.watches[:last], r.ids[:last]; last < 0 {`, Tests: "TestWatchesOfAStreamAreReadTogether", Package: "internal/edge/etcdapi",
		},
		{
			Name: "previous-place-in-a-new-reader", Bug: "a watch that returns to the window never leaves its reader", File: "watch.go",
			Old: `w.place, w.sends = 0, 0`, New: `w.sends = 0`, Tests: "TestAWatchLeavesItsNewReader",
		},
		{
			Name: "cancelled-is-read-on", Bug: "sends events to a cancelled watch as long as others get them", File: "reader.go",
			Old: `	r.leavers()
`, New: ``, Tests: "TestACancelledWatchGetsNothingMore",
		},
		{
			Name: "replies-unbounded", Bug: "keeps any number of unread answers", File: "stream.go",
			Old: `if len(s.slots) <= freeReplies {`, New: `if true {`, Tests: "TestUnreadRepliesAreBounded", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-behind-another-client", Bug: "a watch waits for a part of the log for which another client has no memory", File: "past.go",
			Old: `x.holder.Name != w.s.holder.Name && x.wait.Capped()`, New: `false`, Tests: "TestACatchUpDoesNotWaitForAnotherClient",
		},
		{
			Name: "catch-up-unpaced", Bug: "a client makes etcd read its log without a pause", File: "past.go",
			Old: `for pause := begin(); pause > 0; pause = begin() {`, New: `for pause := begin(); false; pause = begin() {`, Tests: "TestACatchUpWaitsForItsClientsPace",
		},
		{
			Name: "catch-up-behind-another-pace", Bug: "a watch waits during the pause of another client", File: "past.go",
			Old: `x.paced && x.holder.Name != w.s.holder.Name`, New: `false`, Tests: "TestACatchUpDoesNotWaitForAnotherClientsPace",
		},
		{
			Name: "catch-up-parts-together", Bug: "reads all parts for a client at the same time, regardless of the number of reads of the log", File: "paces.go",
			Old: `if x.begun == maxParts {`, New: `if false {`, Tests: "TestPartsBeyondOneReadWait",
		},
		{
			Name: "catch-up-wait-counts", Bug: "counts etcd's delay before it handles watches as a read of its log", File: "paces.go",
			Old: `max(min(took, alone)-etcdWaits, `, New: `max(min(took, alone), `, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-pace-of-one-read", Bug: "a client's pauses do not add up", File: "paces.go",
			Old: `x.next = x.next.Add(`, New: `x.next = free.Add(`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-pace-of-each", Bug: "counts reads that are one for etcd for each watch", File: "paces.go",
			Old: `alone > endTogether {`, New: `alone >= 0 {`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-short-reads-free", Bug: "does not charge a client for reads that are shorter than the period of etcd's loop", File: "paces.go",
			Old: `time.Duration(revisions)*revisionCosts,`, New: `time.Duration(0),`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-busy-machine-counts", Bug: "charges a client a long pause for a read of a short log that is slow on a busy machine", File: "paces.go",
			Old: `min(max(min(took, alone)-etcdWaits, least), most)`, New: `max(min(took, alone)-etcdWaits, least, 0*most)`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-large-values-cheap", Bug: "charges a read of large values like one of small ones", File: "paces.go",
			Old: `time.Duration(size)*byteCostsMost`, New: `0*time.Duration(size)`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-parts-small", Bug: "a watch that is far behind makes etcd read its log for each 64 KiB", File: "past.go",
			Old: `p.of.cfg.Budget.Grow(x.holder, budget.CatchUps, int64(size-x.size), int64(x.size))`, New: `false`, Tests: "TestPartsOfTheLogAreBounded",
		},
		{
			Name: "catch-up-parts-unbounded", Bug: "keeps all results of a read of etcd's log", File: "past.go",
			Old: `size > x.size && last > 0; last--`, New: `size > x.size && last > 1e9; last--`, Tests: "TestPartsOfTheLogAreBounded",
		},
		{
			Name: "catch-up-not-shared", Bug: "reads etcd's log for each watch", File: "past.go",
			Old: `case x.state == partLoaded && w.next < x.next:`, New: `case x.state == partLoaded && w.next < x.next && len(p.parts) == 0:`, Tests: "TestCatchUpsShareTheirReads", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-without-leader", Bug: "a watch that requires a leader waits forever for an unavailable etcd", File: "progress.go",
			Old: `if w.live && p.s.of.past.away(w) > p.s.of.cfg.MaxStaleness {`, New: `if false {`, Tests: "TestCatchUpWithoutLeader", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-pace-is-no-leader", Bug: "a watch that waits for its client's pace treats etcd as unavailable", File: "past.go",
			Old: `w.rides.state != partFailed || w.away.IsZero()`, New: `w.away.IsZero()`, Tests: "TestUnavailabilityOfEtcdForACatchUp",
		},
		{
			Name: "catch-up-kept", Bug: "keeps data read from etcd's log forever", File: "past.go",
			Old: `		x.idle.Reset(keepSpare)`, New: ``, Tests: "TestUnreadPartsOfTheLogAreKept",
		},
		{
			Name: "catch-up-spare-dropped", Bug: "makes etcd read its log again for each returning client", File: "past.go",
			Old: `if x.spare || slices`, New: `if !x.spare || slices`, Tests: "TestUnreadPartsOfTheLogAreKept",
		},
		{
			Name: "catch-up-spare-kept", Bug: "a watch waits for the memory of an unneeded part", File: "past.go",
			Old: `} else if x.wait.Waited() {`, New: `} else if false {`, Tests: "TestUnreadPartsOfTheLogAreKept",
		},
		{
			Name: "unserved-fetched-for-ever", Bug: "a watch of keys that are no longer served reads etcd's log forever", File: "fetch.go",
			Old: `case errors.As(err, new(*kv.NotServedError)):`, New: `case false:`, Tests: "TestANarrowerPrefixEndsAWatchThatCatchesUp", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-below-sent", Bug: "answers a progress request below an event that was sent", File: "progress.go",
			Old: `max(wanted.revision, p.hold, p.s.sent)`, New: `max(wanted.revision, p.hold)`, Tests: "TestProgressAnswerIsNotBelowAnEventThatOvertookIt", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-below-notified", Bug: "answers a progress request below a notification that was sent", File: "progress.go",
			Old: `p.s.noteSent(r.lineage, at)`, New: `_ = at`, Tests: "TestProgressAnswerIsNotBelowANotification", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-for-the-future", Bug: "answers a progress request for a watch that begins in the future", File: "progress.go",
			Old: `never || w.start > wanted.revision && !w.outlived(wanted.lineage)`, New: `never`, Tests: "TestProgressIsNotAnsweredForAWatchInTheFuture", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-while-behind", Bug: "drops a progress request while a watch catches up", File: "progress.go",
			Old: `never = never || w.start`, New: `never = never || w.live && !w.joined() || w.start`, Tests: "TestWatchFromBeforeTheWindow", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-not-looked-at", Bug: "does not answer a progress request once the watch has caught up", File: "progress.go",
			Old: `func (p *progress) caughtUp() { p.task.Wake() }`, New: `func (p *progress) caughtUp() {}`, Tests: "TestWatchFromBeforeTheWindow", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-below-the-old-lineage", Bug: "answers no progress request below events sent in an older lineage", File: "stream.go",
			Old: `s.lineage, s.sent = lineage, 0`, New: `s.lineage = lineage`, Tests: "TestProgressIsAnsweredAfterARestore|TestProgressIsAnsweredAcrossARestore", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-of-the-old-lineage", Bug: "a progress request waits for a revision of an older lineage", File: "progress.go",
			Old: `if w.live && w.lineage > wanted.lineage {`, New: `if false {`, Tests: "TestProgressIsAnsweredAcrossARestore", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-given-up-for-the-old-lineage", Bug: "drops a progress request because of a watch of an older lineage", File: "progress.go",
			Old: ` && !w.outlived(wanted.lineage)`, New: ``, Tests: "TestProgressWaitsForWatchesOfAnOldLineage",
		},
		{
			Name: "progress-for-the-old-lineage", Bug: "an answer to a progress request covers watches of an older lineage", File: "progress.go",
			Old: `!w.live || w.outlived(wanted.lineage) ||`, New: `!w.live ||`, Tests: "TestProgressWaitsForWatchesOfAnOldLineage",
		},
		{
			Name: "sent-of-the-old-lineage", Bug: "answers no progress request below late events of an older lineage", File: "stream.go",
			Old: `if s.turnTo(lineage); lineage == s.lineage {`, New: `if s.turnTo(lineage); true {`, Tests: "TestProgressWaitsForWatchesOfAnOldLineage",
		},
		{
			Name: "notified-before-start", Bug: "notifies a watch of progress before its first revision", File: "progress.go",
			Old: `at >= w.start &&`, New: ``, Tests: "TestWatchProgressNotify", Package: "internal/edge/etcdapi",
		},
		{
			Name: "cancelled-counts", Bug: "counts a cancelled watch against its caller's limit", File: "stream.go",
			Old: "\ts.mu.Unlock()\n\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\ts.mu.Unlock()\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "refused-counts", Bug: "counts a refused watch against its caller's limit", File: "stream.go",
			Old: "\tif answer == nil {\n\t\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, rng)\n", New: "\tif answer == nil {\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "ended-counts", Bug: "counts a watch ended by the server against its caller's limit", File: "stream.go",
			Old: "\tdelete(s.watches, w.id)\n\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\tdelete(s.watches, w.id)\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "left-counts", Bug: "counts the watches of an abandoned stream against their caller's limit", File: "stream.go",
			Old: "\tfor _, w := range s.watches {\n\t\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n\t}\n", New: "", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "skipped-not-counted-etcd", Bug: "a turn of a watch of etcd's API examines any number of batches of other keys", File: "reader.go",
			Old: `		skipped += r.inner.Skipped()
`, New: "", Tests: "TestATurnSkipsABoundedNumberOfBatches",
		},
	}}
}
