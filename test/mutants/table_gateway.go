package mutants

func gatewayGroup() Group {
	return Group{Package: "internal/edge/gateway", Mutants: []Mutant{
		{
			Name: "json-decoded-in-one-go", Bug: "decodes a large request without yielding", File: "gateway.go",
			Old: "&yield.Reader{Reader: r, Part: quick}", New: "&yield.Reader{Reader: r, Part: 1 << 30}", Tests: "TestDecodingYields",
		},
		{
			Name: "probes-unshared", Bug: "queries etcd for each probe", File: "shared.go",
			Old: `time.Since(s.at) >= sharedFor`, New: `time.Since(s.at) >= 0`, Tests: "TestProbesShareAnswers",
		},
		{
			Name: "probes-cancelled", Bug: "a cancelled probe ends the read of all others", File: "shared.go",
			Old: `context.WithTimeout(s.life, s.timeout)`, New: `context.WithTimeout(ctx, s.timeout)`, Tests: "TestAnAttemptOutlivesItsProbe",
		},
		{
			Name: "json-deep", Bug: "decodes requests up to the decoder's own depth limit", File: "exchange.go",
			Old: "case b.nesting.deepest > maxDepth:", New: "case b.nesting.deepest > 1<<30:", Tests: "TestDeepRequestsAreRefused",
		},
		{
			Name: "json-depth-of-strings", Bug: "counts brackets inside strings as nesting", File: "exchange.go",
			Old: "\tcase d.quoted:\n\t\td.escaped = c == '\\\\'\n", New: "", Tests: "TestNesting",
		},
		{
			Name: "json-written-beside-its-pump", Bug: "a pump continues during the write of its message", File: "calls.go",
			Old: "\t\tif inTurn {\n", New: "\t\tif false {\n", Tests: "TestAPumpWaitsUntilItsMessageIsWritten",
		},
		{
			Name: "json-turn-of-a-wait", Bug: "an answer holds a turn while it waits for its client", File: "credentials.go",
			Old: "c.socket.Stalled() {\n\t\t\tc.end()\n", New: "c.socket.Stalled() {\n", Tests: "TestAnswersWaitWithoutATurn",
		},
		{
			Name: "json-unsent-unbounded", Bug: "the kernel buffers megabytes for an HTTP/1 client that does not read", File: "credentials.go",
			Old: "\tboundUnsent(conn)\n", New: "", Tests: "TestTheKernelHoldsLittleForClientsThatDoNotRead",
		},
		{
			Name: "json-decoded-at-once", Bug: "decodes large requests without a turn", File: "gateway.go",
			Old: `if b.Len() <= quick {`, New: `if b.Len() > 0 {`, Tests: "TestLargeRequestsAreDecodedInTurns",
		},
		{
			Name: "id-of-a-part", Bug: "assigns an ID to a part of a revision or unit: a client that resumes after it misses the rest", File: "events.go",
			Old: `if e.partial = !complete; !complete {`, New: `if e.partial = !complete; false {`, Tests: "TestEventIDs",
		},
		{
			Name: "progress-id-in-a-part", Bug: "progress changes the ID in the middle of a unit", File: "events.go",
			Old: `if !e.partial && !e.whole && p.GetRevision() > e.at {`, New: `if !e.whole && p.GetRevision() > e.at {`, Tests: "TestEventIDs",
		},
		{
			Name: "id-before-the-state", Bug: "sends an ID to a client without the state", File: "events.go",
			Old: `if !e.partial && !e.whole && p.GetRevision() > e.at {`, New: `if !e.partial && p.GetRevision() > e.at {`, Tests: "TestEventIDs",
		},
		{
			Name: "json-slow-reader", Bug: "lets a client take any time for an answer if it reads occasionally", File: "credentials.go",
			Old: `min(grace, pieceTimeout)`, New: `max(grace, pieceTimeout)`, Tests: "TestClientsThatDoNotReadAreCut",
		},
		{
			Name: "json-field-twice", Bug: "writes a field twice, or a list in two parts", File: "translate.go",
			Old: `case seen&(1<<number) != 0:`, New: `case false:`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-beyond-its-end", Bug: "reads a field past the end of its message", File: "translate.go",
			Old: ` || size > uint64(w.left):`, New: `:`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-kind", Bug: "accepts bytes for a number", File: "translate.go",
			Old: `case kind != field.wire() || `, New: `case `, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-skips-too-far", Bug: "skips an unknown field past the end of its message", File: "translate.go",
			Old: `if size < 0 || size > w.left {`, New: `if size < 0 {`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-whole-values", Bug: "buffers the JSON of a complete value", File: "translate.go",
			Old: `		w.left -= n
		w.flush(translatorBytes)`, New: `		w.left -= n`, Tests: "TestValuesAreWrittenInParts",
		},
		{
			Name: "json-defaults", Bug: "writes fields with their default values", File: "translate.go",
			Old: `case field.form == nil && value == 0 && size == 0:`, New: `case false:`, Tests: "TestAWatchIsWrittenAsAtEtcd",
		},
		{
			Name: "socket-in-parts", Bug: "sends a large WebSocket answer as several messages", File: "socket.go",
			Old: `	if len(text) < len(p) {
		err = w.end()
	}`, New: `	err = w.end()`, Tests: "TestLargeAnswersAreOneMessageOfAWebSocket", Package: "internal/node",
		},
		{
			Name: "json-objects", Bug: "accepts any number of objects in a request", File: "exchange.go",
			Old: `case b.objects > maxObjects:`, New: `case b.objects < 0:`, Tests: "TestJSONBodiesCostTheirSize", Package: "internal/node",
		},
		{
			Name: "json-rebinding", Bug: "accepts requests for any host at a loopback address", File: "hosts.go",
			Old: `return !ok || !isLoopback(at.LocalAddr)`, New: `return true`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "json-other-origin", Bug: "accepts writes from pages of another origin", File: "gateway.go",
			Old: `err := g.origins.Check(asWrite(r, socket)); err != nil`, New: `err := g.origins.Check(asWrite(r, socket)); err != nil && socket`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "json-host-unlisted", Bug: "accepts hosts that are not listed", File: "hosts.go",
			Old: "\treturn false\n}\n\nfunc isLoopback", New: "\treturn true\n}\n\nfunc isLoopback", Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "socket-of-other-origin", Bug: "accepts WebSockets from pages of another origin", File: "gateway.go",
			Old: `g.origins.Check(asWrite(r, socket))`, New: `g.origins.Check(r)`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
	}}
}
