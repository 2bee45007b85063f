package mutants

func grpcserverGroup() Group {
	return Group{Package: "internal/edge/grpcserver", Mutants: []Mutant{
		{
			Name: "refused-requests-are-kept", Bug: "keeps the bytes of a request after its call is refused", File: "stream.go",
			Old: `	if s.refused {`, New: `	if s.refused && end {`, Tests: "TestARefusedRequestIsNotKept",
		},
		{
			Name: "refused-requests-without-end", Bug: "receives everything that a client sends in a refused call", File: "stream.go",
			Old: `!s.halfClosed && !s.tooLongLocked()`, New: `!s.halfClosed`, Tests: "TestARefusedRequestIsNotKept",
		},
		{
			Name: "refused-head-is-not-read", Bug: "receives a refused message that announces too much like any other", File: "stream.go",
			Old: `s.got > messageHead+most || len(s.in) == messageHead &&`, New: `s.got > messageHead+most || s.got < 0 &&`, Tests: "TestARefusedRequestIsNotKept",
		},
		{
			Name: "first-streams-before-the-keepalive", Bug: "a drain closes a connection that is opening its first streams", File: "conn.go",
			Old: `		err = c.settle() // before the first stream: see drain
	}
	if err != nil {
		return err
	}
	return c.readAll(r)`, New: `		err = c.readAll(r)
	}
	if err != nil {
		return err
	}
	return c.settle()`, Tests: "TestDrainOfFirstStreams",
		},
		{
			Name: "web-broken-answer-ends", Bug: "ends an answer that its handler has broken off as if it were complete", File: "web.go",
			Old: `c.resetLocked(w.id, http2.ErrCodeInternal)`, New: `c.resetLocked(w.id, http2.ErrCodeNo)`, Tests: "TestWebRequestsThatFail",
		},
		{
			Name: "web-cut-resets", Bug: "ends a truncated answer with a reset", File: "web.go",
			Old: `		w.endLocked()
	} else if`, New: `		w.conn.resetLocked(w.id, http2.ErrCodeInternal)
		w.conn.flushLocked()
	} else if`, Tests: "TestCutAnswer",
		},
		{
			Name: "web-cut-without-headers", Bug: "fails a request whose answer is cut before its headers", File: "web.go",
			Old: `http2.ErrCodeRefusedStream`, New: `http2.ErrCodeInternal`, Tests: "TestCutBeforeTheAnswer",
		},
		{
			Name: "web-without-deadline", Bug: "waits forever for a client that does not read an answer", File: "web.go",
			Old: `w.at(1, at, w.abort)`, New: `w.at(1, at, func() {})`, Tests: "TestWebRequestsThatFail",
		},
		{
			Name: "web-takes-calls", Bug: "handles gRPC calls as plain requests", File: "open.go",
			Old: `if !r.IsCall() && c.srv.cfg.HTTP != nil {`, New: `if c.srv.cfg.HTTP != nil {`, Tests: "TestWebRequestsBesideCalls",
		},
		{
			Name: "grpc-accepts-all", Bug: "accepts all pending connections before any other goroutine runs", File: "server.go",
			Old: "accepted.Did(1, maxAccepts)", New: "accepted.Did(0, maxAccepts)", Tests: "TestConnectionsAreAcceptedInTurns",
		},
		{
			Name: "grpc-parks-at-the-end", Bug: "treats the end of a client's messages as a message for its handler", File: "park.go",
			Old: " && !s.drained", New: "", Tests: "TestParkedHandlerIsResumed",
		},
		{
			Name: "grpc-parks-past-a-message", Bug: "parks a handler while a second message has arrived", File: "park.go",
			Old: " || len(s.call.rest) > 0", New: "", Tests: "TestParkedHandlerIsResumed",
		},
		{
			Name: "grpc-parked-for-ever", Bug: "does not resume a parked handler", File: "park.go",
			Old: "\tif s.parked != nil {", New: "\tif false {", Tests: "TestParkedHandlerIsResumed",
		},
		{
			Name: "grpc-stops-between-messages", Bug: "does not stop receiving in the middle of a message", File: "stream.go",
			Old: "\t\tcase s.deaf:\n\t\t\treturn nil, errDeaf\n\t\tcase s.halfClosed:\n\t\t\treturn nil, io.EOF\n", New: "\t\tcase s.halfClosed:\n\t\t\treturn nil, io.EOF\n", Tests: "TestStopReceiving",
		},
		{
			Name: "grpc-without-turns", Bug: "lets a connection start thousands of calls before others run", File: "conn.go",
			Old: "c.burst.Step(c.base, maxTurn, c.turn)", New: "c.burst.Step(c.base, 1<<20, c.turn)", Tests: "TestCallsBeginAndEndInTurns",
		},
		{
			Name: "grpc-large-without-turns", Bug: "writes one client's large answers before the pending data of others", File: "send.go",
			Old: "large := left > maxOut && (", New: "large := left < 0 && (", Tests: "TestLargeAnswersTakeTurns",
		},
		{
			Name: "grpc-waits-for-headers-unannounced", Bug: "a pump keeps its place while it waits for room for a stream's headers", File: "send.go",
			Old: "if s.announceLocked(wait); !s.gone {\n\t\t\t\tc.room.Wait()", New: "if !s.gone {\n\t\t\t\tc.room.Wait()", Tests: "TestAFirstMessageAnnouncesThatItWaits",
		},
		{
			Name: "grpc-frame-by-frame", Bug: "streams of a connection take turns with every frame", File: "send.go",
			Old: "burst >= maxOut ||", New: "burst >= 0 ||", Tests: "TestLargeAnswersTakeTurns",
		},
		{
			Name: "grpc-keeps-the-readers-turn", Bug: "a connection keeps its turn while it waits for the rest of a frame", File: "reader.go",
			Old: "	r.conn.burst.Pause()\n", New: "", Tests: "TestCallsBeginAndEndInTurns",
		},
		{
			Name: "grpc-ends-all-at-once", Bug: "ends thousands of calls of a connection before others run", File: "conn.go",
			Old: "if n++; n == maxTurn {", New: "if n++; n < 0 {", Tests: "TestCallsBeginAndEndInTurns",
		},
		{
			Name: "grpc-decompresses-at-once", Bug: "decompresses messages without a turn", File: "call.go",
			Old: "leave, err := c.conn.turn(c.ctx)", New: "leave, err := func() {}, error(nil)", Tests: "TestDecompressionTakesTurns",
		},
		{
			Name: "grpc-keeps-turns", Bug: "does not return the turn of a message", File: "call.go",
			Old: "	defer leave()\n", New: "	_ = leave\n", Tests: "TestDecompressionTakesTurns",
		},
		{
			Name: "grpc-resets-at-once", Bug: "accepts any number of stream resets at once", File: "frames.go",
			Old: "streams >= leastStreams && c.early > streams/2", New: "streams < 0", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-provoked-resets", Bug: "does not count the resets that a client provokes", File: "conn.go",
			Old: "return open.wasResetLocked()", New: "return nil", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-resets-untold", Bug: "does not report the streams that it resets to the connection", File: "output.go",
			Old: "		f.Forget(id)\n", New: "		_ = f\n", Tests: "TestResetStreamsAreForgotten",
		},
		{
			Name: "grpc-late-resets", Bug: "treats later resets of streams as a flood", File: "frames.go",
			Old: "if c.heard.Load()-s.opened < int64(earlyReset) {", New: "if s.opened > 0 {", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-settings-flood", Bug: "accepts any number of SETTINGS frames", File: "frames.go",
			Old: "c.settings > maxSettings", New: "c.settings < 0", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-settings-of-all-time", Bug: "counts the SETTINGS frames of a connection's entire lifetime", File: "frames.go",
			Old: "c.settings, c.settingsSince = 0, now", New: "c.settingsSince = now", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-floods-unnamed", Bug: "does not report the connections that flood the server", File: "conn.go",
			Old: "c.srv.cfg.Flooded(c.raw)", New: "_ = c.raw", Tests: "TestFloodsOfResetsAndSettings",
		},
		{
			Name: "grpc-unread-is-free", Bug: "keeps data that handlers have not read without a bound", File: "stream.go",
			Old: "if !s.holdLocked(len(s.in) + len(data)) {", New: "if s.holdLocked(len(s.in) + len(data)); false {", Tests: "TestUnreadBytesAreGranted",
		},
		{
			Name: "grpc-read-bytes-stay-held", Bug: "does not release bytes that a handler has read", File: "stream.go",
			Old: "\t\t\ts.holdLocked(0)\n", New: "", Tests: "TestUnreadBytesAreGranted",
		},
		{
			Name: "grpc-bytes-of-ended-streams-stay-held", Bug: "does not release the bytes of an ended stream", File: "open.go",
			Old: "\ts.holdLocked(0)\n", New: "", Tests: "TestUnreadBytesAreGranted",
		},
		{
			Name: "grpc-window-of-stream", Bug: "sends more than a stream's window", File: "send.go",
			Old: `n := int(min(int64(left), maxFrame, s.windowLocked(), c.window))`, New: `n := int(min(int64(left), maxFrame, c.window))`,
			Tests: "TestWindowOfOneByte|TestInitialWindowChanges",
		},
		{
			Name: "grpc-window-of-connection", Bug: "sends more than the connection's window", File: "send.go",
			Old: `n := int(min(int64(left), maxFrame, s.windowLocked(), c.window))`, New: `n := int(min(int64(left), maxFrame, s.windowLocked()))`,
			Tests: "TestConnectionWindowIsShared",
		},
		{
			Name: "grpc-settings-wake-nobody", Bug: "does not wake senders when SETTINGS open their windows", File: "frames.go",
			Old: `if c.initial > before {`, New: `if false && c.initial > before {`, Tests: "TestInitialWindowChanges",
		},
		{
			Name: "grpc-settings-overflow", Bug: "lets SETTINGS open a stream's window above 2^31-1", File: "frames.go",
			Old: `if s.windowLocked() > maxWindow { // RFC 9113, 6.9.2`, New: `if false {`, Tests: "TestConnectionFrames",
		},
		{
			Name: "grpc-receive-window", Bug: "accepts more than a stream's window", File: "stream.go",
			Old: `case size > s.allowed:`, New: `case false:`, Tests: "TestReceiveWindows",
		},
		{
			Name: "grpc-large-message-stalls", Bug: "does not open the window for a message larger than it", File: "stream.go",
			Old: `more := max(window, need) - s.allowed - len(s.in)`, New: `more := window - s.allowed - len(s.in)`, Tests: "TestReceiveWindows",
		},
		{
			Name: "grpc-next-message-lost", Bug: "loses data that arrives after a large message", File: "stream.go",
			Old: `extend(s.message, s.in[:n], size), s.in[n:]`, New: `extend(s.message, s.in[:n], size), nil`, Tests: "TestMessagesArriveWhole",
		},
		{
			Name: "grpc-announced-is-allocated", Bug: "allocates a message before its first byte arrives", File: "stream.go",
			Old: "\t\t\tsize /= part\n", New: "", Tests: "TestLargeMessagesAreAllocatedAsTheyArrive",
		},
		{
			Name: "grpc-padding-kept", Bug: "does not return padding to the window", File: "stream.go",
			Old: `padded := len(data) < size`, New: `padded := false`, Tests: "TestPaddingIsGivenBack",
		},
		{
			Name: "grpc-empty-data", Bug: "accepts any number of DATA frames without content", File: "stream.go",
			Old: `s.empty > maxEmpty`, New: `s.empty > maxEmpty && s.got > 1<<40`, Tests: "TestFloodOfEmptyData",
		},
		{
			Name: "grpc-continuation", Bug: "reads header blocks without an end", File: "reader.go",
			Old: `if r.left -= n; r.left < 0 {`, New: `if r.left -= n; false {`, Tests: "TestFloodOfContinuation",
		},
		{
			Name: "grpc-undecoded-headers", Bug: "continues after a header block that was not decoded", File: "reader.go",
			Old: `errors.As(err, &s) && s.Cause == nil {`, New: `errors.As(err, &s) && false {`, Tests: "TestStreamFrames",
		},
		{
			Name: "grpc-answers-without-bound", Bug: "continues reading while the client reads no answers", File: "conn.go",
			Old: `for c.err == nil && (len(c.out) >= maxPending || c.crowdedLocked()) {`, New: `for c.err == nil && c.crowdedLocked() {`,
			Tests: "TestAnswersThatAreNotTaken",
		},
		{
			Name: "grpc-rapid-reset", Bug: "does not count the handlers of reset streams", File: "conn.go",
			Old: `return c.running >= c.srv.cfg.MaxStreams && len(c.streams) < c.srv.cfg.MaxStreams`, New: `return false`, Tests: "TestRapidReset",
		},
		{
			Name: "grpc-pings", Bug: "accepts any number of pings", File: "frames.go",
			Old: `if c.keep.tooOften(time.Now(), c.srv.cfg.PingLeast) {`, New: `if c.keep.tooOften(time.Now(), 0) {`, Tests: "TestTooManyPings",
		},
		{
			Name: "grpc-probes-at-once", Bug: "answers each path-measuring ping at once", File: "frames.go",
			Old: `if f.Data == probePing && !c.probe.held {`, New: `if f.Data == probePing && c.probe.sent < 0 {`,
			Tests: "TestProbesWaitForData|TestSmallMessagesCauseFewPings",
		},
		{
			Name: "grpc-pings-held", Bug: "also delays the answers to keepalive pings", File: "frames.go",
			Old: `if f.Data == probePing && !c.probe.held {`, New: `if !c.probe.held {`, Tests: "TestProbesWaitForData",
		},
		{
			Name: "grpc-probes-never", Bug: "does not answer a path-measuring ping once data was sent", File: "output.go",
			Old: `c.probe.sent >= probeBytes {`, New: `c.probe.sent < 0 {`, Tests: "TestProbesWaitForData",
		},
		{
			Name: "grpc-probes-at-rest", Bug: "does not answer a path-measuring ping on an idle connection", File: "keepalive.go",
			Old: "\tc.answerProbeLocked()\n", New: "", Tests: "TestProbesAreAnsweredAtRest",
		},
		{
			Name: "grpc-silence", Bug: "keeps connections of clients that do not answer pings", File: "keepalive.go",
			Old: `c.failLocked(errSilent)`, New: `_ = errSilent`, Tests: "TestKeepalive",
		},
		{
			Name: "grpc-too-many-streams", Bug: "opens more streams than it allows", File: "open.go",
			Old: `if len(c.streams) >= c.srv.cfg.MaxStreams {`, New: `if len(c.streams) > c.srv.cfg.MaxStreams {`, Tests: "TestTooManyStreams",
		},
		{
			Name: "grpc-headers-above-limit", Bug: "sends headers above the client's limit", File: "headers.go",
			Old: `if b.Size() > c.headers {`, New: `if false {`, Tests: "TestHeadersAboveTheClientsLimit",
		},
		{
			Name: "grpc-unpacked-without-bound", Bug: "accepts small messages that decompress to large ones", File: "call.go",
			Old: `case out.Len() > limit:`, New: `case false:`, Tests: "TestInterop",
		},
		{
			Name: "grpc-deadline-without-reset", Bug: "does not reset the stream at its deadline", File: "open.go",
			Old: `s.unwatch = context.AfterFunc(ctx, s.expire)`, New: `s.unwatch = nil`, Tests: "TestCancellation",
		},
		{
			Name: "grpc-deadline-within-a-message", Bug: "sends the outcome of a call after a partial message", File: "send.go",
			Old: `s.partial || len(c.out)`, New: `len(c.out)`, Tests: "TestDeadlineWithinAMessage",
		},
		{
			Name: "grpc-deadline-as-reset", Bug: "resets a stream at its deadline instead of sending the outcome", File: "send.go",
			Old: `s.partial || len(c.out) >= maxPending`, New: `!s.partial || len(c.out) >= maxPending`, Tests: "TestCancellation",
		},
		{
			Name: "grpc-backlog", Bug: "does not bound the data that the kernel does not accept", File: "socket/socket.go",
			Old: `if len(s.backlog)+len(rest) > maxBacklog {`, New: `if len(s.backlog)+len(rest) > 1<<40 {`, Tests: "TestBacklogIsBounded", Package: "internal/edge/grpcserver/socket",
		},
		{
			Name: "grpc-stream-after-the-end", Bug: "opens a stream on an ended connection", File: "open.go",
			Old: `if c.err != nil { // its`, New: `if c.err != nil && f.Truncated { // its`, Tests: "TestNoStreamsOnAConnectionThatHasEnded",
		},
		{
			Name: "grpc-age-without-jitter", Bug: "ends all connections at the same age", File: "keepalive.go",
			Old: `return d - d/10 + rand.N(d/5+1)`, New: `return d - d/10 + rand.N(d/5+1)*0`, Tests: "TestAge",
		},
		{
			Name: "grpc-age-without-end", Bug: "waits forever for calls of a connection that is too old", File: "keepalive.go",
			Old: `if !now.Before(cut) {`, New: `if false {`, Tests: "TestAge",
		},
		{
			Name: "grpc-closes-before-the-client-has-read", Bug: "closes a connection gracefully while its client reads the last answer", File: "conn.go",
			Old: `errors.Is(why, errIdle) && closeWrite(c.net)`, New: `errors.Is(why, errOld) && closeWrite(c.net)`, Tests: "TestALastAnswerIsReadToItsEnd",
		},
		{
			Name: "grpc-lingers-for-ever", Bug: "keeps an ended connection for as long as its client does", File: "conn.go",
			Old: `discard(c, c.srv.cfg.PingTimeout, `, New: `discard(c, time.Hour, `, Tests: "TestAClientThatStaysIsNotWaitedFor",
		},
		{
			Name: "grpc-ends-twice", Bug: "a flush after the graceful end shortens the client's time to read", File: "output.go",
			Old: `c.bye.over && c.err == nil && `, New: `c.bye.over && `, Tests: "TestAFlushAfterTheEndCutsNothing",
		},
		{
			Name: "grpc-late-stream", Bug: "serves streams that begin after the last one", File: "open.go",
			Old: `if c.bye.last {`, New: `if c.bye.last && f.Truncated {`, Tests: "TestIdle",
		},
		{
			Name: "grpcserver-rest-keeps-reader", Bug: "keeps the reader of a connection whose calls park later", File: "park.go",
			Old: "\t\t\t(*resting)(c).rouseLocked()\n", New: "", Tests: "TestAConnectionAtRestHasNoGoroutine",
		},
		{
			Name: "grpcserver-rest-ends-connection", Bug: "keeps the deadline that woke a reader", File: "rest.go",
			Old: "roused && c.err == nil {", New: "roused && c.err != nil {", Tests: "TestAConnectionAtRestHasNoGoroutine",
		},
		{
			Name: "grpcserver-unsealed", Bug: "bypasses an unknown layer when it writes", File: "server.go",
			Old: "sealed || at != bottom", New: "sealed || at == nil && bottom == nil", Tests: "TestCredentialsThatSeal",
		},
		{
			Name: "grpcserver-unread-free", Bug: "does not report an answer that waits for its client", File: "send.go",
			Old: "wait.answer != nil && unread != nil", New: "false", Tests: "TestUnreadAnswers",
		},
		{
			Name: "grpcserver-unread-kept", Bug: "keeps an unread answer that Config.Unread refuses", File: "send.go",
			Old: "wait.answer, wait.release = nil, release; err != nil {", New: "wait.answer, wait.release = nil, release; false {\n\t\t\t_ = err", Tests: "TestUnreadAnswers",
		},
		{
			Name: "grpcserver-rest-leaks", Bug: "waits for bytes of an idle connection", File: "rest.go",
			Old: "c.hasten(mayRest && c.err == nil)", New: "c.hasten(false)", Tests: "TestAConnectionAtRestHasNoGoroutine",
		},
	}}
}

func receiveGroup() Group {
	return Group{Package: "internal/edge/receive", Mutants: []Mutant{
		{
			Name: "receive-keeps-goroutines", Bug: "keeps a goroutine for each idle stream", File: "../grpcserver/park.go",
			Old: "\t\t\treturn errParked", New: "\t\t\ts.arrived.Wait()\n\t\t\treturn nil", Tests: "TestRestingStreamsHaveNoGoroutine",
		},
		{
			Name: "receive-last-reason", Bug: "ends a stream with the last reason", File: "receive.go",
			Old: "\tif first {\n\t\tr.over, r.err", New: "\t{\n\t\tr.over, r.err", Tests: "TestHalfClosedStreamIsStopped",
		},
		{
			Name: "receive-own-reason", Bug: "ends a stopped stream with the error of its transport", File: "receive.go",
			Old: "return r.handler.End(reason)", New: "_ = reason\n\t\t\treturn r.handler.End(err)", Tests: "TestStreamsEnd|TestHalfClosedStreamIsStopped",
		},
	}}
}
