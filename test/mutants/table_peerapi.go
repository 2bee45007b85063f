package mutants

func peerapiGroup() Group {
	return Group{Package: "internal/data/peerapi", Mutants: []Mutant{
		{
			Name: "watcher-outlives-broken-stream", Bug: "keeps the watcher of a stream that breaks while it sends the state", File: "follow.go",
			Old: `	defer func() {
		if f.watcher != nil { // begin opens it, and may fail afterwards
			f.watcher.Close()
		}
	}()
	if err := f.begin(ctx); err != nil {
		return err
	}
`, New: `	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.watcher.Close()
`, Tests: "TestAStreamThatEndsEarlyLeavesNoWatcher",
		},
		{
			Name: "held-back-all-streams", Bug: "counts streams without delayed events as delayed", File: "service.go",
			Old: "n, deferred := f.watcher.Deferred(); deferred {", New: "n, _ := f.watcher.Deferred(); true {", Tests: "TestIdleStreamsAreSentLater",
		},
		{
			Name: "follower-not-told-the-age", Bug: "does not send the age of a shard's data", File: "follow.go",
			Old: `begin.Age = durationpb.New(age)`, New: `_, _ = age, durationpb.New`, Tests: "TestAFollowerReceivesTheAge",
		},
		{
			Name: "report-without-events", Bug: "reports progress without the events that it includes", File: "pair.go",
			Old: `int64(progress-since)`, New: `int64(progress-since+since)`, Tests: "TestOneAnswerForAllShardsOfAPair",
		},
		{
			Name: "report-of-brought-events", Bug: "reports progress that the stream sends with the events", File: "pair.go",
			Old: `if known {`, New: `if known && false {`, Tests: "TestOneAnswerForAllShardsOfAPair",
		},
		{
			Name: "first-report-left-out", Bug: "does not report the progress of a newly followed shard", File: "pair.go",
			Old: `f.told > 0 && progress == since`, New: `progress == since`, Tests: "TestStreamsComeAndGo|TestPingsBringProgress",
		},
		{
			Name: "report-again", Bug: "reports shards without progress", File: "pair.go",
			Old: `if progress == f.told {`, New: `if false {`, Tests: "TestPingsBringProgress",
		},
		{
			Name: "answer-waits-for-ever", Bug: "a shard that does not reach a revision delays the report of the others", File: "pair.go",
			Old: "\t\t\tp.giveUp()\n", New: ``, Tests: "TestALateShardIsReportedLater",
		},
		{
			Name: "late-shard-left-out", Bug: "does not report a shard that reaches a revision late", File: "pair.go",
			Old: `p.missing, p.late, p.due = 0, p.missing+p.late, true`, New: `p.missing, p.late, p.due = 0, p.missing+p.late+9, true`, Tests: "TestLateShardsAreReportedTogether",
		},
		{
			Name: "answer-in-pieces", Bug: "reports each shard that has reached a revision separately", File: "pair.go",
			Old: `if *left--; *left == 0 {`, New: `if *left--; true {`, Tests: "TestAStreamThatEndsIsNotWaitedFor",
		},
		{
			Name: "asked-once", Bug: "asks a shard for the first revision only", File: "pair.go",
			Old: `f.waits, f.late = false, false`, New: `f.late = false`, Tests: "TestOneAnswerForAllShardsOfAPair|TestALateShardIsReportedLater",
		},
		{
			Name: "ended-stream-waited-for", Bug: "the answer waits for a stream that has ended", File: "pair.go",
			Old: "\t\tp.arrivedLocked(f)\n\t\tforget", New: "\t\tforget", Tests: "TestAStreamThatEndsIsNotWaitedFor",
		},
		{
			Name: "ended-stream-reported", Bug: "reports the progress of streams that have ended", File: "pair.go",
			Old: `delete(p.follows, name)`, New: `_ = name`, Tests: "TestStreamsComeAndGo",
		},
		{
			Name: "ended-cache-asked", Bug: "repeatedly queries an ended cache", File: "pair.go",
			Old: `if reached, _ := f.home.Reached(wanted); !reached {`, New: `if f.home.Progress() < wanted {`, Tests: "TestACacheThatHasEndedIsNotAsked",
		},
		{
			Name: "ended-cache-awaited", Bug: "an ended cache repeatedly wakes the heartbeat", File: "arrival.go",
			Old: `; !retired {`, New: `; true || retired {`, Tests: "TestACacheThatHasEndedIsNotAwaited",
		},
		{
			Name: "pushed-in-pieces", Bug: "reports without a request each time one of the shards advances", File: "arrival.go",
			Old: `a == nil || a.missing.Load() > 0`, New: `a == nil`, Tests: "TestACacheThatHasEndedIsNotAwaited|TestProgressIsPushedWhileItIsWanted",
		},
		{
			Name: "pushed-for-ever", Bug: "sends unrequested progress to a follower that does not want it", File: "pair.go",
			Old: `m.GetPingNanos(), m.GetPush()`, New: `m.GetPingNanos(), true`, Tests: "TestProgressIsPushedWhileItIsWanted|TestACacheThatHasEndedIsNotAwaited",
		},
		{
			Name: "reached-by-the-furthest", Bug: "reports all shards at a revision although one has not reached it", File: "pair.go",
			Old: `reached = min(reached, progress)`, New: `reached = max(progress, reached%math.MaxInt64)`, Tests: "TestProgressIsPushedWhileItIsWanted",
		},
		{
			Name: "no-session-shared", Bug: "nodes without a session share one", File: "pair.go",
			Old: `if session == 0 {`, New: `if false {`, Tests: "TestSessionsAreApart",
		},
		{
			Name: "session-of-two-heartbeats", Bug: "two heartbeats share a session", File: "pair.go",
			Old: `if p.beats {`, New: `if false {`, Tests: "TestSessionsAreApart",
		},
		{
			Name: "held-back-for-good", Bug: "a stream that is no longer idle delays its events", File: "pair.go",
			Old: `is || f.held`, New: `is`, Tests: "TestPingsNameTheStreamsThatHoldBack",
		},
		{
			Name: "held-back-without-pings", Bug: "delays events after the heartbeat has ended", File: "pair.go",
			Old: "\t\tdefer p.holdBack(nil) // without pings\n", New: ``, Tests: "TestIdleStreamsAreSentLater",
		},
		{
			Name: "held-back-not-sent", Bug: "a ping does not send delayed events", File: "follow.go",
			Old: `if f.watcher.Defer(limit) {`, New: `if f.watcher.Defer(limit) && back && !back {`, Tests: "TestIdleStreamsAreSentLater",
		},
		{
			Name: "held-back-unbounded", Bug: "delays events without a bound on their bytes", File: "follow.go",
			Old: `max(1, min(heldBackBytes, window/8))`, New: `max(1<<40, min(heldBackBytes, window/8))`, Tests: "TestIdleStreamsAreSentLater",
		},
		{
			Name: "several-unasked", Bug: "sends several revisions per message to a node that does not support it", File: "follow.go",
			Old: `!f.req.GetAcceptSeveral() || size`, New: `size`, Tests: "TestPendingRevisionsAreSentTogether",
		},
		{
			Name: "several-unbounded", Bug: "sends all pending revisions in one message", File: "follow.go",
			Old: `size+added > f.srv.cfg.FragmentBytes`, New: `false`, Tests: "TestPendingRevisionsAreSentTogether",
		},
		{
			Name: "revision-lost-when-full", Bug: "drops the revision that does not fit into a message", File: "follow.go",
			Old: `append(f.events[:0], events[began:]...)`, New: `f.events[:0]`, Tests: "TestPendingRevisionsAreSentTogether",
		},
		{
			Name: "parts-of-one-item", Bug: "sends each item separately after the first part", File: "follow.go",
			Old: `			size = 0
`, New: ``, Tests: "TestPartsHaveTheirSize",
		},
		{
			Name: "node-of-another-cluster-served", Bug: "serves a node of another cluster", File: "peers.go",
			Old: `theirs == m.ClusterID`, New: `theirs != ""`, Tests: "TestNodesOfAnotherClusterAreNotServed", Package: "internal/edge/server",
		},
		{
			Name: "permit-without-header", Bug: "does not inform a node that its permit request waits", File: "permit.go",
			Old: "\tif err := out.SendHeader(metadata.MD{}); err != nil {\n\t\treturn err\n\t}", New: `_ = metadata.MD{}`, Tests: "TestPermitIsHeldByItsStream",
		},
		{
			Name: "permit-of-nobody", Bug: "grants permits without a source of permits", File: "permit.go",
			Old: `p == nil`, New: `false`, Tests: "TestPermitIsHeldByItsStream",
		},
		{
			Name: "permit-for-a-moment", Bug: "withdraws a permit at once", File: "permit.go",
			Old: "\t<-out.Context().Done() // the caller releases the permit\n", New: ``, Tests: "TestPermitIsHeldByItsStream",
		},
		{
			Name: "follower-of-other-lineage", Bug: "serves a follower of another lineage", File: "follow.go",
			Old: `l != 0 && l != home.Lineage()`, New: `false`, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "follower-of-any-lineage-refused", Bug: "refuses a follower that accepts any lineage", File: "follow.go",
			Old: `l != 0 && l != home.Lineage()`, New: `l != home.Lineage()`, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "follower-of-other-range", Bug: "serves a follower whose shard has another range", File: "follow.go",
			Old: `rng != home.Range()`, New: `false`, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "not-here-without-epoch", Bug: "does not report the epoch of a shard that is not here", File: "follow.go",
			Old: `e.Epoch = sh.Epoch`, New: `_ = sh.Epoch`, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "begin-without-epoch", Bug: "does not report the epoch of the following events", File: "follow.go",
			Old: `begin.Epoch = s.Epoch`, New: `_ = s.Epoch`, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "begin-without-lineage", Bug: "does not report the lineage of the following events", File: "follow.go",
			Old: `begin.Lineage = f.home.Lineage()`, New: ``, Tests: "TestFollowersOfAnotherShardAreRefused",
		},
		{
			Name: "indirect-taken-for-direct", Bug: "serves another node's events as etcd's own", File: "follow.go",
			Old: `f.req.GetRequireDirect() && !direct`, New: `false && !direct`, Tests: "TestFollowerThatNeedsEtcdDirectly",
		},
		{
			Name: "all-need-direct", Bug: "refuses followers that accept events from any source", File: "follow.go",
			Old: `f.req.GetRequireDirect() && !direct`, New: `!direct`, Tests: "TestFollowerThatNeedsEtcdDirectly",
		},
		{
			Name: "kube-follower-ahead", Bug: "serves a follower of a resource that is ahead of the node", File: "follow.go",
			Old: `if f.home.WaitProgress(ctx, kv.Revision(from-1)) != nil {`, New: `if f.home.WaitProgress(ctx, 0) != nil {`, Tests: "TestAFollowerAheadOfAResourceIsRefused",
		},
		{
			Name: "kube-follower-of-other-range", Bug: "serves any range as a resource", File: "follow.go",
			Old: `found.Cache.Range() != rng`, New: `false`, Tests: "TestAFollowerAheadOfAResourceIsRefused",
		},
		{
			Name: "kube-early-question-lost", Bug: "drops a request for a stream that has not started", File: "pair.go",
			Old: `f.wanted = p.early[name]`, New: ``, Tests: "TestProgressIsAskedOfOneStream",
		},
		{
			Name: "kube-early-questions-unbounded", Bug: "stores any number of requests for streams that never start", File: "pair.go",
			Old: `case len(p.early) < maxEarly:`, New: `default:`, Tests: "TestQuestionsToMissingStreamsAreBounded",
		},
	}}
}
