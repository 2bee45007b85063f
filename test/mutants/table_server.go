package mutants

func serverGroup() Group {
	return Group{Package: "internal/server", Mutants: append(serverChecks(), []Mutant{
		{
			Name: "landing-kept-after-release", Bug: "keeps what is opened for a watch that was canceled meanwhile", File: "watch.go",
			Old: `w.climb.landed.Swap(&landed{})`, New: `w.climb.landed.Swap(nil)`, Tests: "TestCanceledWhileItsStateEnds",
		},
		{
			Name: "turns-of-connections", Bug: "each connection of a client has its own turn", File: "stream.go",
			Old: `	case s.holder.Name != "":`, New: `	case false:`, Tests: "TestStreamsOfAClientShareItsTurn",
		},
		{
			Name: "units-of-nobody", Bug: "one client's units hold all bytes that there are for keys of other nodes", File: "units.go",
			Old: "router.ReadRequest{Range: key.rng, Holder: holder}", New: "router.ReadRequest{Range: key.rng}", Tests: "TestUnitsOfOneClientLeaveRoomForOthers",
		},
		{
			Name: "units-refused-for-another", Bug: "refuses a unit to a client because another one has its part", File: "units.go",
			Old: "if errors.As(err, new(*kv.LimitError)) {\n\t\tif other", New: "if err == nil {\n\t\tif other", Tests: "TestUnitsOfOneClientLeaveRoomForOthers",
		},
		{
			Name: "turn-kept-after-the-handshake", Bug: "keeps a connection's turn after its handshake", File: "handshake.go",
			Old: "\tnetlimit.Shaken(raw)\n", New: "\t_ = netlimit.Shaken\n", Tests: "TestHandshakesEndTheirTurn",
		},
		{
			Name: "compresses-streams", Bug: "compresses streams for clients that compress requests", File: "uncompressed.go",
			Old: `if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {`, New: `if err := error(nil); err != nil {`,
			Tests: "TestNothingIsCompressedForClientsWithGzip", Package: "internal/node",
		},
		{
			Name: "delta-across-lineages", Bug: "sends a delta to a watch whose position is of another lineage", File: "sync.go",
			Old: `case errors.As(err, &lineage) && w.phase == creating:`,
			New: `case errors.As(err, &lineage):
		w.follows.lineage = lineage.Current
		return w.delta(), true
	case errors.As(err, &lineage) && w.phase == creating:`, Tests: "TestAnotherLineageResyncs|TestLineageEndsWhileWatching",
		},
		{
			Name: "resync-misses-chunk", Bug: "omits a chunk of a resync", File: "sync.go",
			Old: `if part.keys > 0 {`, New: `if part.keys > 0 && c.part != 2 {`, Tests: "TestLadder",
		},
		{
			Name: "position-before-end", Bug: "moves the position at the beginning of a unit", File: "sync.go",
			Old: `c.begun = true`, New: `c.begun, w.at = true, body.Revision`, Tests: "TestLadder|TestUnitBeginsAgainElsewhere",
		},
		{
			Name: "page-of-another-revision", Bug: "reads the next page at another revision", File: "read.go",
			Old: `req.Revision, options.From = p.Revision, p.Next`, New: `options.From = p.Next`, Tests: "TestListIsOneRevision|TestListEdges",
		},
		{
			Name: "page-of-any-lineage", Bug: "accepts a page token of another lineage", File: "read.go",
			Old: `(history{p.Cluster, p.Lineage}).judge(here, "page token"); err != nil`, New: `(history{p.Cluster, p.Lineage}).judge(here, "page token"); false && err != nil`, Tests: "TestListEdges|TestReadsOfAnotherClustersRevision",
		},
		{
			Name: "foreign-token-renamed", Bug: "issues a token of this cluster for a position of another one", File: "watch.go",
			Old: `Cluster: w.in.cluster,`, New: `Cluster: w.follows.cluster,`, Tests: "TestAnotherClustersPositionResyncs",
		},
		{
			Name: "read-of-any-lineage", Bug: "reads at a revision that was learned in another lineage", File: "read.go",
			Old: `return claimed(clusterID, lineage, here).judge(here, "revision")`, New: `return nil`, Tests: "TestReadsOfAnotherClustersRevision",
		},
		{
			Name: "position-of-any-cluster", Bug: "accepts a position that another cluster issued", File: "stream.go",
			Old: `case h.cluster != here.cluster:`, New: `case false:`, Tests: "TestJudgeAPosition|TestAnotherClustersPositionResyncs",
		},
		{
			Name: "position-of-older-lineage", Bug: "accepts a position of an earlier lineage", File: "stream.go",
			Old: `case h.lineage != 0 && h.lineage != here.lineage:`, New: `case h.lineage > here.lineage:`, Tests: "TestJudgeAPosition|TestAnotherLineageResyncs",
		},
		{
			Name: "resume-repeats-revision", Bug: "resumes at the revision of the token instead of after it", File: "stream.go",
			Old: `out.from, out.in, what = p.Revision+1,`, New: `out.from, out.in, what = p.Revision,`, Tests: "TestLadder|TestSlowReaderFallsOntoDeltas|TestAnotherLineageResyncs|TestAnotherClustersPositionResyncs|TestLadderModel",
		},
		{
			Name: "cancelled-watch-counted", Bug: "a watch that has ended still counts against the caller's limit", File: "stream.go",
			Old: "\n\taccess.CloseWatch(s.srv.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\n", Tests: "TestWhatHasEndedIsNotCounted",
		},
		{
			Name: "closed-stream-counted", Bug: "the watches of a stream that has ended count against the caller's limit", File: "stream.go",
			Old: "\t\taccess.CloseWatch(s.srv.cfg.Budget, s.holder, s.caller, w.rng)\n", New: "\t\t_ = w\n", Tests: "TestWhatHasEndedIsNotCounted",
		},
		{
			Name: "watch-limit-exceeded", Bug: "lets a caller open more watches than its limit", File: "stream.go",
			Old: `full = access.OpenWatch(s.srv.cfg.Budget, s.holder, s.caller, rng)`, New: `full = nil`, Tests: "TestWhatHasEndedIsNotCounted",
		},
		{
			Name: "watches-per-stream-exceeded", Bug: "lets a stream have one watch too many", File: "stream.go",
			Old: `len(s.watches) >= s.srv.cfg.MaxWatchesPerStream`, New: `len(s.watches) > s.srv.cfg.MaxWatchesPerStream`, Tests: "TestTooManyWatches",
		},
		{
			Name: "watch-id-reused", Bug: "a watch takes the place of another one with its ID", File: "stream.go",
			Old: `if s.watches[id] != nil {`, New: `if false {`, Tests: "TestStreamRefused|TestWatchRefused",
		},
		{
			Name: "watch-not-permitted", Bug: "opens watches that the policy does not allow", File: "stream.go",
			Old: `err = s.caller.May(s.ctx, policy.Watch, rng)`, New: `_ = policy.Watch`, Tests: "TestAPolicyThatChangesEndsWatches",
		},
		{
			Name: "drain-ends-early", Bug: "a drain returns before all watches have ended", File: "drain.go",
			Old: `if left == 0 {`, New: `if true {`, Tests: "TestDrainWaitsForClientsThatDoNotRead",
		},
		{
			Name: "unread-streams-stay", Bug: "a drain leaves the connections of clients that do not read", File: "drain.go",
			Old: `if s.conns.cut(f.client) {`, New: `if f.client == nil {`, Tests: "TestDrainsEndStreamsThatAreNotRead",
		},
		{
			Name: "drain-lets-in", Bug: "a node that drains accepts new streams", File: "server.go",
			Old: "if s.draining {\n\t\treturn false", New: "if false {\n\t\treturn false", Tests: "TestDrainIsPaced|TestDrain",
		},
		{
			Name: "farewell-takes-all-time", Bug: "a drain leaves clients no time to read", File: "drain.go",
			Old: `took = min(took, time.Until(end)/2)`, New: `took = min(took, time.Until(end))`, Tests: "TestTheTimeThatAFarewellTakes",
		},
		{
			Name: "farewell-forgets-rest", Bug: "watches that were not told in time are not told at all", File: "drain.go",
			Old: `return told, all
		}`, New: `return told, nil
		}`, Tests: "TestTheTimeThatAFarewellTakes",
		},
		{
			Name: "sent-on-once", Bug: "a node can send its clients on only once", File: "drain.go",
			Old: "\ts.moved = make(chan struct{})\n", New: "\ts.moved = nil\n", Tests: "TestClientsAreSentOn",
		},
		{
			Name: "admin-without-right", Bug: "serves administration to callers who are no administrators", File: "admission.go",
			Old: `err = caller.May(ctx, verb, kv.Range{})`, New: `_, _ = verb, kv.Range{}`, Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "orders-for-lookers", Bug: "takes orders from callers who may only look", File: "admission.go",
			Old: "\t\t\tverb = policy.OperatorWrite\n", New: "\t\t\t_ = policy.OperatorWrite\n", Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "members-for-strangers", Bug: "tells callers without any right about the cluster", File: "admission.go",
			Old: `err = caller.Known(ctx)`, New: ``, Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "large-calls", Bug: "does not bound the messages of calls", File: "admission.go",
			Old: `if err = fits(caller, request); err == nil {`, New: `if err == nil {`, Tests: "TestMessagesOfAnIdentityAreBounded", Package: "internal/node",
		},
		{
			Name: "large-stream-messages", Bug: "does not bound the messages of streams", File: "admission.go",
			Old: `	return fits(b.caller, m)
`, New: `	return nil
`, Tests: "TestMessagesOfAnIdentityAreBounded", Package: "internal/node",
		},
		{
			Name: "large-json-calls", Bug: "does not bound the messages of the JSON API", File: "server.go",
			Old: `Unary: s.unaryJSON,`, New: `Unary: s.called.unary,`, Tests: "TestMessagesOfAnIdentityAreBounded", Package: "internal/node",
		},
		{
			Name: "cluster-for-strangers", Bug: "shows the cluster without a user while etcd's authentication is on", File: "admission.go",
			Old: `_, err = s.callers.MayLook(ctx, caller)`, New: `_, _ = s.look(ctx, caller)`, Tests: "TestTheClusterIsShownToUsers",
		},
		{
			Name: "calls-not-given-back", Bug: "calls that have ended count against the limit", File: "admission.go",
			Old: "defer done()\n\tvar answer", New: "_ = done\n\tvar answer", Tests: "TestWhatHasEndedIsNotCounted",
		},
		{
			Name: "streams-not-given-back", Bug: "streams that have ended count against the limit", File: "admission.go",
			Old: "defer done()\n\tif caller.Bounded", New: "_ = done\n\tif caller.Bounded", Tests: "TestWhatHasEndedIsNotCounted",
		},
		{
			Name: "refusal-not-audited", Bug: "an administrator's call that is refused is not written down", File: "admission.go",
			Old: "s.audit(ctx, caller, info.FullMethod, request, err)\n\t\treturn", New: "return", Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "policy-change-ignored", Bug: "watches go on after the policy forbids them", File: "admission.go",
			Old: `w.end(ended(err, nil))`, New: `_, _ = w, err`, Tests: "TestAPolicyThatChangesEndsWatches",
		},
		{
			Name: "stale-watch-goes-on", Bug: "a watch whose age is not known is as fresh as when it was last known", File: "age.go",
			Old: `if age = now.Sub(w.freshAt); age <= w.maxStaleness {`, New: `if age <= w.maxStaleness {`, Tests: "TestAWatchIsStaleAfterItsBound",
		},
		{
			Name: "stale-at-bound", Bug: "a watch is stale at just the age that it allows", File: "age.go",
			Old: `age <= w.maxStaleness {`, New: `age < w.maxStaleness {`, Tests: "TestAWatchIsStaleAfterItsBound",
		},
	}...)}
}
