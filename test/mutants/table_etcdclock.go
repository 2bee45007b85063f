package mutants

func etcdclockGroup() Group {
	return Group{Package: "internal/etcd/etcdclock", Mutants: []Mutant{
		{
			Name: "fetch-joined-late", Bug: "a linearizable read shares a fetch of the revision that began before it", File: "shared.go",
			Old: "\t\tq := s.next\n\t\ts.next = nil\n\t\ts.asking = q != nil\n\t\ts.mu.Unlock()\n\t\tif q == nil {\n\t\t\treturn\n\t\t}\n\t\tq.value, q.err = q.fetch(q.ctx)\n",
			New: "\t\tq := s.next\n\t\ts.asking = q != nil\n\t\ts.mu.Unlock()\n\t\tif q == nil {\n\t\t\treturn\n\t\t}\n\t\tq.value, q.err = q.fetch(q.ctx)\n\t\ts.mu.Lock()\n\t\ts.next = nil\n\t\ts.mu.Unlock()\n", Tests: "TestSharedFetchBeginsAfterTheCall",
		},
		{
			Name: "second-fetch-in-flight", Bug: "has several fetches of the revision in flight", File: "shared.go",
			Old: `if !s.asking {`, New: `if q.callers == 1 {`, Tests: "TestSharedFetchBeginsAfterTheCall",
		},
		{
			Name: "fetch-without-callers", Bug: "continues a fetch that no caller waits for", File: "shared.go",
			Old: "\tq.cancel()\n\tif s.next == q {", New: "\tif s.next == q {", Tests: "TestAFetchThatNoCallerWaitsForEnds",
		},
		{
			Name: "abandoned-question-joined", Bug: "joins callers to a fetch that was abandoned before it began", File: "shared.go",
			Old: `s.next = nil // a later caller`, New: `_ = q // who comes`, Tests: "TestAFetchThatNoCallerWaitsForEnds",
		},
		{
			Name: "shared-fetch-unbounded", Bug: "a caller waits for etcd's revision without a bound", File: "shared.go",
			Old: `if timeout == 0 {`, New: `if true {`, Tests: "TestASharedFetchIsBounded",
		},
		{
			Name: "fetch-ends-with-a-caller", Bug: "ends a shared fetch when one of its callers gives up", File: "shared.go",
			Old: `if q.callers--; q.callers > 0 {`, New: `if q.callers--; false {`, Tests: "TestSharedFetchSurvivesItsCaller",
		},
		{
			Name: "index-asked-always", Bug: "reads the raft index of a process with each check", File: "lineage.go",
			Old: `told != 0 {`, New: `false {`, Tests: "TestIndexIsAskedForOnce", Package: "internal/etcd",
		},
		{
			Name: "index-of-one-member", Bug: "uses one member's index to contradict later answers of other members", File: "lineage.go",
			Old: `clock.Index = max(told, known.Index)`, New: `clock.Index = told`, Tests: "TestMembersDoNotContradictTheMarkInTurn", Package: "internal/etcd",
		},
		{
			Name: "index-does-not-grow", Bug: "infers no index from a revision", File: "lineage.go",
			Old: `return r.index + uint64(clock.Revision-r.revision)`, New: `return r.index`, Tests: "TestMembersDoNotContradictTheMarkInTurn", Package: "internal/etcd",
		},
		{
			Name: "index-of-another-history", Bug: "infers the history's index from an answer of a restored etcd", File: "lineage.go",
			Old: `if known.Judge(clock.Mark()) == nil { // else`, New: `if true { // else`, Tests: "TestContradictoryIndexIsFoundAgain", Package: "internal/etcd",
		},
		{
			Name: "index-from-before-a-mark", Bug: "does not compare an adopted mark with etcd's index", File: "lineage.go",
			Old: "\tc.indexes.forget() // they", New: "\t// they", Tests: "TestAdoptedMarkIsComparedWithTheIndex", Package: "internal/etcd",
		},
		{
			Name: "index-of-another-process", Bug: "does not read the raft index of a member's new process", File: "lineage.go",
			Old: `return connection{local: addr(p.LocalAddr), remote: addr(p.Addr)}`, New: `return connection{remote: addr(p.Addr)}`, Tests: "TestIndexIsAskedForOnce", Package: "internal/etcd",
		},
		{
			Name: "lineage-moves-during-check", Bug: "attributes data of a lineage to the next", File: "lineage.go",
			Old: "\tif c.lineage.now().lineage != adopted {\n", New: "\tif adopted != adopted {\n", Tests: "TestLineageChangesDuringTheCheckOfAnAnswer",
		},
		{
			Name: "lineage-moves-during-look", Bug: "applies the result of a check of the previous lineage", File: "lineage.go",
			Old: `if c.lineage.now().lineage != before.lineage {`, New: `if false {`, Tests: "TestAnswerFromTheOldLineage", Package: "internal/etcd",
		},
		{
			Name: "history-ends-during-read", Bug: "answers a read although the history ended meanwhile", File: "clock.go",
			Old: `return clock, c.lineage.err()`, New: `return clock, nil`, Tests: "TestHistoryEndsDuringARead", Package: "internal/etcd",
		},
		{
			Name: "clock-of-the-answer", Bug: "counts the age of data from the answer instead of the request", File: "clock.go",
			Old: `clock.Member, clock.Cluster = h.GetMemberId(), h.GetClusterId()`, New: "clock.Member, clock.Cluster = h.GetMemberId(), h.GetClusterId()\n\tclock.At = time.Now()", Tests: "TestClockDatesFromBeforeTheRequest", Package: "internal/etcd",
		},
		{
			Name: "clock-of-other-history", Bug: "uses a revision of another history for the clock", File: "clock.go",
			Old: `found := before.mark.Judge(clock.Mark()); found != nil`, New: `found := before.mark.Judge(clock.Mark()); false`, Tests: "TestReadFindsAnotherHistory", Package: "internal/etcd",
		},
		{
			Name: "ends-other-lineage", Bug: "a finding about one lineage ends another one", File: "lineage.go",
			Old: `case h.number != lineage || h.ended != nil:`, New: `case h.ended != nil:`, Tests: "TestEndOfALineage",
		},
		{
			Name: "reason-replaced", Bug: "a later finding replaces the reason of the end", File: "lineage.go",
			Old: `case h.number != lineage || h.ended != nil:`, New: `case h.number != lineage:`, Tests: "TestEndOfALineage",
		},
		{
			Name: "ended-history-grows", Bug: "adds reads after the end to the history", File: "lineage.go",
			Old: `if h.number == lineage && h.ended == nil {`, New: `if h.number == lineage {`, Tests: "TestEndOfALineage",
		},
		{
			Name: "other-lineage-grows", Bug: "adds reads of another lineage to the history", File: "lineage.go",
			Old: `if h.number == lineage && h.ended == nil {`, New: `if h.ended == nil {`, Tests: "TestReadFindsAnotherHistory", Package: "internal/etcd",
		},
		{
			Name: "resumes-other-lineage", Bug: "reverts the end of another lineage", File: "lineage.go",
			Old: `if h.number == lineage && h.ended != nil && h.ended.Cause`, New: `if h.ended != nil && h.ended.Cause`, Tests: "TestEndOfALineage",
		},
		{
			Name: "resumes-any-end", Bug: "reverts the end of a history with different contents", File: "lineage.go",
			Old: `h.ended != nil && h.ended.Cause == kv.CauseCluster`, New: `h.ended != nil`, Tests: "TestEndOfALineage",
		},
		{
			Name: "adopted-again-forgets", Bug: "adopting the same lineage again discards its known facts", File: "lineage.go",
			Old: "\tif h.number == lineage {\n\t\th.mark = h.mark.Join(mark)\n\t\treturn\n\t}\n\th.number", New: "\tif h.number == lineage {\n\t\th.mark = mark\n\t\treturn\n\t}\n\th.number", Tests: "TestEndOfALineage",
		},
		{
			Name: "adopted-keeps-floor", Bug: "keeps the compact revision of another lineage", File: "lineage.go",
			Old: "\tc.past.forget()\n", New: ``, Tests: "TestEndOfALineage",
		},
		{
			Name: "retracts-other-lineage", Bug: "reverts the end of the wrong lineage", File: "lineage.go",
			Old: `if h.number != lineage || h.ended == nil {`, New: `if h.ended == nil {`, Tests: "TestEndOfALineage",
		},
		{
			Name: "retracts-without-end", Bug: "discards known facts of a history that has not ended", File: "lineage.go",
			Old: `if h.number != lineage || h.ended == nil {`, New: `if h.number != lineage {`, Tests: "TestEndOfALineage",
		},
		{
			Name: "retracts-to-other-cluster", Bug: "adopts the cluster of the caller that reverted the end", File: "lineage.go",
			Old: `is.Cluster = h.mark.Cluster`, New: `_ = h.mark.Cluster`, Tests: "TestEndOfALineage",
		},
		{
			Name: "stale-lineage-followed", Bug: "follows a lineage other than the adopted one", File: "lineage.go",
			Old: `lineage != 0 && adopted != 0 && lineage != adopted {`, New: `false {`, Tests: "TestAnotherHistoryIsFound", Package: "internal/etcd",
		},
		{
			Name: "one-member-is-a-restore", Bug: "treats one member that contradicts the others as a restore", File: "lineage.go",
			Old: `if agrees {`, New: `if agrees && false {`, Tests: "TestOneMemberIsNoRestore", Package: "internal/etcd",
		},
		{
			Name: "any-answer-is-no-restore", Bug: "treats any answer of a member as agreement with the history", File: "lineage.go",
			Old: `if err == nil && mark.Judge(clock.Mark()) == nil {`, New: `if err == nil {`, Tests: "TestAnotherHistoryIsFound", Package: "internal/etcd",
		},
		{
			Name: "look-waits-for-all", Bug: "a check waits for a hanging member although another one has decided it", File: "lineage.go",
			Old: "agreeing <- clock\n\t\t\tenough()\n", New: "agreeing <- clock\n", Tests: "TestLookDoesNotWaitForAMemberThatHangs", Package: "internal/etcd",
		},
		{
			Name: "floor-is-compacted", Bug: "reports the compact revision itself as compacted", File: "check_revision.go",
			Old: `floor := c.past.floor(); revision < floor {`, New: `floor := c.past.floor(); revision <= floor {`, Tests: "TestCheckRevision", Package: "internal/etcd",
		},
		{
			Name: "verdict-one-late", Bug: "reports the next revision as readable", File: "check_revision.go",
			Old: `case revision > v.now:`, New: `case revision > v.now+1:`, Tests: "TestCheckRevision", Package: "internal/etcd",
		},
	}}
}
