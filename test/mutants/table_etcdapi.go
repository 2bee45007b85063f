package mutants

func etcdapiGroup() Group {
	return Group{Package: "internal/etcdapi", Mutants: []Mutant{
		{
			Name: "starts-too-late", Bug: "a watch of etcd's API from now on misses the next revision", File: "watch.go",
			Old: `return now + 1, now, nil`, New: `return now + 2, now, nil`, Tests: "TestWatchStart",
		},
		{
			Name: "gate-of-connections", Bug: "each connection of a client has its own turn", File: "watch.go",
			Old: `gate.Enter(w.s.holder.Name, func`, New: `gate.Enter(w.s.from.String(), func`, Tests: "TestAClientsConnectionsShareItsTurn",
		},
		{
			Name: "split-looked-at", Bug: "looks at all of a transaction that is refused for one operation", File: "pass_txn.go",
			Old: `for len(b) > 0 && !s.split {`, New: `for len(b) > 0 {`, Tests: "TestNothingIsLookedAtAfterASplitOperation",
		},
		{
			Name: "etcds-requests-free", Bug: "a large request that waits for etcd takes nothing of the budget", File: "pass.go",
			Old: `if size <= freeRequest {`, New: `if true {`, Tests: "TestRequestsThatWaitForEtcdAreBounded",
		},
		{
			Name: "etcds-answers-free", Bug: "an answer of etcd's that is passed on takes nothing of the budget", File: "pass_answers.go",
			Old: "	if size := int64(answer.Buffers.Len()); size > freeAnswer {", New: "	if size := int64(answer.Buffers.Len()); false {", Tests: "TestAnswersOfEtcdsAreBounded",
		},
		{
			Name: "etcds-answers-unbounded", Bug: "takes answers of any size from etcd before bytes are reserved", File: "pass_answers.go",
			Old: "grpc.MaxCallRecvMsgSize(int(limit))", New: "grpc.MaxCallRecvMsgSize(math.MaxInt32)", Tests: "TestAnswersOfEtcdsAreBounded",
		},
		{
			Name: "etcds-answers-kept", Bug: "holds the bytes of an answer that its client has read", File: "pass_answers.go",
			Old: "func (l *answerLease) Put(*[]byte) { l.held.release() }", New: "func (l *answerLease) Put(*[]byte) {}", Tests: "TestAnswersOfEtcdsAreBounded",
		},
		{
			Name: "etcds-writes-asked-twice", Bug: "puts a transaction that writes to etcd again when its answer is large", File: "pass_txn.go",
			Old: "		s.writes = true\n", New: "", Tests: "TestAnswersLargerThanTheBudget",
		},
		{
			Name: "lease-of-others", Bug: "attaches keys to leases of others", File: "policy.go",
			Old: `for lease := range o.leases {`, New: `for lease := range map[int64]struct{}{} {`,
			Tests: "TestALeaseOfAnothersKeysIsNotEnded", Package: "internal/node",
		},
		{
			Name: "call-without-token", Bug: "passes calls without a token on while etcd's authentication is on", File: "pass_auth.go",
			Old: `	_, err := d.cfg.Guard.Caller(ctx)
	return err`, New: `	return nil`, Tests: "TestNobodyIsServedByEtcdWithoutAName",
		},
		{
			Name: "split-operation-taken", Bug: "passes an operation in several parts on to etcd", File: "pass_txn.go",
			Old: `case s.split:`, New: `case false:`, Tests: "TestNestedTransactions",
		},
		{
			Name: "other-branch-forgotten", Bug: "forgets what the other branch of a transaction deletes", File: "pass_txn.go",
			Old: `return lower(success, failure)`, New: `return success`, Tests: "TestDeadlyTransactionsAreRefused",
		},
		{
			Name: "floor-itself-compacted", Bug: "ends a watch at just what etcd has compacted, when another one needs less", File: "past.go",
			Old: `wants < compacted.Floor || wants == x.from`, New: `wants <= compacted.Floor || wants == x.from`, Tests: "TestCompactedBeforeASharedRead",
		},
		{
			Name: "log-of-next-lineage", Bug: "sends a watch what was read of the next lineage's log", File: "past.go",
			Old: `d.cfg.Router.History().Lineage != x.key.lineage || overtaken(err)`, New: `overtaken(err)`, Tests: "TestALineageEndsDuringARead",
		},
		{
			Name: "left-window-from-the-start", Bug: "a watch that leaves the window is sent again what the window has brought", File: "watch.go",
			Old: `max(w.next, at+1), compacted.Floor`, New: `w.next, compacted.Floor`, Tests: "TestWatchSlowerThanTheWindow",
		},
		{
			Name: "unserved-ends-stream", Bug: "a watch of keys that are no longer served ends its stream", File: "watch.go",
			Old: `	case errors.As(err, new(*kv.NotServedError)):
		w.finish(w.unserved(err))
`, New: ``, Tests: "TestANarrowerPrefixEndsOnlyTheWatchesOutside",
		},
		{
			Name: "homeless-keeps-its-place", Bug: "a watch without a home keeps the place that others need", File: "watch.go",
			Old: `	if o.found && w.homeless(err) && time.Now().Before(o.until) {
		return false
	}`, New: `	for o.found && w.homeless(err) && time.Now().Before(o.until) {
		w.inner, err = w.lookForHome(o.from)
	}`, Tests: "TestAHomelessShardBlocksNoOtherWatch",
		},
		{
			Name: "replies-unbounded", Bug: "keeps any number of unread answers", File: "stream.go",
			Old: `if len(s.slots) <= freeReplies {`, New: `if true {`, Tests: "TestUnreadRepliesAreBounded",
		},
		{
			Name: "catch-up-behind-another-client", Bug: "a watch waits for the part of the log that another client has no memory for", File: "past.go",
			Old: `x.holder.Name != w.s.holder.Name && x.wait.Capped()`, New: `false`, Tests: "TestACatchUpDoesNotWaitForAnotherClient",
		},
		{
			Name: "lists-for-nobody", Bug: "lists count for no client", File: "range_chunks.go",
			Old: `if h.of[holder.Name] == 0 {`, New: `if false {`, Tests: "TestOneClientsListsLeaveRoom",
		},
		{
			Name: "shared-lists-count-again", Bug: "what the answers of a client share counts for each of them", File: "range_chunks.go",
			Old: `if h.of[holder.Name] == 0 {`, New: `if true {`, Tests: "TestOneClientsListsLeaveRoom",
		},
		{
			Name: "catch-up-not-shared", Bug: "reads etcd's log for each watch", File: "past.go",
			Old: `case x.state == partLoaded && w.next < x.next:`, New: `case x.state == partLoaded && w.next < x.next && len(p.parts) == 0:`, Tests: "TestCatchUpsShareWhatTheyRead",
		},
		{
			Name: "catch-up-kept", Bug: "holds what was read of etcd's log for ever", File: "past.go",
			Old: `keepPart = 3 * time.Second`, New: `keepPart = 1e6 * time.Second`, Tests: "TestCatchUpsShareWhatTheyRead",
		},
		{
			Name: "unserved-fetched-for-ever", Bug: "a watch of keys that are no longer served asks etcd's log for ever", File: "fetch.go",
			Old: `case errors.As(err, new(*kv.NotServedError)):`, New: `case false:`, Tests: "TestANarrowerPrefixEndsAWatchThatCatchesUp",
		},
		{
			Name: "progress-below-sent", Bug: "answers a progress request below an event that was sent", File: "progress.go",
			Old: `max(wanted, p.hold, p.s.sent)`, New: `max(wanted, p.hold)`, Tests: "TestProgressAnswerIsNotBelowAnEventThatOvertookIt",
		},
		{
			Name: "progress-below-notified", Bug: "answers a progress request below a notification that was sent", File: "progress.go",
			Old: `p.s.sent = max(p.s.sent, at)`, New: `_ = at`, Tests: "TestProgressAnswerIsNotBelowANotification",
		},
		{
			Name: "progress-for-the-future", Bug: "answers a progress request for a watch that begins in the future", File: "progress.go",
			Old: `never || w.start > wanted ||`, New: `never ||`, Tests: "TestProgressIsNotAnsweredForAWatchInTheFuture",
		},
		{
			Name: "notified-before-start", Bug: "notifies a watch of progress before its first revision", File: "progress.go",
			Old: `at >= w.start &&`, New: ``, Tests: "TestWatchProgressNotify",
		},
		{
			Name: "cancelled-counts", Bug: "a cancelled watch counts against its caller", File: "stream.go",
			Old: "\ts.mu.Unlock()\n\taccess.CloseWatch(s.door.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\ts.mu.Unlock()\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller",
		},
		{
			Name: "refused-counts", Bug: "a refused watch counts against its caller", File: "stream.go",
			Old: "\t\tif !listed {", New: "\t\tif false && !listed {", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller",
		},
		{
			Name: "ended-counts", Bug: "a watch that the server ended counts against its caller", File: "stream.go",
			Old: "\tdelete(s.watches, w.id)\n\taccess.CloseWatch(s.door.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\tdelete(s.watches, w.id)\n", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller",
		},
		{
			Name: "left-counts", Bug: "the watches of a stream that was left count against their caller", File: "stream.go",
			Old: "\tfor _, w := range s.watches {\n\t\taccess.CloseWatch(s.door.cfg.Budget, s.holder, s.caller, w.rng)\n\t}\n", New: "", Tests: "TestWatchesThatHaveEndedMakeRoomForTheirCaller",
		},
	}}
}
