package mutants

func serverGroup() Group {
	return Group{Package: "internal/edge/server", Mutants: append(serverChecks(), []Mutant{
		{
			Name: "drained-clients-come-back", Bug: "clients keep the connection to a draining node, and return through it", File: "drain.go",
			Old: `call.GoAway(); end()`, New: `_ = call; end()`, Tests: "TestADrainingNodeEndsTheConnectionsOfClients",
		},
		{
			Name: "stops-amid-calls", Bug: "cuts calls in progress", File: "drain.go",
			Old: `all.Go(func() error { return s.clients.Drain(ctx) })`, New: ``, Tests: "TestCallsEndBeforeTheServer",
		},
		{
			Name: "turn-kept-after-the-handshake", Bug: "a connection keeps its turn after its handshake", File: "handshake.go",
			Old: "\tnetlimit.Shaken(raw)\n", New: "\t_ = netlimit.Shaken\n", Tests: "TestHandshakesEndTheirTurn",
		},
		{
			Name: "json-served-as-grpc", Bug: "pumps for gRPC serve watches in JSON", File: "server.go",
			Old: "cfg.Etcd.Register(s.gateway, &s.webPumps)", New: "cfg.Etcd.Register(s.gateway, &s.pumps)", Tests: "TestWatchesInJSONTakeTurns",
		},
		{
			Name: "compresses-streams", Bug: "compresses streams for clients that compress requests", File: "uncompressed.go",
			Old: `if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {`, New: `if err := error(nil); err != nil {`,
			Tests: "TestNothingIsCompressedForClientsWithGzip", Package: "internal/node",
		},
		{
			Name: "compresses-answers", Bug: "compresses answers to clients that compress requests", File: "uncompressed.go",
			Old: `if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {`, New: `if err := error(nil); err != nil {`,
			Tests: "TestNothingIsCompressedForClientsWithGzip", Package: "internal/node",
		},
		{
			Name: "unread-answers-free", Bug: "does not count unread answers of unary calls", File: "clients.go",
			Old: "Unread: s.unreadAnswer, ", New: "", Tests: "TestUnreadAnswersOfCallsAreBounded",
		},
		{
			Name: "unread-calls-free", Bug: "does not count a call whose answer is not read", File: "admission.go",
			Old: "call.AtEnd(done)", New: "call.AtEnd(func() {})\n\t\tdefer done()", Tests: "TestACallIsOpenUntilItsAnswerIsSent",
		},
		{
			Name: "requests-of-strangers", Bug: "decodes the requests of callers without any right", File: "admission.go",
			Old: `err = mayNeed(ctx, caller, method)`, New: `_ = caller`, Tests: "TestRequestsWithoutRightsAreNotDecoded",
		},
		{
			Name: "requests-of-forgers", Bug: "decodes the requests of callers with a forged token, and audits them twice", File: "admission.go",
			Old: `	if err == nil {
		err = mayNeed(ctx, caller, method)
	}
`, New: `	if err != nil {
		return nil
	}
	err = mayNeed(ctx, caller, method)
`, Tests: "TestRequestsWithoutRightsAreNotDecoded",
		},
		{
			Name: "refusals-at-once", Bug: "answers refused calls as fast as a client makes them", File: "admission.go",
			Old: "\t\tcaller.Refused(ctx)\n", New: "\t\t_ = caller\n", Tests: "TestRefusedCallsWait",
		},
		{
			Name: "admin-without-right", Bug: "serves administrative calls to callers who are not administrators", File: "admission.go",
			Old: `err = caller.May(ctx, verb, kv.Range{})`, New: `_, _ = verb, kv.Range{}`, Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "orders-for-lookers", Bug: "accepts shard map changes from callers with read-only rights", File: "admission.go",
			Old: "\t\t\tverb = policy.OperatorWrite\n", New: "\t\t\t_ = policy.OperatorWrite\n", Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "members-for-strangers", Bug: "shows the cluster to callers without any right", File: "admission.go",
			Old: `"/grpc.reflection."):
		err = caller.Known(ctx)`, New: `"/grpc.reflection."):`, Tests: "TestThePolicyAdmitsCalls",
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
			Name: "cluster-for-strangers", Bug: "shows the cluster to callers without a user while etcd's authentication is on", File: "admission.go",
			Old: `_, err = s.callers.MayLook(ctx, caller)`, New: `_, _ = s.callers.MayLook(ctx, caller)`, Tests: "TestTheClusterIsShownToUsers",
		},
		{
			Name: "calls-not-given-back", Bug: "counts ended calls against the limit", File: "admission.go",
			Old: "call.AtEnd(done)", New: "_ = call", Tests: "TestEndedCallsAreNotCounted",
		},
		{
			Name: "streams-not-given-back", Bug: "counts ended streams against the limit", File: "admission.go",
			Old: "\t\t\tdone()\n\t\t\ts.called", New: "\t\t\t_ = done\n\t\t\ts.called", Tests: "TestEndedCallsAreNotCounted",
		},
		{
			Name: "refusal-not-audited", Bug: "does not audit an administrator's refused call", File: "admission.go",
			Old: "s.audit(ctx, caller, info.FullMethod, request, err)\n\t\treturn", New: "return", Tests: "TestThePolicyAdmitsCalls",
		},
		{
			Name: "request-held-after-its-call", Bug: "keeps the bytes of a request that arrives just after its call has ended", File: "admission.go",
			Old: "\tif k.ended {\n", New: "\tif false {\n", Tests: "TestARequestAfterTheEndOfItsCallHoldsNothing",
		},
		{
			Name: "drain-ends-early", Bug: "a drain returns before all watches have ended", File: "drain.go",
			Old: `if left == 0 {`, New: `if true {`, Tests: "TestDrainWaitsForClientsThatDoNotRead",
		},
		{
			Name: "turns-without-clients", Bug: "a client's compressed requests delay those of others", File: "clients.go",
			Old: `s.cfg.Turns.Take(ctx, netlimit.SourceOf(from))`, New: `s.cfg.Turns.Take(ctx, "")`, Tests: "TestClientsTakeTurnsToCompute",
		},
		{
			Name: "unread-streams-stay", Bug: "a drain keeps the connections of clients that do not read", File: "drain.go",
			Old: `if s.conns.cut(f.Client) {`, New: `if f.Client == nil {`, Tests: "TestDrainsEndStreamsThatAreNotRead",
		},
	}...)}
}
