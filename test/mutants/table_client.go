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
			return fmt`, Tests: "TestSyncSaysWhyAMirrorIsNotReady",
		},
		{
			Name: "follow-skips-a-failed-update", Bug: "an update that was not applied is not passed again", Package: "client/follow", File: "follow/follow.go",
			Old: `return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)`, New: `s.at = u.Position()
				return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)`, Tests: "TestRunPassesAFailedUpdateAgain",
		},
		{
			Name: "follow-saves-each-progress", Bug: "the position of a quiet range is saved with every progress", Package: "client/follow", File: "follow/follow.go",
			Old: `wait = saveIdle`, New: `wait = 0`, Tests: "TestPositionsAreSavedInTime",
		},
		{
			Name: "position-file-of-any-range", Bug: "a position file is taken for another range", Package: "client/follow", File: "follow/file.go",
			Old: `case in.Range != r.String():`, New: `case false:`, Tests: "TestFileOfAnotherRange",
		},
		{
			Name: "typed-shows-bad-values", Bug: "a value that cannot be decoded takes the place of the last good one", Package: "client/mirror", File: "mirror/typed.go",
			Old: `case err == nil:
			all`, New: `case err == nil || m.values[key] != nil:
			all`, Tests: "TestTypedMirrorKeepsTheLastGoodValue",
		},
		{
			Name: "typed-keeps-deleted-values", Bug: "the value of a deleted key stays", Package: "client/mirror", File: "mirror/typed.go",
			Old: `delete(m.values, r.key)`, New: `m.values[r.key] = r.before`, Tests: "TestTypedMirrorKeepsTheLastGoodValue",
		},
		{
			Name: "cluster-is-a-lineage", Bug: "reports a watch's position of another cluster as one before a restore", File: "position.go",
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
			Name: "unconfirmed-write-unobserved", Bug: "a write that is not confirmed is not observed", File: "internal/calls/write.go",
			Old: `				a.Observe(err)
				return c.unknown`, New: `				return c.unknown`, Tests: "TestObserver",
		},
		{
			Name: "resume-unobserved", Bug: "resumes are not observed", File: "watch_arrive.go",
			Old: `w.observeLocked(func() { f(rng, r) })`, New: `_, _ = rng, f`, Tests: "TestObserver",
		},
		{
			Name: "txn-without-conditions", Bug: "a transaction forgets its conditions", File: "txn.go",
			Old: `ModRevision: i.ModRevision},
		})`, New: `ModRevision: i.ModRevision},
		})
		request.Compare = nil`, Tests: "TestTxnChangesAllOrNothing",
		},
		{
			Name: "txn-names-the-first", Bug: "names a condition that is true as the conflict", File: "txn.go",
			Old: `if i < len(conditions) && current != conditions[i].ModRevision {`, New: `if i < len(conditions) {`, Tests: "TestTxnChangesAllOrNothing",
		},
		{
			Name: "silent-list-waited-for", Bug: "waits for ever for a node that falls silent in a list", File: "list.go",
			Old: `				}
			}
		}
		patience.Reset(l.c.cfg.AttemptTimeout)`, New: `				}
			}
		}`, Tests: "TestAListLeavesANodeThatFallsSilent",
		},
		{
			Name: "get-of-another-history", Bug: "Get takes an answer of another history than was asked for", File: "get.go",
			Old: `if !o.history.fits(out.Position().history()) {`, New: `if false {`, Tests: "TestAnswersOfAnotherHistoryAreRefused",
		},
		{
			Name: "list-of-two-revisions", Bug: "a list goes on at another revision", File: "list.go",
			Old: `case at != l.at:`, New: `case false:`, Tests: "TestAnswersOfAnotherHistoryAreRefused",
		},
		{
			Name: "list-resumes-in-any-history", Bug: "a list that broke goes on in any history", File: "list.go",
			Old: `req.ClusterId, req.Lineage = l.at.Cluster, l.at.Lineage`, New: `_ = l.at`, Tests: "TestAListGoesOnWhereItBroke",
		},
		{
			Name: "limited-list-skips", Bug: "a page that broke begins behind its last key with another token", File: "list.go",
			Old: `if l.last != "" && l.o.limit == 0 {`, New: `if l.last != "" {`, Tests: "TestAListGoesOnWhereItBroke",
		},
		{
			Name: "list-resumes-past-its-end", Bug: "a list that broke after its last key asks for an empty range", File: "list.go",
			Old: `r.Start = l.last`, New: `r.Start = l.last + "\x00"`, Tests: "TestAListMayBreakAfterItsLastKey",
		},
		{
			Name: "get-of-any-age", Bug: "Get does not pass on how old its answer may be", File: "get.go",
			Old: `if o.maxStaleness > 0 {`, New: `if false {`, Tests: "TestReadsAskForWhatTheProgramWants",
		},
		{
			Name: "serializable-reads-linearizable", Bug: "asks etcd for reads that need not", File: "get.go",
			Old: `case o.serializable:`, New: `case false:`, Tests: "TestReadsAskForWhatTheProgramWants",
		},
		{
			Name: "token-of-unread", Bug: "a token counts updates that the program has not read", File: "watch.go",
			Old: `if len(w.queue) == 0 && w.asm.positioned {`, New: `if w.asm.positioned {`, Tests: "TestAProgramsPositionIsWhatItHasTaken",
		},
		{
			Name: "client-answer-of-former-place", Bug: "takes answers of the node that a watch has left", File: "watch_arrive.go",
			Old: `if w.on != s || w.id != id {`, New: `if false {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-answer-of-another-id", Bug: "takes answers to another attempt on the same stream", File: "watch_arrive.go",
			Old: `if w.on != s || w.id != id {`, New: `if w.on != s {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-lost-twice", Bug: "a loss that becomes known twice moves a watch twice", File: "watch_move.go",
			Old: `if w.on != s || w.id != id {`, New: `if w.on == nil {`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-drain-not-avoided", Bug: "a draining node stays the first choice", File: "watch_move.go",
			Old: `w.c.pool.Penalise(w.on.Addr(), drainPenalty)`, New: `_ = drainPenalty`, Tests: "TestADrainingNodeIsAvoidedForAWhile",
		},
		{
			Name: "client-drain-avoided-briefly", Bug: "a draining node is avoided for the first penalty only", File: "watch_move.go",
			Old: `w.c.pool.Penalise(w.on.Addr(), drainPenalty)`, New: `w.c.pool.Penalise(w.on.Addr(), 0)`, Tests: "TestADrainingNodeIsAvoidedForAWhile",
		},
		{
			Name: "client-hints-of-ended-ignored", Bug: "does not ask the nodes that the last node named", File: "watch_move.go",
			Old: "\tw.hints = hints\n", New: "\t_ = hints\n", Tests: "TestAWatchGoesWhereItsNodeSendsIt",
		},
		{
			Name: "client-delay-of-ended-ignored", Bug: "comes back at once although the node asked for a delay", File: "watch_move.go",
			Old: "\tw.hints = hints\n\tw.retryLocked(e.GetRetryAfter().AsDuration(), 0)", New: "\tw.hints = hints\n\tw.retryLocked(0, 0)", Tests: "TestAWatchGoesWhereItsNodeSendsIt",
		},
		{
			Name: "client-restore-asks-elsewhere", Bug: "asks a node that may not know the new history", File: "watch_move.go",
			Old: "w.tried, w.hints = nil, []string{addr}\n\t\t\tw.retryLocked(e.", New: "w.hints = nil\n\t\t\tw.retryLocked(e.", Tests: "TestARunningWatchAsksItsNodeForTheNewHistory",
		},
		{
			Name: "client-backoff-never-reset", Bug: "failures of long ago delay a watch", File: "watch_move.go",
			Old: `if w.asm.created && time.Since(w.since) > retry.Settled {`, New: `if false {`, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce",
		},
		{
			Name: "client-backoff-reset-by-start", Bug: "a watch that its nodes lose at once never waits", File: "watch_move.go",
			Old: `if w.asm.created && time.Since(w.since) > retry.Settled {`, New: `if w.asm.created {`, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce",
		},
		{
			Name: "client-keeps-unit-in-part", Bug: "a watch that has ended keeps up to 1 GiB of a unit", File: "watch_move.go",
			Old: `w.asm.partial, w.asm.size = Update{}, 0`, New: `_ = tell`, Tests: "TestAUnitInPartIsDroppedWithItsNode",
		},
		{
			Name: "client-left-node-first", Bug: "a watch goes back to the node that it has just left", File: "watch_move.go",
			Old: "\tw.tried.Add(w.on.Addr())\n", New: ``, Tests: "TestAWatchThatRanForAWhileIsPlacedAtOnce|TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-taken-counts", Bug: "updates that the program has taken count as waiting", File: "watch.go",
			Old: `w.bytes -= u.size()`, New: `_ = u.size()`, Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-close-keeps-updates", Bug: "a closed watch holds what the program has not taken", File: "watch.go",
			Old: `w.queue, w.bytes = nil, 0`, New: `_ = 0`, Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-end-drops-updates", Bug: "a watch that ends drops what the program has not taken", File: "watch.go",
			Old: "if errors.Is(err, ErrClosed) {\n\t\tw.queue", New: "if true {\n\t\tw.queue", Tests: "TestUpdatesWaitUntilTheyAreTaken",
		},
		{
			Name: "client-reason-of-detour", Bug: "OnResume names the failure of a node that never served the watch", File: "watch_move.go",
			Old: `if w.reason == nil {`, New: `if true {`, Tests: "TestOnResumeNamesTheReasonWhyTheWatchMoved",
		},
		{
			Name: "client-last-error-stays", Bug: "a watch that is served reports the last failure", File: "watch_arrive.go",
			Old: `w.nodeName, w.reason, w.lastErr = name, nil, nil`, New: `w.nodeName, w.reason = name, nil`, Tests: "TestOnResumeNamesTheReasonWhyTheWatchMoved",
		},
		{
			Name: "client-attached-early", Bug: "a watch counts as attached before its node has started it", File: "watch.go",
			Old: `Attached: w.on != nil && w.asm.created`, New: `Attached: w.on != nil`, Tests: "TestAMovedWatchIgnoresItsFormerPlace",
		},
		{
			Name: "client-resumes-not-merged", Bug: "of resumes during OnResume the first is told", File: "watch_arrive.go",
			Old: `w.untold.To, w.untold.Reason = r.To, r.Reason`, New: `_ = r`, Tests: "TestResumesDuringOnResumeAreToldAsOne",
		},
		{
			Name: "client-updates-before-resume", Bug: "updates of the new node are returned before OnResume has", File: "watch.go",
			Old: `if len(w.queue) == 0 || w.telling && w.err == nil {`, New: `if len(w.queue) == 0 {`, Tests: "TestResumesDuringOnResumeAreToldAsOne",
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
			Name: "client-progress-not-merged", Bug: "each progress waits by itself", File: "watch_arrive.go",
			Old: `n > 0 && w.queue[n-1].Kind == KindProgress {`, New: `n < 0 {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-progress-replaces-events", Bug: "progress replaces the events before it", File: "watch_arrive.go",
			Old: `n > 0 && w.queue[n-1].Kind == KindProgress {`, New: `n > 0 {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-progress-unasked", Bug: "a program is given progress that it did not ask for", File: "watch_arrive.go",
			Old: `if !w.opts.progress {`, New: `if false {`, Tests: "TestProgressThatWaitsIsMerged",
		},
		{
			Name: "client-fragments-unbounded", Bug: "fragments of a revision are held whatever waits", File: "watch_arrive.go",
			Old: `len(w.queue) > 0 && w.bytes+w.asm.size > w.opts.buffer:`, New: `false:`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-big-revision-never-fits", Bug: "a revision that is bigger than the buffer never arrives", File: "watch_arrive.go",
			Old: `w.asm.partial.Kind == KindBatch && len(w.queue) > 0 && w.bytes`, New: `w.asm.partial.Kind == KindBatch && w.bytes`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-paused-placed", Bug: "a watch comes back before there is room", File: "watch_move.go",
			Old: `w.on != nil || w.paused || w.timer`, New: `w.on != nil || w.timer`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-pause-not-told", Bug: "a node goes on sending to a watch that has left", File: "watch_arrive.go",
			Old: `w.detachLocked(outcome.ErrFull, true)`, New: `w.detachLocked(outcome.ErrFull, false)`, Tests: "TestARevisionThatDoesNotFitWaitsAtTheNode",
		},
		{
			Name: "client-ended-context-kept", Bug: "a context refers to watches that have ended", File: "watch.go",
			Old: "\tw.stop()\n\tw.c.mu.Lock()", New: "\tw.c.mu.Lock()", Tests: "TestAnEndedWatchLeavesNothingBehind",
		},
		{
			Name: "client-ended-at-once-kept", Bug: "a context refers to a watch that ended at once", File: "watch.go",
			Old: "\tif ended {\n\t\tstop()", New: "\tif false && ended {\n\t\tstop()", Tests: "TestAnEndedWatchLeavesNothingBehind",
		},
		{
			Name: "client-ended-waits-for-map", Bug: "a watch that has ended counts as waiting for the map", File: "watch.go",
			Old: "\tw.stopAwaitingLocked()\n", New: ``, Tests: "TestAnEndedWatchLeavesNothingBehind",
		},
		{
			Name: "client-map-of-others", Bug: "a map of other ranges places a watch", File: "watch_move.go",
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
			Name: "client-foreign-node-not-doubted", Bug: "the map is not followed elsewhere when a node contradicts it", File: "watch_arrive.go",
			Old: `w.c.follower.Doubt(t) // this`, New: `_ = t // the`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-regroup-moves-all", Bug: "a map of another cluster moves watches that are in it", File: "watch_move.go",
			Old: `!w.asm.created || w.asm.there.cluster == cluster {`, New: `!w.asm.created {`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-regroup-moves-starting", Bug: "a map of another cluster moves watches that have not started", File: "watch_move.go",
			Old: `!w.asm.created || w.asm.there.cluster == cluster {`, New: `w.asm.there.cluster == cluster {`, Tests: "TestWatchesFollowTheClusterOfTheMap",
		},
		{
			Name: "client-compacted-asks-again", Bug: "a node that lacks the history is asked for it again", File: "watch_move.go",
			Old: `if _, asked := w.floors[addr]; asked {`, New: `if false {`, Tests: "TestHistoryThatIsGoneEverywhereIsAskedOfEachNodeOnce",
		},
		{
			Name: "client-compacted-last-floor", Bug: "reports the floor of the last node", File: "watch_move.go",
			Old: `floor = min(floor, f)`, New: `_ = f`, Tests: "TestHistoryThatIsGoneEverywhereIsAskedOfEachNodeOnce",
		},
		{
			Name: "client-compacted-at-one-node", Bug: "history that one node lacks counts as gone", File: "watch_move.go",
			Old: `if len(w.floors) < maxAsked {`, New: `if false {`, Tests: "TestHistoryThatIsGoneEverywhereIsAskedOfEachNodeOnce",
		},
		{
			Name: "client-call-hang-not-blamed", Bug: "Call ends with the error of a node that does not answer in time", File: "call.go",
			Old: `if err != nil && errors.Is(context.Cause(ctx), outcome.ErrSlow) {`, New: `if err != nil && errors.Is(nil, outcome.ErrSlow) {`, Tests: "TestCallLeavesANodeThatHangs",
		},
		{
			Name: "client-count-in-any-history", Bug: "a count at a position does not look at its history", File: "count.go",
			Old: `if o.history != (history{}) || o.maxStaleness != 0 {`, New: `if o.maxStaleness != 0 {`, Tests: "TestCount",
		},
		{
			Name: "client-count-of-no-revision-yet", Bug: "a count at a future revision fails with an error of gRPC", File: "count.go",
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
			Name: "client-token-is-revision-1", Bug: "the error of a token that is too old names revision 1", File: "assembler.go",
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
			Name: "admin-status-waits-too-long", Bug: "a status is asked for with a wait that nodes refuse", File: "status.go",
			Old: `wait = min(wait, maxStatusWait); wait > 0`, New: `wait > 0`, Tests: "TestStatusOfALargeCluster",
		},
		{
			Name: "admin-force-not-offered", Bug: "a refusal does not say that force overrides it", File: "errors.go",
			Old: `Force: meta["force"] == "true"}`, New: `Force: false}`, Tests: "TestRefusedChange",
		},
		{
			Name: "admin-node-lost-ends-the-wait", Bug: "the wait for a change ends with the node that it was followed at", File: "placement.go",
			Old: `case !retry && !errors.Is(err, io.EOF):`, New: `case true || retry:`, Tests: "TestFollowingAChange",
		},
	}}
}

func clientRetryGroup() Group {
	return Group{Package: "client/internal/retry", Mutants: []Mutant{
		{
			Name: "client-first-backoff-long", Bug: "waits long after the second failure", File: "backoff.go",
			Old: `Base<<max(failures-2, 0)`, New: `Base<<max(failures, 0)`, Tests: "TestTheFirstBackoffsAreShort",
		},
		{
			Name: "client-failed-again-first", Bug: "a node that failed again counts as tried long ago", File: "penalty.go",
			Old: `append(slices.DeleteFunc(*t, func(a string) bool { return a == addr }), addr)`, New: `append(slices.DeleteFunc(*t, func(a string) bool { return false }), addr)`, Tests: "TestANodeThatFailsAgainIsTriedLast",
		},
	}}
}

func clientShardmapGroup() Group {
	return Group{Package: "client/internal/shardmap", Mutants: []Mutant{
		{
			Name: "zone-before-keys", Bug: "prefers nodes of its zone that have none of the keys", File: "topology.go",
			Old: `p.Zone != "" && m.Zone == p.Zone && c.have > 0`, New: `p.Zone != "" && m.Zone == p.Zone`, Tests: "TestCandidatesOfAZone",
		},
		{
			Name: "zone-not-learned", Bug: "does not learn the zones of nodes", File: "topology.go",
			Old: `Zone: m.GetZone(), `, New: ``, Tests: "TestMembersAreLearned",
		},
		{
			Name: "interest-cut-at-its-end", Bug: "an interest is not widened to the end of its last shard", File: "interest.go",
			Old: `r.End != "" && (end == "" || end > r.End)`, New: `r.End != "" && end > r.End`, Tests: "TestRangesOfInterest",
		},
		{
			Name: "dead-members-asked", Bug: "asks members that are dead", File: "topology.go",
			Old: `m.Address == "" || m.Gone()`, New: `m.Address == ""`, Tests: "TestCandidates",
		},
		{
			Name: "draining-members-first", Bug: "prefers members that drain", File: "topology.go",
			Old: `if m.Draining || m.State == pb.MemberState_MEMBER_STATE_SUSPECT {`, New: `if false {`, Tests: "TestCandidates",
		},
		{
			Name: "client-member-twice", Bug: "a member that changes is known twice", File: "topology.go",
			Old: `stale[m.GetName()] = true`, New: `_ = m`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-suspect-not-last", Bug: "prefers members that are suspect", File: "topology.go",
			Old: `m.Draining || m.State == pb.MemberState_MEMBER_STATE_SUSPECT {`, New: `m.Draining {`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-left-asked", Bug: "asks members that have left", File: "topology.go",
			Old: `m.State == pb.MemberState_MEMBER_STATE_DEAD || m.State == pb.MemberState_MEMBER_STATE_LEFT`, New: `m.State == pb.MemberState_MEMBER_STATE_DEAD`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-suspect-home", Bug: "watches move home to a suspect member", File: "topology.go",
			Old: `len(cs) > 0 && cs[0].worse == 0 {`, New: `len(cs) > 0 {`, Tests: "TestChangedMembersAreReplaced",
		},
		{
			Name: "client-rebuilt-map-old", Bug: "the map of a rebuilt cluster counts as old", File: "topology.go",
			Old: `m == nil || m.GetClusterId() == next.ClusterID && m.GetVersion()`, New: `m == nil || m.GetVersion()`, Tests: "TestTheMapOfARebuiltClusterIsTaken",
		},
		{
			Name: "client-open-range-covered", Bug: "a range with an end covers one without", File: "../keyrange/keyrange.go",
			Old: `r.End != "" && r.End <= ranges[i].End)`, New: `r.End <= ranges[i].End)`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
		{
			Name: "client-fresh-known", Bug: "ranges whose shards are asked for count as known", File: "interest.go",
			Old: `return slices.Contains(in.fresh, r) })`, New: `return false })`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
		{
			Name: "client-narrowed-knows-all", Bug: "a map without some shards counts as whole", File: "interest.go",
			Old: `next.all, next.known = false, slices`, New: `next.all, next.known = t.all, slices`, Tests: "TestARangeWithAnEndDoesNotCoverAnOpenOne",
		},
	}}
}

func clientOutcomeGroup() Group {
	return Group{Package: "client/internal/outcome", Mutants: []Mutant{
		{
			Name: "foreign-is-a-restore", Bug: "reports the position of another cluster as one before a restore", File: "judge.go",
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
			Name: "login-wait-is-final", Bug: "a write fails for good while another call's login is slow", File: "login.go",
			Old: `context.WithTimeoutCause(ctx, timeout, outcome.ErrSlow)`, New: `context.WithTimeout(ctx, timeout)`, Tests: "TestAWaitForAnotherLoginIsTriedAgain",
		},
		{
			Name: "login-wait-blames-node", Bug: "a node is blamed for the login of another call", File: "login.go",
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
			Name: "client-state-late", Bug: "gives up a node that prepares a state as soon as any other", File: "stream.go",
			Old: `patience = stateTimeout`, New: `patience = startTimeout`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-closed-watch-late", Bug: "a watch that was closed counts as not started", File: "stream.go",
			Old: "delete(s.watches, id)\n\tdelete(s.pending, id)", New: `delete(s.watches, id)`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-started-watch-late", Bug: "a watch that has started counts as not started", File: "stream.go",
			Old: "\tdelete(s.pending, id)\n}", New: `}`, Tests: "TestAWatchThatANodeDoesNotStartIsLate",
		},
		{
			Name: "client-progress-before-start", Bug: "progress of the stream reaches watches that have not started", File: "stream.go",
			Old: `if s.pending[id] == nil {`, New: `if true {`, Package: "client", Tests: "TestProgressIsForTheWatchesThatItIsAbout",
		},
		{
			Name: "client-progress-for-all", Bug: "progress of some watches moves all watches of the stream", File: "stream.go",
			Old: `ids = p.GetWatchIds()`, New: `_ = p`, Package: "client", Tests: "TestProgressIsForTheWatchesThatItIsAbout",
		},
		{
			Name: "client-progress-flood", Bug: "each request for progress is sent", File: "stream.go",
			Old: `>= 100*time.Millisecond {`, New: `>= 0 {`, Package: "client", Tests: "TestProgressIsAskedForTenTimesASecond",
		},
		{
			Name: "client-silent-node-trusted", Bug: "a silent node stays the first choice", File: "stream.go",
			Old: "if errors.Is(err, outcome.ErrSilent) {\n\t\ts.pool.Penalise(s.node.Addr, 0)\n", New: "if errors.Is(err, outcome.ErrSilent) {\n", Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-silent-connection-kept", Bug: "keeps the connection to a silent node", File: "stream.go",
			Old: "\t\ts.pool.Drop(s.node)\n", New: ``, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-broken-node-trusted", Bug: "a node whose stream broke stays the first choice", File: "stream.go",
			Old: `} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {`, New: `} else if errors.Is(err, outcome.ErrEnded) {`, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-ended-node-trusted", Bug: "a node that ended the stream stays the first choice", File: "stream.go",
			Old: `} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {`, New: `} else if v.Penalise {`, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-dead-stream-kept", Bug: "a stream that ended stays with its node", File: "stream.go",
			Old: "\ts.pool.leave(s)\n", New: ``, Tests: "TestANodeWhoseStreamBreaksIsAvoided",
		},
		{
			Name: "client-connections-pile-up", Bug: "keeps connections to nodes that are gone", File: "pool.go",
			Old: "\t\tp.Drop(n)\n\t}\n}", New: "\t\t_ = n\n\t}\n}", Tests: "TestConnectionsToFormerNodesAreClosed",
		},
		{
			Name: "client-watched-connection-closed", Bug: "closes connections that watches use", File: "pool.go",
			Old: `if !known[addr] && len(n.streams) == 0 {`, New: `if !known[addr] {`, Tests: "TestConnectionsToFormerNodesAreClosed",
		},
		{
			Name: "silent-map-waited-for", Bug: "waits for ever for a node that never sends its map", File: "probe.go",
			Old: `if pulse.Ran()-began > p.cfg.Silence {`, New: `if pulse.Ran() < began {`, Package: "client", Tests: "TestANodeThatNeverSendsItsMapIsLeft",
		},
		{
			Name: "own-stall-leaves-the-map", Bug: "leaves the node of the map because the client itself stood still", File: "probe.go",
			Old: `return false, !stalled`, New: `return false, true`, Tests: "TestAProbeShowsWhoIsSilent",
		},
		{
			Name: "probe-unsent-counts", Bug: "a probe that was not sent for want of a token shows that the node is there", File: "probe.go",
			Old: "return false, false\n\tdefault", New: "return true, false\n\tdefault", Tests: "TestAProbeShowsWhoIsSilent",
		},
		{
			Name: "silent-stream-waited-for", Bug: "waits for ever for the stream of a call at a silent node", File: "probe.go",
			Old: `p.Drop(c.node)`, New: `_ = c.node`, Package: "client/admin", Tests: "TestFollowingAChangeAtASilentNode",
		},
	}}
}

func clientMapfollowGroup() Group {
	return Group{Package: "client/internal/mapfollow", Mutants: []Mutant{
		{
			Name: "map-with-expired-token", Bug: "asks for the shard map with an expired token for ever", File: "follow.go",
			Old: `f.cfg.Connect.Renewed(v, began)`, New: `_ = v`, Package: "client", Tests: "TestTheMapIsFollowedAsAUser",
		},
		{
			Name: "client-doubts-another-map", Bug: "a map that was never compared is doubted", File: "follow.go",
			Old: `f.Topology.Load() == t && unfollow != nil`, New: `unfollow != nil`, Tests: "TestOnlyTheComparedMapIsDoubted",
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
			Name: "index-keeps-old-terms", Bug: "an index finds keys by terms that they had", File: "index.go",
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
			Name: "client-stall-blames-node", Bug: "a node is blamed for the time in which the program stood still", File: "calls.go",
			Old: `if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {`, New: `if v.Penalise {`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-redirect-blames-node", Bug: "a node that sends a read elsewhere is blamed", File: "calls.go",
			Old: `if v.Penalise && !a.cfg.Pulse.Stalled(a.began) {`, New: `if !a.cfg.Pulse.Stalled(a.began) {`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-redirect-ignored", Bug: "a read does not go where a node sends it", File: "calls.go",
			Old: `a.hints = v.Hints`, New: `_ = v.Hints`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-failed-first-again", Bug: "a read tries the node that has failed again", File: "calls.go",
			Old: "\ta.tried.Add(a.addr)\n", New: ``, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-read-never-gives-up", Bug: "a read is tried for longer than RetryFor", File: "calls.go",
			Old: `late := a.cfg.Pulse.Ran()+d > a.deadline; late && again`, New: `late := false; late && again`, Tests: "TestAReadBlamesTheNodeThatFails",
		},
		{
			Name: "client-answer-does-not-forgive", Bug: "a node that answers stays in the penalty box", File: "calls.go",
			Old: "\ta.cfg.Pool.Praise(a.addr)\n", New: ``, Tests: "TestAReadBlamesTheNodeThatFails",
		},
	}}
}
