package mutants

func etcdGroup() Group {
	return Group{Package: "internal/etcd", Mutants: []Mutant{
		{
			Name: "mux-joined-one-early", Bug: "a watch moves to the shared stream one revision early", File: "watch.go",
			Old: `return p.from > at`, New: `return p.from >= at`, Tests: "TestWatchMovesToTheSharedStream",
		},
		{
			Name: "mux-joined-at-once", Bug: "a watch moves to the shared stream before it has all events up to its start there", File: "watch.go",
			Old: `return p.from > at`, New: `return true`, Tests: "TestWatchMovesToTheSharedStream",
		},
		{
			Name: "mux-event-skipped", Bug: "omits the first event of the shared stream", File: "place.go",
			Old: `if u.Revision < p.from {`, New: `if u.Revision <= p.from {`, Tests: "TestWatchMovesToTheSharedStream",
		},
		{
			Name: "mux-event-twice", Bug: "delivers events again that the watch's own stream has delivered", File: "place.go",
			Old: `if u.Revision < p.from {`, New: `if false {`, Tests: "TestWatchThatIsAheadMoves",
		},
		{
			Name: "mux-answer-before-announcement", Bug: "applies the shared stream's progress to a watch that is not announced", File: "mux.go",
			Old: "if w.a == nil {\n\t\treturn nil\n", New: "if w.a == nil {\n\t\tw.a = newAssembly(r.revision + 1)\n\t\tw.places[0].begin(r.revision)\n\t\treturn nil\n", Tests: "TestProgressBeforeTheAnnouncementIsOfTheOthers",
		},
		{
			Name: "mux-slow-dropped", Bug: "ends a watch with a slow consumer", File: "follow.go",
			Old: `if errors.As(err, &why) {`, New: `if false && errors.As(err, &why) {`, Tests: "TestSlowConsumerLeavesTheSharedStream",
		},
		{
			Name: "mux-queue-unbounded", Bug: "queues without a bound for a slow consumer", File: "mux.go",
			Old: `case n > 0 && p.bytes+size > placeBytes:`, New: `case false:`, Tests: "TestSlowConsumerLeavesTheSharedStream",
		},
		{
			Name: "mux-ended-not-cancelled", Bug: "keeps a watch that etcd has ended on the shared stream, which blocks the others' progress", File: "upstream.go",
			Old: `if w.a != nil {`, New: `if w.a != nil && p.left != leftEnded {`, Tests: "TestOneWatchOfTheSharedStreamIsCompacted",
		},
		{
			Name: "mux-never-shed", Bug: "lets one watch block the progress of all", File: "mux.go",
			Old: `if most != nil {`, New: `if most != nil && false {`, Tests: "TestWatchThatSilencesTheSharedStreamLeaves",
		},
		{
			Name: "mux-shed-least", Bug: "removes the watch with the fewest events", File: "mux.go",
			Old: `w.lively > most.lively`, New: `w.lively < most.lively`, Tests: "TestWatchThatSilencesTheSharedStreamLeaves",
		},
		{
			Name: "mux-of-two-histories", Bug: "watches of two histories share a stream", File: "mux.go",
			Old: `s.now != nil && s.now.lineage == lineage`, New: `s.now != nil`, Tests: "TestSharedStreamIsOfOneHistory",
		},
		{
			Name: "mux-of-a-former-history", Bug: "starts a shared stream for a history that is no longer followed", File: "mux.go",
			Old: `if adopted, _ := c.Known(); adopted != lineage {`, New: `if false {`, Tests: "TestSharedStreamIsOfOneHistory",
		},
		{
			Name: "mux-of-restored-etcd", Bug: "watches of a restored etcd share a stream", File: "mux.go",
			Old: `m.c.Admit(m.ctx, m.lineage); err != nil`, New: `m.c.Admit(m.ctx, m.lineage); false && err != nil`, Tests: "TestSharedStreamOfARestoredEtcd",
		},
		{
			Name: "mux-stale-token", Bug: "watches join a shared stream whose token has expired", File: "mux.go",
			Old: "return etcdconn.ErrToken // of", New: "m.leaveAllLocked(w, leftLogin)\n\t\treturn nil // of", Tests: "TestSharedStreamOfAnOldLogin",
		},
		{
			Name: "mux-storm", Bug: "starts shared streams as fast as they break", File: "mux.go",
			Old: `if now.Before(s.next) || s.closed {`, New: `if s.closed {`, Tests: "TestSharedStreamsBeginAtLimitedIntervals",
		},
		{
			Name: "mux-question-for-each", Bug: "forgets waiting consumers when a watch moves to the shared stream", File: "place.go",
			Old: `req.Want.Serve(p.from-1, at.await)`, New: `req.Want.Serve(1<<62, at.await)`, Tests: "TestWantIsCarriedToTheSharedStream",
		},
		{
			Name: "mux-idle-not-told", Bug: "sends no progress to a consumer that does not request it", File: "mux.go",
			Old: `(waits || now.Sub(p.taken) >= m.c.cfg.ProgressIdle/2)`, New: `waits`, Tests: "TestIdleWatchesOfTheSharedStreamMakeProgress",
		},
		{
			Name: "run-too-early", Bug: "the watch of a run takes over at a revision that it has not reached exactly", File: "upstream.go",
			Old: `if w.a == nil || w.a.done != revision {`, New: `if w.a == nil {`, Tests: "TestRunTakesOverWithoutAGap",
		},
		{
			Name: "one-range-brings-while-it-forms", Bug: "accepts events from the watch of one range before it takes over", File: "upstream.go",
			Old: `if p := w.places[0]; p.on == w {
			m.queueLocked(p, kv.Update{Kind: kv.UpdateBatch`, New: `if p := w.places[0]; true {
			m.queueLocked(p, kv.Update{Kind: kv.UpdateBatch`, Tests: "TestRunContinuesWithoutOneOfItsRanges",
		},
		{
			Name: "run-brings-while-it-forms", Bug: "accepts events from the watch of a run before it takes over", File: "upstream.go",
			Old: `if p := w.places[i]; p.on == w {`, New: `if p := w.places[i]; true {`, Tests: "TestRunTakesOverWithoutAGap",
		},
		{
			Name: "run-progress-before-its-ranges", Bug: "accepts progress from the watch of a run before it takes over", File: "mux.go",
			Old: "		if p.on != w {\n			continue\n		}\n		if p.done < w.a.done {", New: "		if p.done < w.a.done {", Tests: "TestRunTakesOverWithoutAGap",
		},
		{
			Name: "run-event-proves-nothing", Bug: "asks etcd for the progress of ranges whose run has delivered an event", File: "mux.go",
			Old: `if p.done < w.a.done {`, New: `if p.done < w.a.done && len(w.places) == 1 {`, Tests: "TestAdjacentRangesShareAWatch",
		},
		{
			Name: "run-progress-for-event", Bug: "advances a range of a run to a revision without its events", File: "upstream.go",
			Old: `for i, part := range b.Split(w.ranges) {`, New: `for i, part := range b.Split(w.ranges[:1]) {`, Tests: "TestRunTakesOverWithoutAGap",
		},
		{
			Name: "run-refused-again", Bug: "repeatedly requests a run that etcd refuses", File: "mux.go",
			Old: `m.apart = m.apart || w.forming`, New: ``, Tests: "TestRunThatDoesNotForm",
		},
		{
			Name: "run-ends-its-ranges", Bug: "ends the watches of a run that fails to form", File: "mux.go",
			Old: "case p.next == w:\n\t\t\tm.dropLocked(p, w)", New: "case p.next == w:\n\t\t\tm.leaveLocked(p, why)", Tests: "TestRunThatDoesNotForm",
		},
		{
			Name: "run-keeps-one-that-left", Bug: "includes a watch that has left in a forming run", File: "mux.go",
			Old: "if p.next != nil {\n\t\tm.dropLocked(p, p.next)", New: "if false {\n\t\tm.dropLocked(p, p.next)", Tests: "TestWatchLeavesWhileItsRunForms",
		},
		{
			Name: "run-sheds-one", Bug: "removes one range from a run that blocks etcd's progress reports", File: "mux.go",
			Old: "case p.on == w:\n\t\t\tm.leaveLocked(p, why)", New: "case p.on == w:\n\t\t\tm.leaveLocked(p, why)\n\t\t\treturn", Tests: "TestRunThatSilencesTheSharedStreamLeaves|TestRunIsCompacted",
		},
		{
			Name: "run-too-large", Bug: "ends the watches of a run when a revision is too large for a response", File: "mux.go",
			Old: `err = leftOversize`, New: ``, Tests: "TestRunWithALargeRevision",
		},
		{
			Name: "run-kept-without-its-ranges", Bug: "does not notice that a watch has left its run", File: "upstream.go",
			Old: `m.stale = true`, New: ``, Tests: "TestRunContinuesWithoutOneOfItsRanges",
		},
		{
			Name: "run-starves", Bug: "forms no runs while watches join or leave", File: "place.go",
			Old: `p.m.stale = true`, New: `p.m.stale, p.m.shaped = true, time.Now()`, Tests: "TestRunFormsWhileWatchesJoin",
		},
		{
			Name: "run-forms-at-once", Bug: "forms runs again with each watch that joins or leaves", File: "upstream.go",
			Old: `now.Sub(m.shaped) < m.c.muxes.pause`, New: `false`, Tests: "TestRunFormsWhileWatchesJoin",
		},
		{
			Name: "run-too-wide", Bug: "keeps the watch of a run after some of its ranges have left", File: "upstream.go",
			Old: `on.r == r && on.used == len(places)`, New: `on.used >= len(places)`, Tests: "TestRunContinuesWithoutOneOfItsRanges",
		},
		{
			Name: "stalled-member-kept", Bug: "keeps a watch at a member that answers without progress", File: "asker.go",
			Old: `unmet && a.reception.Stale(`, New: `unmet && false && a.reception.Stale(`, Tests: "TestMemberThatSendsIsKept",
		},
		{
			Name: "hung-left-at-rest", Bug: "leaves a member that supposedly hangs although no consumer waits", File: "asker.go",
			Old: `unmet && a.reception.Stale(`, New: `(unmet || true) && a.reception.Stale(`, Tests: "TestMemberThatSendsIsKept",
		},
		{
			Name: "hung-left-for-slow-consumer", Bug: "leaves a member because the consumer is busy", File: "etcddemand/reception.go",
			Old: "if r.ready.Load() == 0 {", New: `if false {`, Tests: "TestReception", Package: "internal/etcd/etcddemand",
		},
		{
			Name: "busy-counts-as-silence", Bug: "treats a slow consumer as a silent stream", File: "etcddemand/reception.go",
			Old: "if ready == 0 {", New: `if false {`, Tests: "TestReception", Package: "internal/etcd/etcddemand",
		},
		{
			Name: "repeated-answer-is-new", Bug: "treats a repeated answer as progress", File: "etcddemand/reception.go",
			Old: `revision > r.newest`, New: `revision >= r.newest`, Tests: "TestReception", Package: "internal/etcd/etcddemand",
		},
		{
			Name: "old-events-are-not-new", Bug: "does not count events that the watch lacks as new", File: "etcddemand/reception.go",
			Old: `events || revision > r.newest`, New: `revision > r.newest`, Tests: "TestReception", Package: "internal/etcd/etcddemand",
		},
		{
			Name: "need-counts-from-news", Bug: "leaves a member as soon as a consumer begins to wait", File: "etcddemand/reception.go",
			Old: `min(at-time.Duration(r.news.Load()), at-since)`, New: `at - time.Duration(r.news.Load())`, Tests: "TestReception", Package: "internal/etcd/etcddemand",
		},
		{
			Name: "history-unbounded", Bug: "reads any number of revisions of etcd's log", File: "since.go",
			Old: `if from = oldest; req`, New: `if req`, Tests: "TestFollowDeliversTheHistorySince",
		},
		{
			Name: "history-dropped-silently", Bug: "does not log that more was written since the last save than a node reads", File: "since.go",
			Old: `req.HistoryFrom > 1 {`, New: `false {`, Tests: "TestFollowDeliversTheHistorySince",
		},
		{
			Name: "history-of-no-save-dropped", Bug: "a node that has saved nothing logs that its history is too long", File: "since.go",
			Old: `req.HistoryFrom > 1 {`, New: `true {`, Tests: "TestFollowDeliversTheHistorySince",
		},
		{
			Name: "watermark-from-header", Bug: "uses the header's revision as progress although the response has events", File: "assemble.go",
			Old: "\tif !a.fragments {\n\t\ta.flush(now)\n\t}\n", New: "\tif !a.fragments {\n\t\ta.flush(now)\n\t}\n\ta.done = max(a.done, r.revision)\n", Tests: "TestAssembly",
		},
		{
			Name: "fragment-applied-early", Bug: "applies a revision before its last fragment has arrived", File: "assemble.go",
			Old: "if !a.fragments {\n\t\ta.flush(now)", New: "{\n\t\ta.flush(now)", Tests: "TestAssembly",
		},
		{
			Name: "starts-one-late", Bug: "the assembler starts one revision late", File: "assemble.go",
			Old: `case revision < a.from:`, New: `case revision <= a.from:`, Tests: "TestAssembly",
		},
		{
			Name: "event-repeated", Bug: "the assembler applies a revision again", File: "assemble.go",
			Old: `case revision <= a.done || revision < a.open:`, New: `case revision < a.done || revision < a.open:`, Tests: "TestAssembly",
		},
		{
			Name: "progress-amid-fragments", Bug: "accepts progress between fragments", File: "assemble.go",
			Old: `if len(r.events) == 0 && !r.fragment && !a.fragments {`, New: `if len(r.events) == 0 {`, Tests: "TestAssembly",
		},
		{
			Name: "answer-of-other-watch", Bug: "accepts the answer to another watch", File: "assemble.go",
			Old: `if !a.announced || (r.watch != a.id && r.watch != anyWatch) {`, New: `if !a.announced {`, Tests: "TestAssembly",
		},
		{
			Name: "answer-before-created", Bug: "accepts an answer before etcd has created the watch", File: "assemble.go",
			Old: `if !a.announced || (r.watch`, New: `if (r.watch`, Tests: "TestAssembly",
		},
		{
			Name: "begun-at-its-first-revision", Bug: "treats a watch as started although etcd may have compacted its first revision", File: "assemble.go",
			Old: `a.begun = a.from > r.revision`, New: `a.begun = a.from >= r.revision`, Tests: "TestAssemblyBegins|TestAssemblyBeginsAtItsRevision",
		},
		{
			Name: "compacted-below-position", Bug: "reports a compact revision other than the next one", File: "assemble.go",
			Old: `Requested: a.done + 1, Floor`, New: `Requested: a.done, Floor`, Tests: "TestAssemblyCompacted",
		},
		{
			Name: "leap-below-held", Bug: "compares keys with an etcd that has not reached the held revision", File: "leap.go",
			Old: `if revision < l.at {`, New: `if false {`, Tests: "TestLeapBelowTheHeldRevision",
		},
		{
			Name: "empty-leap-below-held", Bug: "treats all keys as deleted at an etcd that has not reached the held revision", File: "leap.go",
			Old: `if l.revision < l.at {`, New: `if false {`, Tests: "TestLeapBelowTheHeldRevision",
		},
		{
			Name: "leap-at-held-refused", Bug: "refuses a difference from etcd's current revision", File: "leap.go",
			Old: `if revision < l.at {`, New: `if revision <= l.at {`, Tests: "TestLeapBelowTheHeldRevision",
		},
		{
			Name: "leap-of-other-values", Bug: "accepts the values of other keys than the listed ones", File: "leap.go",
			Old: `if !slices.EqualFunc(got, r, same) {`, New: `if false && !slices.EqualFunc(got, r, same) {`, Tests: "TestValuesMustBeThoseOfTheList",
		},
		{
			Name: "leap-of-other-revision", Bug: "accepts values of another revision than the list's", File: "leap.go",
			Old: `bytes.Equal(a.GetKey(), b.GetKey()) && a.GetModRevision() == b.GetModRevision()`, New: `bytes.Equal(a.GetKey(), b.GetKey())`, Tests: "TestValuesMustBeThoseOfTheList",
		},
		{
			Name: "leap-answer-too-short", Bug: "reads beyond the end of the answers", File: "leap.go",
			Old: `if i >= len(resp.GetResponses()) {`, New: `if false {`, Tests: "TestValuesMustBeThoseOfTheList",
		},
		{
			Name: "state-of-restored-etcd", Bug: "serves the state of a restored etcd", File: "follow.go",
			Old: `err = c.Admit(ctx, req.Lineage)`, New: `_ = c.Admit(ctx, req.Lineage)`, Tests: "TestNothingOfARestoredEtcdIsServed",
		},
		{
			Name: "past-of-restored-etcd", Bug: "serves the history of a restored etcd", File: "history.go",
			Old: `one.err = c.Admit(ctx, 0)`, New: `_ = c.Admit(ctx, 0)`, Tests: "TestNothingOfARestoredEtcdIsServed",
		},
		{
			Name: "watch-of-restored-etcd", Bug: "watches a restored etcd", File: "watch.go",
			Old: `w.c.Admit(w.stream.Context(), w.req.Lineage); err != nil`, New: `w.c.Admit(w.stream.Context(), w.req.Lineage); false && err != nil`, Tests: "TestNothingOfARestoredEtcdIsServed",
		},
		{
			Name: "future-counts-as-present", Bug: "uses the start of a watch from the future as etcd's revision", File: "watch.go",
			Old: `if len(updates) > 0 { // else`, New: `if true { // else`, Tests: "TestWatchFromTheFutureIsNoRestore",
		},
		{
			Name: "permit-given-back-early", Bug: "returns the permit one revision early", File: "watch.go",
			Old: `p.from > p.until {`, New: `p.from >= p.until {`, Tests: "TestFarBehindWatchKeepsItsPermit",
		},
		{
			Name: "permit-kept", Bug: "keeps the permit of a watch that has caught up", File: "follow.go",
			Old: "p.release()\n\t\tp.release = nil", New: `p.release = nil`, Tests: "TestFarBehindWatchKeepsItsPermit",
		},
		{
			Name: "second-permit", Bug: "takes a second permit for one watch", File: "follow.go",
			Old: `return p.release == nil && now-p.from`, New: `return now-p.from`, Tests: "TestFarBehindBegins",
		},
		{
			Name: "given-up-history-read", Bug: "reads history for a caller that has stopped waiting", File: "history.go",
			Old: "case <-ctx.Done():\n\t\t\tc.pastReads.remove(one)", New: `case <-ctx.Done():`, Tests: "TestCanceledHistoryRequestsAreNotRead",
		},
		{
			Name: "history-beside-events", Bug: "reads history on the watches' connection", File: "history.go",
			Old: `c.openWatch(ctx, c.Past,`, New: `c.openWatch(ctx, c.Watches,`, Tests: "TestThePastDoesNotDelayEvents",
		},
		{
			Name: "unpermitted-history-read", Bug: "reads history for a caller without a permit", File: "history.go",
			Old: "if err != nil {\n\t\t\t\tc.pastReads.remove(one)", New: `if err != nil {`, Tests: "TestCanceledHistoryRequestsAreNotRead",
		},
		{
			Name: "history-turn-kept", Bug: "keeps the turn for reading history", File: "history.go",
			Old: "<-c.historian\n\t\t\tif err", New: `if err`, Tests: "TestCanceledHistoryRequestsAreNotRead",
		},
		{
			Name: "history-of-no-request", Bug: "uses the answer to another watch for a history request", File: "history.go",
			Old: `case id >= 1 && id <= int64(len(batch)):`, New: `case id >= 1:`, Tests: "TestAnswerToNoHistoryRequest",
		},
		{
			Name: "history-refusal-for-all", Bug: "one refused history request fails the others", File: "history.go",
			Old: `if r.created && r.canceled && id == anyWatch {`, New: `if false {`, Tests: "TestAnswerToNoHistoryRequest",
		},
		{
			Name: "history-not-cut", Bug: "decodes a complete response even if only a part is needed", File: "response.go",
			Old: `r.keep > 0 && r.bytes >= r.keep && r.cutBefore(v)`, New: `false && r.cutBefore(v)`, Tests: "TestAResponseIsCut",
		},
		{
			Name: "history-cut-in-a-revision", Bug: "cuts a response inside a revision", File: "response.go",
			Old: `r.cut = err == nil && e.KV.ModRevision() != r.events[len(r.events)-1].KV.ModRevision()`, New: `r.cut = err == nil`, Tests: "TestAResponseIsCut",
		},
		{
			Name: "history-cut-as-fragment", Bug: "a page that ends in a fragment has no event, and is read again forever", File: "history.go",
			Old: `r.fragment = r.fragment && !r.cut`, New: ``, Tests: "TestSmallPagesOfLargeValues",
		},
		{
			Name: "history-large-again", Bug: "requests a too large answer again in one piece", File: "history.go",
			Old: `		c.largePast = spanOf(batch)`, New: ``, Tests: "TestHistoryOfLargeValues",
		},
		{
			Name: "history-large-for-ever", Bug: "requests all revisions after a large response in fragments", File: "history.go",
			Old: `s.from <= one.From && one.From < s.to`, New: `s.from <= one.From`, Tests: "TestLargePast",
		},
		{
			Name: "history-one-more", Bug: "sends history up to one revision beyond the requested one", File: "history.go",
			Old: `u.Revision < one.Before {`, New: `u.Revision <= one.Before {`, Tests: "TestAPartOfThePastEndsBeforeItsBound",
		},
	}}
}
