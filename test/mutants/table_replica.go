package mutants

func replicaGroup() Group {
	return Group{Package: "internal/replica", Mutants: []Mutant{
		{
			Name: "handing-on-is-a-loss", Bug: "counts a source that hands its shard on as lost", File: "notice.go",
			Old: `		return HandedOn
	}
	return SourceLost`, New: `		return SourceLost
	}
	return SourceLost`, Tests: "TestASourceThatHandsOnIsNotLost",
		},
		{
			Name: "peer-of-any-lineage", Bug: "takes the stream of a peer in another lineage", File: "peer.go",
			Old: `begin.GetLineage() != requested`, New: `false`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "key-out-of-range", Bug: "takes a key that is not of the shard's range from a peer", File: "peer.go",
			Old: `if !r.ContainsBytes(item.Key()) {`, New: `if false {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-out-of-range", Bug: "takes an event that is not of the shard's range from a peer", File: "peer.go",
			Old: `case !r.ContainsBytes(item.Key()):`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-of-other-revision", Bug: "takes an event whose revision is not its batch's", File: "peer.go",
			Old: `case item.ModRevision() != u.Revision:`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "fragments-of-two-revisions", Bug: "joins fragments of two revisions", File: "peer.go",
			Old: `case assembling.Revision != 0 && assembling.Revision != revision:`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "fragment-as-whole", Bug: "applies a peer's fragment as the whole revision", File: "peer.go",
			Old: `if !m.GetFragment() {`, New: `if true {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "idle-while-loading", Bug: "says that a shard is idle before its state is complete", File: "peer.go",
			Old: `if h.at.take(u); u.Kind == kv.UpdateReady {`, New: `if h.at.take(u); u.Kind > 0 {`, Tests: "TestPingsNameIdleShards",
		},
		{
			Name: "read-waits-for-the-beat", Bug: "says that a shard is read with the next beat only", File: "link.go",
			Old: `h.idle(p.roused.Wake)`, New: `h.idle(func() {})`, Tests: "TestPingsNameIdleShards",
		},
		{
			Name: "several-in-a-fragment", Bug: "a response of several revisions ends one that a fragment has begun", File: "peer.go",
			Old: `several := m.GetSeveral() && assembling.Revision == 0`, New: `several := m.GetSeveral()`, Tests: "TestWhatAPeerSays",
		},
		{
			Name: "several-out-of-order", Bug: "takes several revisions that are not in order", File: "peer.go",
			Old: `several && revision > assembling.Revision`, New: `several && revision != assembling.Revision`, Tests: "TestWhatAPeerSays",
		},
		{
			Name: "several-as-one", Bug: "takes events of several revisions for one", File: "peer.go",
			Old: `revision = kv.Revision(e.GetKv().GetModRevision())`, New: `_ = e`, Tests: "TestWhatAPeerSays",
		},
		{
			Name: "stale-peer-direct", Bug: "believes a peer that reads etcd whatever its age", File: "peer.go",
			Old: `begin.GetAge() == nil || begin.GetAge().AsDuration() > tooOld`, New: `begin.GetAge() == nil`, Tests: "TestProbe",
		},
		{
			Name: "peer-of-unknown-age", Bug: "believes a peer that does not know its age", File: "peer.go",
			Old: `begin.GetAge() == nil || begin`, New: `begin`, Tests: "TestProbe",
		},
		{
			Name: "source-begins-anywhere", Bug: "a failover goes on with a source that begins before or after its position", File: "handover.go",
			Old: `u.Revision < req.From && !u.Leap || u.Leap && req.AllowLeap`, New: `true`, Tests: "TestFailover",
		},
		{
			Name: "silence-not-noticed", Bug: "a peer that answers nothing is followed for ever", File: "link.go",
			Old: `if time.Duration(p.missed)*Heartbeat >= h.silence {`, New: `if false {`, Tests: "TestSilence",
		},
		{
			Name: "silence-one-beat-late", Bug: "a silent peer is given up one heartbeat late", File: "link.go",
			Old: `time.Duration(p.missed)*Heartbeat >= h.silence`, New: `time.Duration(p.missed)*Heartbeat > h.silence`, Tests: "TestSilence",
		},
		{
			Name: "warm-source-not-further", Bug: "takes a warm source that is no further than what is held", File: "run.go",
			Old: `revision <= r.req.HeldAt`, New: `false`, Tests: "TestWarmThatIsNoFurther",
		},
		{
			Name: "position-goes-back", Bug: "the position goes back when a source repeats a revision", File: "run.go",
			Old: `next > r.from.Load()`, New: `true`, Tests: "TestEachSourceGoesOnWhereTheLastOneEnded",
		},
		{
			Name: "position-one-late", Bug: "asks the next source for the last revision again", File: "run.go",
			Old: `next := int64(revision) + 1`, New: `next := int64(revision)`, Tests: "TestEachSourceGoesOnWhereTheLastOneEnded",
		},
		{
			Name: "warm-state-one-early", Bug: "asks for the revision of the state that another node gave", File: "run.go",
			Old: `r.from.Store(int64(revision) + 1)`, New: `r.from.Store(int64(revision))`, Tests: "TestEachSourceGoesOnWhereTheLastOneEnded",
		},
		{
			Name: "state-of-same-revision", Bug: "takes a state that is not newer than what is held", File: "run.go",
			Old: `revision <= r.req.HeldAt`, New: `revision < r.req.HeldAt`, Tests: "TestAStateOfTheSameRevisionIsNotTaken",
		},
		{
			Name: "second-begin-shown", Bug: "shows the consumer the beginning of each source", File: "handover.go",
			Old: `if resuming = resuming && !u.Leap; resuming {`, New: `if resuming = false; resuming {`, Tests: "TestEachSourceGoesOnWhereTheLastOneEnded",
		},
		{
			Name: "wish-lowered", Bug: "forgets a wish for a later one that is lower", File: "../kv/demand.go",
			Old: `d.highest = max(d.highest, revision)`, New: `d.highest = revision`, Tests: "TestTheHighestWishMovesAlong",
		},
		{
			Name: "direct-progress-of-a-new-source", Bug: "takes progress of a source that has not continued yet", File: "handover.go",
			Old: `!s.steady || `, New: ``, Tests: "TestDirectProgressMovesThePosition",
		},
		{
			Name: "direct-progress-forgotten", Bug: "asks the next source for revisions that the consumer has", File: "handover.go",
			Old: `			r.advance(revision)
`, New: ``, Tests: "TestDirectProgressMovesThePosition",
		},
		{
			Name: "silent-source-given-up", Bug: "takes a silent source for one that has nothing", File: "run.go",
			Old: `gone.open = true`, New: `gone.open = false`, Tests: "TestWhatFollowsAFailure",
		},
		{
			Name: "other-history-ignored", Bug: "goes on with another source after another history", File: "run.go",
			Old: `if errors.Is(err, kv.ErrOtherHistory) {`, New: `if false {`, Tests: "TestWhatFollowsAFailure",
		},
		{
			Name: "follower-waits-for-loading-peer", Bug: "a follower with a position waits for a peer that is loading", File: "run.go",
			Old: `if r.from.Load() == 0 && notReady(err) &&`, New: `if notReady(err) &&`, Tests: "TestWhatFollowsAFailure",
		},
		{
			Name: "refused-range-waited-for", Bug: "waits for a node that is not ready although a better one refuses", File: "run.go",
			Old: ` && !gone.refused`, New: ``, Tests: "TestFailover",
		},
		{
			Name: "state-at-own-position", Bug: "begins anew with a state that is no further than what is held", File: "handover.go",
			Old: `u.Revision <= req.HeldAt`, New: `u.Revision < req.HeldAt`, Tests: "TestAStateThatTheFollowerHasIsPassedOver",
		},
		{
			Name: "follower-with-state-waits", Bug: "a follower with a state waits for a node that is not ready as long as one with nothing", File: "run.go",
			Old: `if r.req.Held != nil {`, New: `if false {`, Tests: "TestAFollowerWithAStateWaitsBrieflyForANodeThatIsNotReady",
		},
		{
			Name: "level-node-followed", Bug: "leaves a stale source for a node that is no further", File: "handover.go",
			Old: `u.Kind == kv.UpdateProgress && u.Revision <= r.position()`, New: `false`, Tests: "TestNodesThatAreAsFarAsAStaleOneAreNotFollowed",
		},
		{
			Name: "stale-source-waited-for", Bug: "waits for a stale source when the others have compacted what is missing", File: "run.go",
			Old: `continue // it answers, and has nothing that is missing`, New: "gone.open = true\n\t\t\tcontinue", Tests: "TestAStaleSourceIsNotWaitedForWhenTheOthersHaveCompacted",
		},
		{
			Name: "cut-node-waits-for-etcd", Bug: "asks no other node for what has changed before etcd answers again", File: "run.go",
			Old: `case c.Away && gone.compacted != nil`, New: `case false && gone.compacted != nil`, Tests: "TestANodeCutFromEtcdTakesWhatHasChangedFromOneThatIsNot",
		},
		{
			Name: "hung-watch-kept", Bug: "keeps a watch at an etcd that does not answer and has compacted what it lacks", File: "handover.go",
			Old: `candidates[better].Away && errors.As`, New: `false && errors.As`, Tests: "TestANodeCutFromEtcdTakesWhatHasChangedFromOneThatIsNot",
		},
		{
			Name: "rejected-for-shorter", Bug: "a shorter rejection lets a source in earlier", File: "failover.go",
			Old: `until.After(f.rejected[name])`, New: `true`, Tests: "TestARejectedSourceIsPassedOver",
		},
		{
			Name: "heartbeat-outlives-link", Bug: "returns while the heartbeat still runs", File: "link.go",
			Old: "\t\t<-p.done\n", New: ``, Tests: "TestNothingRunsAfterThePeerIsLeft",
		},
		{
			Name: "ping-outlives-heartbeat", Bug: "returns while a ping is still being sent", File: "link.go",
			Old: "\tdefer pings.Wait()\n", New: ``, Tests: "TestNothingRunsAfterThePeerIsLeft",
		},
		{
			Name: "old-holder-ends-new-heartbeat", Bug: "who held a broken heartbeat ends the next one", File: "link.go",
			Old: `last && l.pulse == p`, New: `last`, Tests: "TestABrokenHeartbeatIsReplaced",
		},
		{
			Name: "progress-overtakes-events", Bug: "takes progress that has overtaken the events that it includes", File: "peer.go",
			Old: `j.at < q.since`, New: `false`, Tests: "TestProgressThatOvertakesEvents|TestProgressAndEventsInAnyOrder",
		},
		{
			Name: "progress-one-event-early", Bug: "takes progress without the last event that it includes", File: "peer.go",
			Old: `j.at < q.since`, New: `j.at < q.since-1`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-before-state", Bug: "takes progress before the state is complete", File: "peer.go",
			Old: `!j.ready ||`, New: ``, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-forgotten", Bug: "forgets progress that waits for events", File: "link.go",
			Old: `	return h.quiet
`, New: `	q := h.quiet
	h.quiet = quiet{}
	return q
`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-of-ended-stream", Bug: "takes the progress of a stream that has ended for that of the next one", File: "link.go",
			Old: `p.last++`, New: `p.last = 1`, Tests: "TestProgressOfAnEndedStreamIsIgnored",
		},
		{
			Name: "first-progress-not-told", Bug: "does not say how far a node is that has nothing new", File: "peer.go",
			Old: `j.told && q.upTo <= j.at`, New: `q.upTo <= j.at`, Tests: "TestTheFirstProgressIsTaken",
		},
		{
			Name: "old-progress-told", Bug: "tells progress that is not new", File: "peer.go",
			Old: `j.told && q.upTo <= j.at`, New: `false`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "wishes-across-lineages", Bug: "holds the revision that was asked for in another lineage against a wish", File: "link.go",
			Old: `p == nil || p.lineage != lineage`, New: `p == nil`, Tests: "TestLineagesAreAskedApart",
		},
		{
			Name: "question-for-each-shard", Bug: "asks a node once for each shard that waits", File: "link.go",
			Old: `case revision <= p.wanted:`, New: `case false:`, Tests: "TestOneQuestionForAllShardsOfAPair",
		},
		{
			Name: "report-ahead", Bug: "takes progress beyond that of the whole report", File: "link.go",
			Old: `behind[i] < 0 || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-of-no-revision", Bug: "takes progress that is no revision", File: "link.go",
			Old: `behind[i] >= progress || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-of-later-events", Bug: "takes progress that ends before the events it speaks of", File: "link.go",
			Old: `after[i] < 0 || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-without-numbers", Bug: "takes a report that lacks numbers", File: "link.go",
			Old: `|| len(after) != len(behind)`, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "keyless-event-taken", Bug: "takes an event without a key", File: "peer.go",
			Old: `case len(e.GetKv().GetKey()) == 0:`, New: `case false:`, Tests: "TestWhatAPeerSays",
		},
		{
			Name: "streams-apart-ask-together", Bug: "asks all streams for a version that only one has", File: "link.go",
			Old: `case h.apart:`, New: `case false:`, Tests: "TestStreamsThatAreApartAskForThemselves",
		},
		{
			Name: "late-push-not-asked-for", Bug: "waits for ever for progress that the node does not report without a question", File: "link.go",
			Old: "\t\tp.pushed.miss()\n\t\tp.askLocked()\n", New: ``, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "second-push-not-awaited", Bug: "does not ask for a revision that was wanted while a lower one was awaited", File: "pushed.go",
			Old: `if again = all < wanted; again {`, New: `if false {`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "push-trusted-again-at-once", Bug: "waits for each revision though the node does not report without a question", File: "pushed.go",
			Old: `p.left = p.pause`, New: `p.left = 0`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "report-awaited-twice", Bug: "waits for a report of a revision that has been reported", File: "link.go",
			Old: `case h.quiet.upTo >= revision:`, New: `case false:`, Tests: "TestReportedProgressIsNotAwaited",
		},
		{
			Name: "reports-not-needed", Bug: "has the node report no more when its reports come before they are waited for", File: "link.go",
			Old: "\t\tp.pushed.recent = true\n", New: ``, Tests: "TestReportedProgressIsNotAwaited",
		},
		{
			Name: "push-for-ever", Bug: "has a node report without a question though nothing waits for it", File: "pushed.go",
			Old: `p.on, p.recent = p.recent, false`, New: `p.recent = false`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "idle-shard-not-asked-for", Bug: "waits for the progress of a shard whose events are held back", File: "link.go",
			Old: `case h.named && revision > p.asked:`, New: `case false:`, Tests: "TestIdleShardsAreAskedFor",
		},
		{
			Name: "idle-shard-awaited", Bug: "waits for a revision without a question though the ping has its events held back", File: "link.go",
			Old: `if len(numbers) > 0 && p.pushed.awaited > 0 {`, New: `if false {`, Tests: "TestIdleShardsAreAskedFor",
		},
	}}
}
