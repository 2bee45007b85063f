package mutants

func replicaGroup() Group {
	return Group{Package: "internal/replica", Mutants: []Mutant{
		{
			Name: "handing-on-is-a-loss", Bug: "counts a source that hands over its shard as lost", File: "notice.go",
			Old: `		return HandedOn
	}
	return SourceLost`, New: `		return SourceLost
	}
	return SourceLost`, Tests: "TestAHandoverIsNotALostSource",
		},
		{
			Name: "peer-of-any-lineage", Bug: "accepts the stream of a peer in another lineage", File: "peer.go",
			Old: `begin.GetLineage() != requested`, New: `false`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "key-out-of-range", Bug: "accepts a key outside the shard's range from a peer", File: "peer.go",
			Old: `if !r.ContainsBytes(item.Key()) {`, New: `if false {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-out-of-range", Bug: "accepts an event outside the shard's range from a peer", File: "peer.go",
			Old: `case !r.ContainsBytes(item.Key()):`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-of-other-revision", Bug: "accepts an event with a revision other than its batch's", File: "peer.go",
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
			Name: "idle-while-loading", Bug: "reports a shard as idle before its state is complete", File: "peer.go",
			Old: `if h.at.take(u); u.Kind == kv.UpdateReady {`, New: `if h.at.take(u); u.Kind > 0 {`, Tests: "TestPingsNameIdleShards",
		},
		{
			Name: "read-waits-for-the-beat", Bug: "reports that a shard is read only with the next heartbeat", File: "link.go",
			Old: `h.idle(p.roused.Wake)`, New: `h.idle(func() {})`, Tests: "TestPingsNameIdleShards",
		},
		{
			Name: "several-in-a-fragment", Bug: "a response with several revisions completes a started fragment", File: "peer.go",
			Old: `several := m.GetSeveral() && assembling.Revision == 0`, New: `several := m.GetSeveral()`, Tests: "TestMessagesOfAPeer",
		},
		{
			Name: "several-out-of-order", Bug: "accepts several revisions out of order", File: "peer.go",
			Old: `several && revision > assembling.Revision`, New: `several && revision != assembling.Revision`, Tests: "TestMessagesOfAPeer",
		},
		{
			Name: "several-as-one", Bug: "treats events of several revisions as one revision", File: "peer.go",
			Old: `revision = kv.Revision(e.GetKv().GetModRevision())`, New: `_ = e`, Tests: "TestMessagesOfAPeer",
		},
		{
			Name: "stale-peer-direct", Bug: "trusts a peer that reads etcd regardless of its age", File: "peer.go",
			Old: `begin.GetAge() == nil || begin.GetAge().AsDuration() > tooOld`, New: `begin.GetAge() == nil`, Tests: "TestProbe",
		},
		{
			Name: "peer-of-unknown-age", Bug: "trusts a peer of unknown age", File: "peer.go",
			Old: `begin.GetAge() == nil || begin`, New: `begin`, Tests: "TestProbe",
		},
		{
			Name: "source-begins-anywhere", Bug: "a failover continues with a source that starts before or after its position", File: "handover.go",
			Old: `u.Revision < req.From && !u.Leap || u.Leap && req.AllowLeap`, New: `true`, Tests: "TestFailover",
		},
		{
			Name: "silence-not-noticed", Bug: "follows a peer that answers nothing forever", File: "link.go",
			Old: `if time.Duration(p.missed)*Heartbeat >= h.silence {`, New: `if false {`, Tests: "TestSilence",
		},
		{
			Name: "silence-one-beat-late", Bug: "leaves a silent peer one heartbeat late", File: "link.go",
			Old: `time.Duration(p.missed)*Heartbeat >= h.silence`, New: `time.Duration(p.missed)*Heartbeat > h.silence`, Tests: "TestSilence",
		},
		{
			Name: "warm-source-not-further", Bug: "accepts a warm source that is not ahead", File: "run.go",
			Old: `revision <= r.req.HeldAt`, New: `false`, Tests: "TestNoStateIsTakenFromANodeThatIsNotAhead",
		},
		{
			Name: "position-goes-back", Bug: "moves the position back when a source repeats a revision", File: "run.go",
			Old: `next > r.from.Load()`, New: `true`, Tests: "TestEachSourceContinuesAfterThePreviousOne",
		},
		{
			Name: "position-one-late", Bug: "requests the last revision again from the next source", File: "run.go",
			Old: `next := int64(revision) + 1`, New: `next := int64(revision)`, Tests: "TestEachSourceContinuesAfterThePreviousOne",
		},
		{
			Name: "warm-state-one-early", Bug: "requests the revision of the state that another node sent", File: "run.go",
			Old: `r.from.Store(int64(revision) + 1)`, New: `r.from.Store(int64(revision))`, Tests: "TestEachSourceContinuesAfterThePreviousOne",
		},
		{
			Name: "state-of-same-revision", Bug: "accepts a state that is not newer", File: "run.go",
			Old: `revision <= r.req.HeldAt`, New: `revision < r.req.HeldAt`, Tests: "TestAStateOfTheSameRevisionIsNotTaken",
		},
		{
			Name: "second-begin-shown", Bug: "passes the start of each source to the consumer", File: "handover.go",
			Old: `if resuming = resuming && !u.Leap; resuming {`, New: `if resuming = false; resuming {`, Tests: "TestEachSourceContinuesAfterThePreviousOne",
		},
		{
			Name: "wish-lowered", Bug: "replaces a requested revision with a later, lower one", File: "../kv/demand.go",
			Old: `d.highest = max(d.highest, revision)`, New: `d.highest = revision`, Tests: "TestTheHighestRequestReachesTheNextSource",
		},
		{
			Name: "direct-progress-of-a-new-source", Bug: "accepts progress of a source that has not continued yet", File: "handover.go",
			Old: `!s.steady || `, New: ``, Tests: "TestDirectProgressMovesThePosition",
		},
		{
			Name: "direct-progress-forgotten", Bug: "requests revisions from the next source that the consumer already has", File: "handover.go",
			Old: `			r.advance(revision)
`, New: ``, Tests: "TestDirectProgressMovesThePosition",
		},
		{
			Name: "silent-source-given-up", Bug: "treats a quiet source as a silent one", File: "run.go",
			Old: `gone.open = true`, New: `gone.open = false`, Tests: "TestTheReasonOfAFailureDecidesTheNextStep",
		},
		{
			Name: "other-history-ignored", Bug: "continues with another source after a change of history", File: "run.go",
			Old: `if errors.Is(err, kv.ErrOtherHistory) {`, New: `if false {`, Tests: "TestTheReasonOfAFailureDecidesTheNextStep",
		},
		{
			Name: "follower-waits-for-loading-peer", Bug: "a follower with a position waits for a loading peer", File: "run.go",
			Old: `if r.from.Load() == 0 && notReady(err) &&`, New: `if notReady(err) &&`, Tests: "TestTheReasonOfAFailureDecidesTheNextStep",
		},
		{
			Name: "refused-range-waited-for", Bug: "waits for a node that is not ready although a better one refuses", File: "run.go",
			Old: ` && !gone.refused`, New: ``, Tests: "TestFailover",
		},
		{
			Name: "state-at-own-position", Bug: "restarts from a state that is not ahead", File: "handover.go",
			Old: `u.Revision <= req.HeldAt`, New: `u.Revision < req.HeldAt`, Tests: "TestAStateThatTheFollowerHasIsPassedOver",
		},
		{
			Name: "follower-with-state-waits", Bug: "a follower with a state waits as long for a node that is not ready as one without", File: "run.go",
			Old: `if r.req.Held != nil {`, New: `if false {`, Tests: "TestAFollowerWithAStateWaitsBrieflyForANodeThatIsNotReady",
		},
		{
			Name: "level-node-followed", Bug: "leaves a stale source for a node that is not ahead", File: "handover.go",
			Old: `u.Kind == kv.UpdateProgress && u.Revision <= r.position()`, New: `false`, Tests: "TestNodesThatAreAsFarAsAStaleOneAreNotFollowed",
		},
		{
			Name: "stale-source-waited-for", Bug: "waits for a stale source when the others have compacted what is missing", File: "run.go",
			Old: `continue // it answers, and has nothing that is missing`, New: "gone.open = true\n\t\t\tcontinue", Tests: "TestAStaleSourceIsNotWaitedForWhenTheOthersHaveCompacted",
		},
		{
			Name: "cut-node-waits-for-etcd", Bug: "requests no changes from other nodes before etcd answers again", File: "run.go",
			Old: `case c.Away && gone.compacted != nil`, New: `case false && gone.compacted != nil`, Tests: "TestANodeCutFromEtcdTakesTheChangesFromAnotherNode",
		},
		{
			Name: "hung-watch-kept", Bug: "keeps a watch at an etcd that does not answer and has compacted the missing revisions", File: "handover.go",
			Old: `candidates[better].Away && errors.As`, New: `false && errors.As`, Tests: "TestANodeCutFromEtcdTakesTheChangesFromAnotherNode",
		},
		{
			Name: "rejected-for-shorter", Bug: "a shorter rejection admits a source earlier", File: "failover.go",
			Old: `until.After(f.rejected[name])`, New: `true`, Tests: "TestARejectedSourceIsPassedOver",
		},
		{
			Name: "heartbeat-outlives-link", Bug: "returns while the heartbeat still runs", File: "link.go",
			Old: "\t\t<-p.done\n", New: ``, Tests: "TestFollowWaitsForItsCalls",
		},
		{
			Name: "ping-outlives-heartbeat", Bug: "returns during the send of a ping", File: "link.go",
			Old: "\tdefer pings.Wait()\n", New: ``, Tests: "TestFollowWaitsForItsCalls",
		},
		{
			Name: "old-holder-ends-new-heartbeat", Bug: "the holder of a broken heartbeat ends the next one", File: "link.go",
			Old: `last && l.pulse == p`, New: `last`, Tests: "TestABrokenHeartbeatIsReplaced",
		},
		{
			Name: "progress-overtakes-events", Bug: "accepts progress that has overtaken its events", File: "peer.go",
			Old: `j.at < q.since`, New: `false`, Tests: "TestProgressThatOvertakesEvents|TestProgressAndEventsInAnyOrder",
		},
		{
			Name: "progress-one-event-early", Bug: "accepts progress without its last event", File: "peer.go",
			Old: `j.at < q.since`, New: `j.at < q.since-1`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-before-state", Bug: "accepts progress before the state is complete", File: "peer.go",
			Old: `!j.ready ||`, New: ``, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-forgotten", Bug: "drops progress that waits for events", File: "link.go",
			Old: `	return h.quiet
`, New: `	q := h.quiet
	h.quiet = quiet{}
	return q
`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "progress-of-ended-stream", Bug: "attributes the progress of an ended stream to the next one", File: "link.go",
			Old: `p.last++`, New: `p.last = 1`, Tests: "TestProgressOfAnEndedStreamIsIgnored",
		},
		{
			Name: "first-progress-not-told", Bug: "does not report the progress of a node without new events", File: "peer.go",
			Old: `j.told && q.upTo <= j.at`, New: `q.upTo <= j.at`, Tests: "TestTheFirstProgressIsTaken",
		},
		{
			Name: "old-progress-told", Bug: "sends old progress", File: "peer.go",
			Old: `j.told && q.upTo <= j.at`, New: `false`, Tests: "TestProgressThatOvertakesEvents",
		},
		{
			Name: "wishes-across-lineages", Bug: "compares a requested revision with one of another lineage", File: "link.go",
			Old: `p == nil || p.lineage != lineage`, New: `p == nil`, Tests: "TestLineagesAreAskedApart",
		},
		{
			Name: "question-for-each-shard", Bug: "sends a node one request for each waiting shard", File: "link.go",
			Old: `case revision <= p.wanted:`, New: `case false:`, Tests: "TestOneQuestionForAllShardsOfAPair",
		},
		{
			Name: "report-ahead", Bug: "accepts progress beyond the revision of the whole report", File: "link.go",
			Old: `behind[i] < 0 || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-of-no-revision", Bug: "accepts progress without a valid revision", File: "link.go",
			Old: `behind[i] >= progress || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-of-later-events", Bug: "accepts progress that ends before its events", File: "link.go",
			Old: `after[i] < 0 || `, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "report-without-numbers", Bug: "accepts a report without numbers", File: "link.go",
			Old: `|| len(after) != len(behind)`, New: ``, Tests: "TestReportsThatContradictThemselves",
		},
		{
			Name: "keyless-event-taken", Bug: "accepts an event without a key", File: "peer.go",
			Old: `case len(e.GetKv().GetKey()) == 0:`, New: `case false:`, Tests: "TestMessagesOfAPeer",
		},
		{
			Name: "streams-apart-ask-together", Bug: "asks all streams for a version that only one has", File: "link.go",
			Old: `case h.apart:`, New: `case false:`, Tests: "TestStreamsWithTheirOwnRevisionsSendTheirOwnRequests",
		},
		{
			Name: "late-push-not-asked-for", Bug: "waits forever for progress that the node does not report without a request", File: "link.go",
			Old: "\t\tp.pushed.miss()\n\t\tp.askLocked()\n", New: ``, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "second-push-not-awaited", Bug: "does not request a revision that was needed while a lower one was pending", File: "pushed.go",
			Old: `if again = all < wanted; again {`, New: `if false {`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "push-trusted-again-at-once", Bug: "waits for each revision although the node does not report without a request", File: "pushed.go",
			Old: `p.left = p.pause`, New: `p.left = 0`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "report-awaited-twice", Bug: "waits for a revision that was already reported", File: "link.go",
			Old: `case h.quiet.upTo >= revision:`, New: `case false:`, Tests: "TestReportedProgressIsNotAwaited",
		},
		{
			Name: "reports-not-needed", Bug: "stops a node's reports when they arrive before they are needed", File: "link.go",
			Old: "\t\tp.pushed.recent = true\n", New: ``, Tests: "TestReportedProgressIsNotAwaited",
		},
		{
			Name: "push-for-ever", Bug: "makes a node report without a request although nothing waits for it", File: "pushed.go",
			Old: `p.on, p.recent = p.recent, false`, New: `p.recent = false`, Tests: "TestPushedProgressIsNotAskedFor",
		},
		{
			Name: "idle-shard-not-asked-for", Bug: "waits for the progress of a shard whose events are delayed", File: "link.go",
			Old: `case h.named && revision > p.asked:`, New: `case false:`, Tests: "TestIdleShardsAreAskedFor",
		},
		{
			Name: "idle-shard-awaited", Bug: "waits for a revision without a request although the ping delays its events", File: "link.go",
			Old: `if len(numbers) > 0 && p.pushed.awaited > 0 {`, New: `if false {`, Tests: "TestIdleShardsAreAskedFor",
		},
	}}
}
