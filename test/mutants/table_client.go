package mutants

func clientGroup() Group {
	return Group{Package: "client", Mutants: []Mutant{
		{
			Name: "apply-keeps-old-keys", Bug: "a copy keeps keys that a resync does not have", File: "update.go",
			Old: `if u.Kind == KindState || u.Kind == KindResync {
		if`, New: `if u.Kind == KindState {
		if`, Tests: "TestApplyEveryKind",
		},
		{
			Name: "change-hides-resync", Bug: "a resync that changes no key is not reported", Package: "client/mirror", File: "mirror/mirror.go",
			Old: `if (c.Initial || c.Resync || len`, New: `if (c.Initial || len`, Tests: "TestChangesNameTheFirstAndResyncs",
		},
		{
			Name: "sync-of-an-ended-mirror", Bug: "a mirror that ended without a state is ready", Package: "client/mirror", File: "mirror/mirror.go",
			Old: `if !m.View().held() {
			return fmt`, New: `if m.View().held() && m.Err() == nil {
			return fmt`, Tests: "TestSyncReturnsTheReasonThatAMirrorIsNotReady",
		},
		{
			Name: "follow-skips-a-failed-update", Bug: "does not pass a failed update again", Package: "client/follow", File: "follow/follow.go",
			Old: `return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)`, New: `s.at = u.Position()
				return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)`, Tests: "TestRunPassesAFailedUpdateAgain",
		},
		{
			Name: "follow-saves-each-progress", Bug: "saves the position of an idle range with every progress", Package: "client/follow", File: "follow/follow.go",
			Old: `wait = saveIdle`, New: `wait = 0`, Tests: "TestPositionsAreSavedInTime",
		},
		{
			Name: "follow-saves-changes-late", Bug: "progress after a change delays the save of the change", Package: "client/follow", File: "follow/follow.go",
			Old: `s.dirty = s.dirty || u.Kind`, New: `s.dirty = u.Kind`, Tests: "TestPositionsAreSavedInTime",
		},
		{
			Name: "position-file-of-any-range", Bug: "accepts a position file of another range", Package: "client/follow", File: "follow/file.go",
			Old: `case in.Range != r.String():`, New: `case false:`, Tests: "TestFileOfAnotherRange",
		},
		{
			Name: "typed-shows-bad-values", Bug: "a value that cannot be decoded replaces the last valid one", Package: "client/mirror", File: "mirror/typed.go",
			Old: `case err == nil:
			all`, New: `case err == nil || m.values[key] != nil:
			all`, Tests: "TestTypedMirrorKeepsTheLastGoodValue",
		},
		{
			Name: "typed-keeps-values-of-former-keys", Bug: "keeps the value of a key that was deleted and created again", Package: "client/mirror", File: "mirror/typed.go",
			Old: `case kept != nil && before`, New: `case false && before`, Tests: "TestTypedMirrorDropsTheValueOfAKeyThatWasCreatedAgain",
		},
		{
			Name: "typed-drops-bad-values", Bug: "drops the last valid value of a key with an invalid one", Package: "client/mirror", File: "mirror/typed.go",
			Old: `kept != nil && before.CreateRevision != after.CreateRevision:`, New: `kept != nil:`, Tests: "TestTypedMirrorDropsTheValueOfAKeyThatWasCreatedAgain",
		},
		{
			Name: "typed-keeps-deleted-values", Bug: "keeps the value of a deleted key", Package: "client/mirror", File: "mirror/typed.go",
			Old: `delete(m.values, r.key)`, New: `m.values[r.key] = r.before`, Tests: "TestTypedMirrorKeepsTheLastGoodValue",
		},
		{
			Name: "cluster-is-a-lineage", Bug: "reports a position of another cluster as one from before a restore", File: "position.go",
			Old: `if h.cluster != "" && h.cluster != o.cluster {
		return ErrCluster`, New: `if h.cluster != "" && h.cluster != o.cluster {
		return ErrLineage`, Tests: "TestTheErrorNamesAnotherCluster",
		},
		{
			Name: "put-if-overwrites", Bug: "a conditional write overwrites any revision", File: "txn.go",
			Old: `c.Txn(ctx, []Condition{{Key: key, ModRevision: modRevision}}, Op`, New: `c.Txn(ctx, nil, Op`, Tests: "TestPutIfNoOtherHasWritten",
		},
		{
			Name: "units-without-a-bound", Bug: "units have no bound by default", File: "config.go",
			Old: `c.MaxUnit = 1 << 30`, New: `c.MaxUnit = -1`, Tests: "TestUnitsAreBoundedByDefault",
		},
		{
			Name: "unconfirmed-write-unobserved", Bug: "does not observe a write without confirmation", File: "internal/calls/write.go",
			Old: `				a.Observe(err)
				return c.unknown`, New: `				return c.unknown`, Tests: "TestObserver",
		},
		{
			Name: "resume-unobserved", Bug: "resumes are not observed", File: "watch_arrive.go",
			Old: `w.observeLocked(func() { f(rng, r) })`, New: `_, _ = rng, f`, Tests: "TestObserver",
		},
		{
			Name: "txn-without-conditions", Bug: "drops the conditions of a transaction", File: "txn.go",
			Old: `ModRevision: i.ModRevision},
		})`, New: `ModRevision: i.ModRevision},
		})
		request.Compare = nil`, Tests: "TestTxnChangesAllOrNothing",
		},
		{
			Name: "txn-names-the-first", Bug: "reports a true condition as the conflict", File: "txn.go",
			Old: `if i < len(conditions) && current != conditions[i].ModRevision {`, New: `if i < len(conditions) {`, Tests: "TestTxnChangesAllOrNothing",
		},
		{
			Name: "silent-list-waited-for", Bug: "waits forever for a node that falls silent in a list", File: "list.go",
			Old: `				}
			}
		}
		patience.Reset(l.c.cfg.AttemptTimeout)`, New: `				}
			}
		}`, Tests: "TestAListLeavesANodeThatFallsSilent",
		},
		{
			Name: "get-of-another-history", Bug: "Get accepts an answer of another history than the requested one", File: "get.go",
			Old: `if !o.history.fits(out.Position().history()) {`, New: `if false {`, Tests: "TestAnswersOfAnotherHistoryAreRefused",
		},
		{
			Name: "list-of-two-revisions", Bug: "continues a list at another revision", File: "list.go",
			Old: `case at != l.at:`, New: `case false:`, Tests: "TestAnswersOfAnotherHistoryAreRefused",
		},
		{
			Name: "list-resumes-in-any-history", Bug: "continues a broken list in any history", File: "list.go",
			Old: `req.ClusterId, req.Lineage = l.at.Cluster, l.at.Lineage`, New: `_ = l.at`, Tests: "TestAnInterruptedListResumes",
		},
		{
			Name: "limited-list-skips", Bug: "a page that broke off continues after its last key with another token", File: "list.go",
			Old: `if l.last != "" && l.o.limit == 0 {`, New: `if l.last != "" {`, Tests: "TestAnInterruptedListResumes",
		},
		{
			Name: "list-resumes-past-its-end", Bug: "a list that broke off after its last key requests an empty range", File: "list.go",
			Old: `r.Start = l.last`, New: `r.Start = l.last + "\x00"`, Tests: "TestAListMayBreakAfterItsLastKey",
		},
		{
			Name: "get-of-any-age", Bug: "Get does not pass on the permitted age of its answer", File: "get.go",
			Old: `if o.maxStaleness > 0 {`, New: `if false {`, Tests: "TestReadOptionsReachTheNode",
		},
		{
			Name: "serializable-reads-linearizable", Bug: "requests a linearizable read from etcd without need", File: "get.go",
			Old: `case o.serializable:`, New: `case false:`, Tests: "TestReadOptionsReachTheNode",
		},
		{
			Name: "token-of-unread", Bug: "a token includes updates that the program has not read", File: "watch.go",
			Old: `if len(w.queue) == 0 && w.asm.positioned {`, New: `if w.asm.positioned {`, Tests: "TestAPositionDoesNotCoverPendingUpdates",
		},
		{
			Name: "client-answer-of-former-place", Bug: "accepts answers of the node that a watch has left", File: "watch_arrive.go",
			Old: `if w.on != s || w.id != id {`, New: `if false {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-answer-of-another-id", Bug: "accepts answers to another attempt on the same stream", File: "watch_arrive.go",
			Old: `if w.on != s || w.id != id {`, New: `if w.on != s {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-lost-twice", Bug: "a loss that is reported twice moves a watch twice", File: "watch_move.go",
			Old: `if w.on != s || w.id != id {`, New: `if w.on == nil {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-drain-not-avoided", Bug: "keeps a draining node as the first choice", File: "watch_move.go",
			Old: `w.c.pool.Penalise(w.on.Addr(), drainPenalty)`, New: `_ = drainPenalty`, Tests: "TestADrainingNodeIsAvoidedForAWhile",
		},
		{
			Name: "client-drain-avoided-briefly", Bug: "avoids a draining node for the first penalty only", File: "watch_move.go",
			Old: `w.c.pool.Penalise(w.on.Addr(), drainPenalty)`, New: `w.c.pool.Penalise(w.on.Addr(), 0)`, Tests: "TestADrainingNodeIsAvoidedForAWhile",
		},
		{
			Name: "client-hints-of-ended-ignored", Bug: "ignores the nodes that the last node named", File: "watch_move.go",
			Old: "\tw.hints = hints\n", New: "\t_ = hints\n", Tests: "TestAWatchFollowsTheRedirectOfItsNode",
		},
		{
			Name: "client-delay-of-ended-ignored", Bug: "reconnects at once although the node requested a delay", File: "watch_move.go",
			Old: "\tw.hints = hints\n\tw.retryLocked(e.GetRetryAfter().AsDuration(), 0)", New: "\tw.hints = hints\n\tw.retryLocked(0, 0)", Tests: "TestAWatchFollowsTheRedirectOfItsNode",
		},
		{
			Name: "client-restore-asks-elsewhere", Bug: "connects to a node that may not have the new history", File: "watch_move.go",
			Old: "w.tried, w.hints = nil, []string{addr}\n\t\t\tw.retryLocked(e.", New: "w.hints = nil\n\t\t\tw.retryLocked(e.", Tests: "TestARunningWatchAsksItsNodeForTheNewHistory",
		},
		{
			Name: "client-backoff-never-reset", Bug: "old failures delay a watch", File: "watch_move.go",
			Old: `if w.asm.created && time.Since(w.since) > retry.Settled {`, New: `if false {`, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce",
		},
		{
			Name: "client-backoff-reset-by-start", Bug: "a watch that its nodes end at once never backs off", File: "watch_move.go",
			Old: `if w.asm.created && time.Since(w.since) > retry.Settled {`, New: `if w.asm.created {`, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce",
		},
		{
			Name: "client-keeps-unit-in-part", Bug: "an ended watch keeps up to 1 GiB of a unit", File: "watch_move.go",
			Old: `w.asm.partial, w.asm.size = Update{}, 0`, New: `_ = tell`, Tests: "TestAUnitInPartIsDroppedWithItsNode",
		},
		{
			Name: "client-left-node-first", Bug: "a watch returns to the node that it has just left", File: "watch_move.go",
			Old: "\tw.tried.Add(w.on.Addr())\n", New: ``, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce|TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-taken-counts", Bug: "counts delivered updates as pending", File: "watch.go",
			Old: `w.bytes -= u.size()`, New: `_ = u.size()`, Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-close-keeps-updates", Bug: "a closed watch keeps undelivered updates", File: "watch.go",
			Old: `w.queue, w.bytes = nil, 0`, New: `_ = 0`, Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-end-drops-updates", Bug: "a watch that ends drops undelivered updates", File: "watch.go",
			Old: "if errors.Is(err, ErrClosed) {\n\t\tw.queue", New: "if true {\n\t\tw.queue", Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-reason-of-detour", Bug: "OnResume reports the failure of a node that never served the watch", File: "watch_move.go",
			Old: `if w.reason == nil {`, New: `if true {`, Tests: "TestOnResumeNamesTheReasonOfTheMove",
		},
		{
			Name: "client-last-error-stays", Bug: "a served watch reports its last failure", File: "watch_arrive.go",
			Old: `w.nodeName, w.reason, w.lastErr = name, nil, nil`, New: `w.nodeName, w.reason = name, nil`, Tests: "TestOnResumeNamesTheReasonOfTheMove",
		},
		{
			Name: "client-attached-early", Bug: "a watch counts as attached before its node has started it", File: "watch.go",
			Old: `Attached: w.on != nil && w.asm.created`, New: `Attached: w.on != nil`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-resumes-not-merged", Bug: "reports the first of several resumes during OnResume", File: "watch_arrive.go",
			Old: `w.untold.To, w.untold.Reason = r.To, r.Reason`, New: `_ = r`, Tests: "TestResumesDuringOnResumeAreReportedAsOne",
		},
		{
			Name: "client-updates-before-resume", Bug: "returns updates of the new node before OnResume has returned", File: "watch.go",
			Old: `if len(w.queue) == 0 || w.telling && w.err == nil {`, New: `if len(w.queue) == 0 {`, Tests: "TestResumesDuringOnResumeAreReportedAsOne",
		},
		{
			Name: "client-freshness-goes-back", Bug: "an older age replaces a newer one", File: "watch_arrive.go",
			Old: `at.After(w.freshAt)`, New: `!at.IsZero()`, Tests: "TestFreshnessMovesForwardOnly",
		},
		{
			Name: "client-freshness-of-partial", Bug: "progress in the middle of a revision counts as fresh", File: "watch_arrive.go",
			Old: `p.GetRevision() > 0 && w.asm.steady() {`, New: `p.GetRevision() > 0 {`, Tests: "TestFreshnessMovesForwardOnly",
		},
		{
			Name: "client-freshness-without-revision", Bug: "progress without a revision counts as fresh", File: "watch_arrive.go",
			Old: `p.GetRevision() > 0 && w.asm.steady() {`, New: `w.asm.steady() {`, Tests: "TestFreshnessMovesForwardOnly",
		},
		{
			Name: "client-freshness-over-resync", Bug: "another history counts as fresh as the last one", File: "watch_arrive.go",
			Old: `w.freshAt = time.Time{} // it may belong to another history`, New: `_ = time.Time{}`, Tests: "TestFreshnessMovesForwardOnly",
		},
		{
			Name: "client-progress-not-merged", Bug: "queues each progress separately", File: "watch_arrive.go",
			Old: `n > 0 && w.queue[n-1].Kind == KindProgress {`, New: `n < 0 {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-progress-replaces-events", Bug: "progress replaces the events before it", File: "watch_arrive.go",
			Old: `n > 0 && w.queue[n-1].Kind == KindProgress {`, New: `n > 0 {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-progress-unasked", Bug: "delivers progress to a program that did not request it", File: "watch_arrive.go",
			Old: `if !w.opts.progress {`, New: `if false {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-fragments-unbounded", Bug: "buffers fragments of a revision regardless of pending updates", File: "watch_arrive.go",
			Old: `len(w.queue) > 0 && w.bytes+w.asm.size > w.opts.buffer:`, New: `false:`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-big-revision-never-fits", Bug: "a revision that is larger than the buffer never arrives", File: "watch_arrive.go",
			Old: `w.asm.partial.Kind == KindBatch && len(w.queue) > 0 && w.bytes`, New: `w.asm.partial.Kind == KindBatch && w.bytes`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-paused-placed", Bug: "a paused watch resumes before there is room", File: "watch_move.go",
			Old: `w.on != nil || w.paused || w.timer`, New: `w.on != nil || w.timer`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-pause-not-told", Bug: "a node continues to send to a paused watch", File: "watch_arrive.go",
			Old: `w.detachLocked(outcome.ErrFull, true)`, New: `w.detachLocked(outcome.ErrFull, false)`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-ended-context-kept", Bug: "a context keeps references to ended watches", File: "watch.go",
			Old: "\tw.stop()\n\tw.c.mu.Lock()", New: "\tw.c.mu.Lock()", Tests: "TestAnEndedWatchReleasesItsResources",
		},
		{
			Name: "client-ended-at-once-kept", Bug: "a context keeps a reference to a watch that ended at once", File: "watch.go",
			Old: "\tif ended {\n\t\tstop()", New: "\tif false && ended {\n\t\tstop()", Tests: "TestAnEndedWatchReleasesItsResources",
		},
		{
			Name: "client-ended-waits-for-map", Bug: "counts an ended watch as waiting for the map", File: "watch.go",
			Old: "\tw.stopAwaitingLocked()\n", New: ``, Tests: "TestAnEndedWatchReleasesItsResources",
		},
		{
			Name: "client-map-of-others", Bug: "places a watch by a map of other ranges", File: "watch_move.go",
			Old: `t.Covers(w.asm.rng.keys()) && w.timer.Stop()`, New: `w.timer.Stop()`, Tests: "TestAWatchWaitsForTheMapOnce",
		},
		{
			Name: "client-waits-for-map-again", Bug: "a watch waits for the map before each attempt", File: "watch_move.go",
			Old: `if w.awaited || w.c.follower.Topology`, New: `if w.c.follower.Topology`, Tests: "TestAWatchWaitsForTheMapOnce",
		},
		{
			Name: "client-waits-for-known-map", Bug: "a watch of known shards waits for the map", File: "watch_move.go",
			Old: `if w.c.follower.Topology.Load().Covers(w.asm.rng.keys()) {`, New: `if false {`, Tests: "TestAWatchWaitsForTheMapOnce",
		},
		{
			Name: "client-foreign-node-starts", Bug: "a node of another cluster than the map's starts a watch", File: "watch_arrive.go",
			Old: `t != nil && t.ClusterID != c.GetClusterId() {`, New: `t != nil && false {`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-foreign-node-not-doubted", Bug: "does not follow the map on another node when a node contradicts it", File: "watch_arrive.go",
			Old: `w.c.follower.Doubt(t) // this`, New: `_ = t // the`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-regroup-moves-all", Bug: "a map of another cluster moves watches of that cluster", File: "watch_move.go",
			Old: `!w.asm.created || w.asm.there.cluster == cluster {`, New: `!w.asm.created {`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-regroup-moves-starting", Bug: "a map of another cluster moves watches that have not started", File: "watch_move.go",
			Old: `!w.asm.created || w.asm.there.cluster == cluster {`, New: `w.asm.there.cluster == cluster {`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-compacted-asks-again", Bug: "requests the history again from a node that lacks it", File: "watch_move.go",
			Old: `if _, asked := w.floors[addr]; asked {`, New: `if false {`, Tests: "TestCompactedHistoryIsRequestedFromEachNodeOnce",
		},
		{
			Name: "client-compacted-last-floor", Bug: "reports the floor of the last node", File: "watch_move.go",
			Old: `floor = min(floor, f)`, New: `_ = f`, Tests: "TestCompactedHistoryIsRequestedFromEachNodeOnce",
		},
		{
			Name: "client-compacted-at-one-node", Bug: "treats history as compacted if one node lacks it", File: "watch_move.go",
			Old: `if len(w.floors) < maxAsked {`, New: `if false {`, Tests: "TestCompactedHistoryIsRequestedFromEachNodeOnce",
		},
		{
			Name: "client-call-hang-not-blamed", Bug: "Call returns the error of a node that does not answer in time", File: "call.go",
			Old: `if err != nil && errors.Is(context.Cause(ctx), outcome.ErrSlow) {`, New: `if err != nil && errors.Is(nil, outcome.ErrSlow) {`, Tests: "TestCallLeavesANodeThatHangs",
		},
		{
			Name: "client-count-in-any-history", Bug: "a count at a position ignores its history", File: "count.go",
			Old: `if o.history != (history{}) || o.maxStaleness != 0 {`, New: `if o.maxStaleness != 0 {`, Tests: "TestCount",
		},
		{
			Name: "client-count-of-no-revision-yet", Bug: "a count at a future revision fails with a gRPC error", File: "count.go",
			Old: `case errors.Is(err, rpctypes.ErrGRPCFutureRev):`, New: `case false:`, Tests: "TestCount",
		},
		{
			Name: "client-oldest-is-zero", Bug: "an unknown oldest revision is printed as 0", File: "internal/outcome/errors.go",
			Old: `if e.Floor > 0 {`, New: `if true {`, Tests: "TestCount",
		},
		{
			Name: "client-newest-is-zero", Bug: "an unknown newest revision is printed as 0", File: "internal/outcome/errors.go",
			Old: `if e.Current == 0 {`, New: `if false {`, Tests: "TestCount",
		},
		{
			Name: "client-token-is-revision-1", Bug: "the error for an expired token names revision 1", File: "assembler.go",
			Old: `if !a.positioned {`, New: `if false {`, Tests: "TestATokenBelowTheFloorIsNoRevision",
		},
		{
			Name: "client-last-change-lost", Bug: "a mirror that ends drops its last change", Package: "client/mirror", File: "mirror/mirror.go",
			Old: `if m.View() != last {`, New: `if false {`, Tests: "TestTheLastChangeComesBeforeTheEnd",
		},
	}}
}

func adminGroup() Group {
	return Group{Package: "client/admin", Mutants: []Mutant{
		{
			Name: "admin-stale-map-raw", Bug: "a change for another version of the map fails with a raw gRPC error", File: "errors.go",
			Old: `case info.GetReason() == "STALE_MAP":`, New: `case false:`, Tests: "TestAStaleMapIsARefusal",
		},
		{
			Name: "admin-status-waits-too-long", Bug: "requests a status with a wait that nodes refuse", File: "status.go",
			Old: `wait = min(wait, maxStatusWait); wait > 0`, New: `wait > 0`, Tests: "TestStatusOfALargeCluster",
		},
		{
			Name: "admin-force-not-offered", Bug: "the error for a refusal does not mention that force overrides it", File: "errors.go",
			Old: `Force: meta["force"] == "true"}`, New: `Force: false}`, Tests: "TestRefusedChange",
		},
		{
			Name: "admin-node-lost-ends-the-wait", Bug: "the wait for a change ends with the node of its stream", File: "placement.go",
			Old: `case !retry && !errors.Is(err, io.EOF):`, New: `case true || retry:`, Tests: "TestFollowingAChange",
		},
	}}
}

func clientRetryGroup() Group {
	return Group{Package: "client/internal/retry", Mutants: []Mutant{
		{
			Name: "client-first-backoff-long", Bug: "waits too long after the second failure", File: "backoff.go",
			Old: `Base<<max(failures-2, 0)`, New: `Base<<max(failures, 0)`, Tests: "TestTheFirstBackoffsAreShort",
		},
		{
			Name: "client-failed-again-first", Bug: "treats a node that failed again as tried long ago", File: "penalty.go",
			Old: `append(slices.DeleteFunc(*t, func(a string) bool { return a == addr }), addr)`, New: `append(slices.DeleteFunc(*t, func(a string) bool { return false }), addr)`, Tests: "TestANodeThatFailsAgainIsTriedLast",
		},
	}}
}

func clientShardmapGroup() Group {
	return Group{Package: "client/internal/shardmap", Mutants: []Mutant{
		{
			Name: "zone-before-keys", Bug: "prefers nodes of its zone without any of the keys", File: "topology.go",
			Old: `p.Zone != "" && m.Zone == p.Zone && c.have > 0`, New: `p.Zone != "" && m.Zone == p.Zone`, Tests: "TestCandidatesOfAZone",
		},
		{
			Name: "zone-not-learned", Bug: "does not record the zones of nodes", File: "topology.go",
			Old: `Zone: m.GetZone(), `, New: ``, Tests: "TestMembersAreLearned",
		},
		{
			Name: "interest-cut-at-its-end", Bug: "does not extend an interest to the end of its last shard", File: "interest.go",
			Old: `r.End != "" && (end == "" || end > r.End)`, New: `r.End != "" && end > r.End`, Tests: "TestRangesOfInterest",
		},
		{
			Name: "dead-members-asked", Bug: "connects to dead members", File: "topology.go",
			Old: `m.Address == "" || m.Gone()`, New: `m.Address == ""`, Tests: "TestCandidates",
		},
		{
			Name: "draining-members-first", Bug: "prefers draining members", File: "topology.go",
			Old: `if m.Draining || m.State == pb.MemberState_MEMBER_STATE_SUSPECT {`, New: `if false {`, Tests: "TestCandidates",
		},
		{
			Name: "client-member-twice", Bug: "lists a changed member twice", File: "topology.go",
			Old: `stale[m.GetName()] = true`, New: `_ = m`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-suspect-not-last", Bug: "prefers suspect members", File: "topology.go",
			Old: `m.Draining || m.State == pb.MemberState_MEMBER_STATE_SUSPECT {`, New: `m.Draining {`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-left-asked", Bug: "connects to members that have left", File: "topology.go",
			Old: `m.State == pb.MemberState_MEMBER_STATE_DEAD || m.State == pb.MemberState_MEMBER_STATE_LEFT`, New: `m.State == pb.MemberState_MEMBER_STATE_DEAD`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-suspect-home", Bug: "moves watches back to a preferred member that is suspect", File: "topology.go",
			Old: `len(cs) > 0 && cs[0].worse == 0 {`, New: `len(cs) > 0 {`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-rebuilt-map-old", Bug: "treats the map of a rebuilt cluster as old", File: "topology.go",
			Old: `m == nil || m.GetClusterId() == next.ClusterID && m.GetVersion()`, New: `m == nil || m.GetVersion()`, Tests: "TestTheMapOfARebuiltClusterIsTaken",
		},
		{
			Name: "client-open-range-covered", Bug: "treats a range with an end as covering one without", File: "../keyrange/keyrange.go",
			Old: `r.End != "" && r.End <= ranges[i].End)`, New: `r.End <= ranges[i].End)`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
		{
			Name: "client-fresh-known", Bug: "treats ranges whose shards are still being requested as known", File: "interest.go",
			Old: `return slices.Contains(in.fresh, r) })`, New: `return false })`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
		{
			Name: "client-narrowed-knows-all", Bug: "treats a map without some shards as complete", File: "interest.go",
			Old: `next.all, next.known = false, slices`, New: `next.all, next.known = t.all, slices`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
	}}
}

func clientOutcomeGroup() Group {
	return Group{Package: "client/internal/outcome", Mutants: []Mutant{
		{
			Name: "foreign-is-a-restore", Bug: "reports a position of another cluster as one from before a restore", File: "judge.go",
			Old: `if foreign != "" {`, New: `if foreign == "x" {`, Tests: "TestJudge",
		},
	}}
}

func clientConnectGroup() Group {
	return Group{Package: "client/internal/connect", Mutants: []Mutant{
		{
			Name: "map-without-login", Bug: "follows the shard map without a token", File: "login.go",
			Old: `return method != etcdserverpb.Auth_Authenticate_FullMethodName &&`, New: `return !strings.Contains(method, "ClusterService") && method != etcdserverpb.Auth_Authenticate_FullMethodName &&`,
			Package: "client", Tests: "TestTheMapIsFollowedAsAUser",
		},
		{
			Name: "login-wait-is-final", Bug: "a write fails permanently while another call's login is slow", File: "login.go",
			Old: `context.WithTimeoutCause(ctx, timeout, outcome.ErrSlow)`, New: `context.WithTimeout(ctx, timeout)`, Tests: "TestAWaitForAnotherLoginIsTriedAgain",
		},
		{
			Name: "login-wait-blames-node", Bug: "blames a node for the login of another call", File: "login.go",
			Old: `if errors.Is(err, outcome.ErrSlow) {`, New: `if false {`, Tests: "TestAWaitForAnotherLoginIsTriedAgain",
		},
	}}
}

func clientNodesGroup() Group {
	return Group{Package: "client/internal/nodes", Mutants: []Mutant{
		{
			Name: "client-start-never-late", Bug: "waits forever for a node to start a watch", File: "stream.go",
			Old: `if now > p.until {`, New: `if now > p.until && false {`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-state-late", Bug: "leaves a node that prepares a state as early as any other", File: "stream.go",
			Old: `patience = stateTimeout`, New: `patience = startTimeout`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-closed-watch-late", Bug: "treats a closed watch as not started", File: "stream.go",
			Old: "delete(s.watches, id)\n\tdelete(s.pending, id)", New: `delete(s.watches, id)`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-started-watch-late", Bug: "treats a started watch as not started", File: "stream.go",
			Old: "\tdelete(s.pending, id)\n}", New: `}`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-progress-before-start", Bug: "applies the stream's progress to watches that have not started", File: "stream.go",
			Old: `if s.pending[id] == nil {`, New: `if true {`, Package: "client", Tests: "TestProgressAdvancesOnlyItsWatches",
		},
		{
			Name: "client-progress-for-all", Bug: "applies the progress of some watches to all watches of the stream", File: "stream.go",
			Old: `ids = p.GetWatchIds()`, New: `_ = p`, Package: "client", Tests: "TestProgressAdvancesOnlyItsWatches",
		},
		{
			Name: "client-progress-flood", Bug: "sends every progress request", File: "stream.go",
			Old: `>= 100*time.Millisecond {`, New: `>= 0 {`, Package: "client", Tests: "TestProgressIsAskedForTenTimesASecond",
		},
		{
			Name: "client-silent-node-trusted", Bug: "keeps a silent node as the first choice", File: "stream.go",
			Old: "if errors.Is(err, outcome.ErrSilent) {\n\t\ts.pool.Penalise(s.node.Addr, 0)\n", New: "if errors.Is(err, outcome.ErrSilent) {\n", Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-silent-connection-kept", Bug: "keeps the connection to a silent node", File: "stream.go",
			Old: "\t\ts.pool.Drop(s.node)\n", New: ``, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-broken-node-trusted", Bug: "keeps a node whose stream broke as the first choice", File: "stream.go",
			Old: `} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {`, New: `} else if errors.Is(err, outcome.ErrEnded) {`, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-ended-node-trusted", Bug: "keeps a node that ended the stream as the first choice", File: "stream.go",
			Old: `} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {`, New: `} else if v.Penalise {`, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-dead-stream-kept", Bug: "keeps an ended stream with its node", File: "stream.go",
			Old: "\ts.pool.leave(s)\n", New: ``, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-connections-pile-up", Bug: "keeps connections to removed nodes", File: "pool.go",
			Old: "\t\tp.Drop(n)\n\t}\n}", New: "\t\t_ = n\n\t}\n}", Tests: "TestConnectionsToFormerNodesAreClosed",
		},
		{
			Name: "client-watched-connection-closed", Bug: "closes connections that watches use", File: "pool.go",
			Old: `if !known[addr] && len(n.streams) == 0 {`, New: `if !known[addr] {`, Tests: "TestConnectionsToFormerNodesAreClosed",
		},
		{
			Name: "silent-map-waited-for", Bug: "waits forever for a node that never sends its map", File: "probe.go",
			Old: `if pulse.Ran()-began > p.cfg.Silence {`, New: `if pulse.Ran() < began {`, Package: "client", Tests: "TestANodeThatNeverSendsItsMapIsLeft",
		},
		{
			Name: "own-stall-leaves-the-map", Bug: "leaves the node of the map because the client itself was stopped", File: "probe.go",
			Old: `return false, !stalled`, New: `return false, true`, Tests: "TestAProbeDetectsASilentNode",
		},
		{
			Name: "probe-unsent-counts", Bug: "treats a probe that was not sent for lack of a token as proof that the node is alive", File: "probe.go",
			Old: "return false, false\n\tdefault", New: "return true, false\n\tdefault", Tests: "TestAProbeDetectsASilentNode",
		},
		{
			Name: "silent-stream-waited-for", Bug: "waits forever for the stream of a call at a silent node", File: "probe.go",
			Old: `p.Drop(c.node)`, New: `_ = c.node`, Package: "client/admin", Tests: "TestFollowingAChangeAtASilentNode",
		},
	}}
}

func clientMapfollowGroup() Group {
	return Group{Package: "client/internal/mapfollow", Mutants: []Mutant{
		{
			Name: "map-with-expired-token", Bug: "requests the shard map with an expired token forever", File: "follow.go",
			Old: `f.cfg.Connect.Renewed(v, began)`, New: `_ = v`, Package: "client", Tests: "TestTheMapIsFollowedAsAUser",
		},
		{
			Name: "client-doubts-another-map", Bug: "doubts a map that was never compared", File: "follow.go",
			Old: `f.Topology.Load() == t && unfollow != nil`, New: `unfollow != nil`, Tests: "TestOnlyTheComparedMapEndsItsStream",
		},
		{
			Name: "client-map-moves-none", Bug: "a map of another cluster moves no watch", File: "follow.go",
			Old: `old == nil || old.ClusterID != t.ClusterID`, New: `old == nil`, Tests: "TestAMapOfAnotherClusterMovesWatches",
		},
		{
			Name: "client-endpoint-closed", Bug: "closes connections to endpoints", File: "follow.go",
			Old: `known[e] = true`, New: `_ = e`, Tests: "TestMembersAndEndpointsAreKnown",
		},
		{
			Name: "client-dead-connection-kept", Bug: "keeps connections to dead members", File: "follow.go",
			Old: `if !m.Gone() {`, New: `if m.State != 4 {`, Tests: "TestMembersAndEndpointsAreKnown",
		},
	}}
}

func clientIndexGroup() Group {
	return Group{Package: "client/internal/index", Mutants: []Mutant{
		{
			Name: "index-keeps-old-terms", Bug: "an index finds keys by former terms", File: "index.go",
			Old: `if delete(x.keys[term], key); len`, New: `if len`, Tests: "TestTermsOfAKeyAreReplaced",
		},
	}}
}

func clientCallsGroup() Group {
	return Group{Package: "client/internal/calls", Mutants: []Mutant{
		{
			Name: "client-failing-node-not-blamed", Bug: "a read does not blame the node that fails", File: "calls.go",
			Old: `if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {`, New: `if false {`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-stall-blames-node", Bug: "blames a node for a stall of the program", File: "calls.go",
			Old: `if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {`, New: `if v.Penalise {`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-redirect-blames-node", Bug: "blames a node that redirects a read", File: "calls.go",
			Old: `if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {`, New: `if !a.cfg.Pulse.Stalled(a.began) {`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-redirect-ignored", Bug: "a read ignores a node's redirect", File: "calls.go",
			Old: `a.hints = v.Hints`, New: `_ = v.Hints`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-failed-first-again", Bug: "a read first tries the node that has failed again", File: "calls.go",
			Old: "\ta.tried.Add(a.addr)\n", New: ``, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-read-never-gives-up", Bug: "retries a read for longer than RetryFor", File: "calls.go",
			Old: `late := a.cfg.Pulse.Ran()+d > a.deadline; late && again`, New: `late := false; late && again`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-answer-does-not-forgive", Bug: "keeps a node that answers in the penalty box", File: "calls.go",
			Old: "\ta.cfg.Pool.Praise(a.addr)\n", New: ``, Tests: "TestAReadBlamesTheNodeThatFails",
		},
	}}
}
