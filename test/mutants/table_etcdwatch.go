package mutants

func etcdwatchGroup() Group {
	return Group{Package: "internal/edge/etcdwatch", Mutants: []Mutant{
		{
			Name: "etcdwatch-map-for-one", Bug: "keeps a map of readers for the only watch of a stream", File: "reader.go",
			Old: "if !s.several.Load() {", New: "if false {", Tests: "TestTheOnlyWatchHasNoMapOfReaders",
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
			Name: "gate-of-connections", Bug: "each connection of a client has its own turn", File: "watch.go",
			Old: `gate.Enter(w.s.holder.Name, func`, New: `gate.Enter(w.s.from.String(), func`, Tests: "TestAClientsConnectionsShareItsTurn", Package: "internal/edge/etcdapi",
		},
		{
			Name: "floor-itself-compacted", Bug: "ends a watch at just what etcd has compacted, when another one needs less", File: "past.go",
			Old: `wants < compacted.Floor || wants == x.from`, New: `wants <= compacted.Floor || wants == x.from`, Tests: "TestCompactedBeforeASharedRead", Package: "internal/edge/etcdapi",
		},
		{
			Name: "log-of-next-lineage", Bug: "sends a watch what was read of the next lineage's log", File: "past.go",
			Old: `p.of.cfg.Router.History().Lineage != x.key.lineage || overtaken(err)`, New: `overtaken(err)`, Tests: "TestALineageEndsDuringARead", Package: "internal/edge/etcdapi",
		},
		{
			Name: "left-window-from-the-start", Bug: "a watch that leaves the window is sent again what the window has brought", File: "reader.go",
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
			Name: "homeless-keeps-its-place", Bug: "a watch without a home keeps the place that others need", File: "watch.go",
			Old: `	if o.found && w.homeless(err) && time.Now().Before(o.until) {
		return false
	}`, New: `	for o.found && w.homeless(err) && time.Now().Before(o.until) {
		w.reader, err = w.lookForHome(o.from)
		}`, Tests: "TestAHomelessShardBlocksNoOtherWatch", Package: "internal/edge/etcdapi",
		},
		{
			Name: "joins-at-another-revision", Bug: "watches continue at a reader that is at another revision", File: "reader.go",
			Old: `other == nil || other.reached() != reached`, New: `other == nil`, Tests: "TestAWatchInTheFutureIsNotReadWithOthers", Package: "internal/edge/etcdapi",
		},
		{
			Name: "reader-without-window-is-joined", Bug: "watches join a reader that gave up its window, and get nothing any more", File: "reader.go",
			Old: "r.close()\n\tr.watches, r.ids = nil, nil", New: `r.close()`, Tests: "TestNoWatchJoinsAReaderWithoutWindow",
		},
		{
			Name: "fragments-are-mixed", Bug: "watches that want fragments share a reader, which mixes their fragments", File: "reader.go",
			Old: `r.fragment || r.bare > reached`, New: `r.bare > reached`, Tests: "TestFragmentsOfEqualWatchesAreNotMixed", Package: "internal/edge/etcdapi",
		},
		{
			Name: "joins-none", Bug: "watches of one kind and revision are read one by one", File: "reader.go",
			Old: `other == nil || other.reached() != reached`, New: `true`, Tests: "TestWatchesOfAStreamAreReadTogether", Package: "internal/edge/etcdapi",
		},
		{
			Name: "last-watch-leaves-the-reader-open", Bug: "a reader of no watch stays open", File: "reader.go",
			Old: `if r.watches, r.ids = r.watches[:last], r.ids[:last]; last == 0 {`, New: `if r.watches, r.ids = r.watches[:last], r.ids[:last]; last < 0 {`, Tests: "TestWatchesOfAStreamAreReadTogether", Package: "internal/edge/etcdapi",
		},
		{
			Name: "previous-place-in-a-new-reader", Bug: "a watch that comes back to the window never leaves its reader", File: "watch.go",
			Old: `w.place, w.sends = 0, 0`, New: `w.sends = 0`, Tests: "TestWatchesThatAreReadTogetherFallBehind", Package: "internal/edge/etcdapi",
		},
		{
			Name: "cancelled-is-read-on", Bug: "a cancelled watch is sent events as long as others are", File: "reader.go",
			Old: `	r.leavers()
`, New: ``, Tests: "TestACancelledWatchGetsNothingMore",
		},
		{
			Name: "replies-unbounded", Bug: "keeps any number of unread answers", File: "stream.go",
			Old: `if len(s.slots) <= freeReplies {`, New: `if true {`, Tests: "TestUnreadRepliesAreBounded", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-behind-another-client", Bug: "a watch waits for the part of the log that another client has no memory for", File: "past.go",
			Old: `x.holder.Name != w.s.holder.Name && x.wait.Capped()`, New: `false`, Tests: "TestACatchUpDoesNotWaitForAnotherClient",
		},
		{
			Name: "catch-up-unpaced", Bug: "a client has etcd read its log without a pause", File: "past.go",
			Old: `for pause := begin(); pause > 0; pause = begin() {`, New: `for pause := begin(); false; pause = begin() {`, Tests: "TestACatchUpWaitsForItsClientsPace",
		},
		{
			Name: "catch-up-behind-another-pace", Bug: "a watch waits for the pause of another client", File: "past.go",
			Old: `x.paced && x.holder.Name != w.s.holder.Name`, New: `false`, Tests: "TestACatchUpDoesNotWaitForAnotherClientsPace",
		},
		{
			Name: "catch-up-parts-together", Bug: "all parts that a client waits for are read at a time, however many reads of the log they are", File: "paces.go",
			Old: `if x.begun == maxParts {`, New: `if false {`, Tests: "TestPartsBeyondOneReadWait",
		},
		{
			Name: "catch-up-wait-counts", Bug: "counts the time until etcd looks for watches as a read of its log", File: "paces.go",
			Old: `max(min(took, alone)-etcdWaits, `, New: `max(min(took, alone), `, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-pace-of-one-read", Bug: "a client's pauses do not add up", File: "paces.go",
			Old: `x.next = x.next.Add(`, New: `x.next = free.Add(`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-pace-of-each", Bug: "reads that are one for etcd count for each watch", File: "paces.go",
			Old: `alone > endTogether {`, New: `alone >= 0 {`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-short-reads-free", Bug: "reads that take etcd less than its loop's period cost a client nothing", File: "paces.go",
			Old: `time.Duration(revisions)*revisionCosts,`, New: `time.Duration(0),`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-busy-machine-counts", Bug: "a read of a short log that takes long on a busy machine costs its client a long pause", File: "paces.go",
			Old: `min(max(min(took, alone)-etcdWaits, least), most)`, New: `max(min(took, alone)-etcdWaits, least, 0*most)`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-large-values-cheap", Bug: "a read of large values counts no more than one of small ones", File: "paces.go",
			Old: `time.Duration(size)*byteCostsMost`, New: `0*time.Duration(size)`, Tests: "TestReadsOfTheLogArePaced",
		},
		{
			Name: "catch-up-parts-small", Bug: "a watch that is far behind has etcd read its log for each 64 KiB", File: "past.go",
			Old: `p.of.cfg.Budget.Grow(x.holder, budget.CatchUps, int64(size-x.size), int64(x.size))`, New: `false`, Tests: "TestPartsOfTheLogKeepWhatFits",
		},
		{
			Name: "catch-up-parts-unbounded", Bug: "keeps all that a read of etcd's log has brought", File: "past.go",
			Old: `size > x.size && last > 0; last--`, New: `size > x.size && last > 1e9; last--`, Tests: "TestPartsOfTheLogKeepWhatFits",
		},
		{
			Name: "catch-up-not-shared", Bug: "reads etcd's log for each watch", File: "past.go",
			Old: `case x.state == partLoaded && w.next < x.next:`, New: `case x.state == partLoaded && w.next < x.next && len(p.parts) == 0:`, Tests: "TestCatchUpsShareWhatTheyRead", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-without-leader", Bug: "a watch that requires a leader waits for ever for an etcd that is away", File: "progress.go",
			Old: `if w.live && p.s.of.past.away(w) > p.s.of.cfg.MaxStaleness {`, New: `if false {`, Tests: "TestCatchUpWithoutLeader", Package: "internal/edge/etcdapi",
		},
		{
			Name: "catch-up-pace-is-no-leader", Bug: "a watch that waits for its client's pace takes etcd for away", File: "past.go",
			Old: `w.rides.state != partFailed || w.away.IsZero()`, New: `w.away.IsZero()`, Tests: "TestHowLongEtcdIsAwayForACatchUp",
		},
		{
			Name: "catch-up-kept", Bug: "holds what was read of etcd's log for ever", File: "past.go",
			Old: `		x.idle.Reset(keepSpare)`, New: ``, Tests: "TestSparePartsOfTheLog",
		},
		{
			Name: "catch-up-spare-dropped", Bug: "has etcd read its log again for each client that comes back", File: "past.go",
			Old: `if x.spare || slices`, New: `if !x.spare || slices`, Tests: "TestSparePartsOfTheLog",
		},
		{
			Name: "catch-up-spare-kept", Bug: "a watch waits for the memory of a part that no watch needs", File: "past.go",
			Old: `} else if x.wait.Waited() {`, New: `} else if false {`, Tests: "TestSparePartsOfTheLog",
		},
		{
			Name: "unserved-fetched-for-ever", Bug: "a watch of keys that are no longer served asks etcd's log for ever", File: "fetch.go",
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
			Name: "progress-while-behind", Bug: "forgets a progress request while a watch catches up", File: "progress.go",
			Old: `never = never || w.start`, New: `never = never || w.live && !w.joined() || w.start`, Tests: "TestWatchFromBeforeTheWindow", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-not-looked-at", Bug: "does not answer a progress request once the watch has caught up", File: "progress.go",
			Old: `func (p *progress) caughtUp() { p.task.Wake() }`, New: `func (p *progress) caughtUp() {}`, Tests: "TestWatchFromBeforeTheWindow", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-below-the-old-lineage", Bug: "answers no progress request below what was sent of an older lineage", File: "stream.go",
			Old: `s.lineage, s.sent = lineage, 0`, New: `s.lineage = lineage`, Tests: "TestProgressIsAnsweredAfterARestore|TestProgressIsAnsweredAcrossARestore", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-of-the-old-lineage", Bug: "a progress request waits for a revision of an older lineage", File: "progress.go",
			Old: `if w.live && w.lineage > wanted.lineage {`, New: `if false {`, Tests: "TestProgressIsAnsweredAcrossARestore", Package: "internal/edge/etcdapi",
		},
		{
			Name: "progress-given-up-for-the-old-lineage", Bug: "gives up a progress request for a watch of an older lineage", File: "progress.go",
			Old: ` && !w.outlived(wanted.lineage)`, New: ``, Tests: "TestProgressWaitsForWatchesOfAnOldLineage",
		},
		{
			Name: "progress-for-the-old-lineage", Bug: "an answer to a progress request speaks for watches of an older lineage", File: "progress.go",
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
			Name: "cancelled-counts", Bug: "a cancelled watch counts against its caller", File: "stream.go",
			Old: "\ts.mu.Unlock()\n\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\ts.mu.Unlock()\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "refused-counts", Bug: "a refused watch counts against its caller", File: "stream.go",
			Old: "\tif answer == nil {\n\t\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, rng)\n", New: "\tif answer == nil {\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "ended-counts", Bug: "a watch that the server ended counts against its caller", File: "stream.go",
			Old: "\tdelete(s.watches, w.id)\n\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\tdelete(s.watches, w.id)\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
		{
			Name: "left-counts", Bug: "the watches of a stream that was left count against their caller", File: "stream.go",
			Old: "\tfor _, w := range s.watches {\n\t\tauthz.CloseWatch(s.of.cfg.Budget, s.holder, s.caller, w.rng)\n\t}\n", New: "", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller", Package: "internal/edge/etcdapi",
		},
	}}
}
