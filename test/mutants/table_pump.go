package mutants

func pumpGroup() Group {
	return Group{Package: "internal/edge/pump", Mutants: []Mutant{
		{
			Name: "pump-bytes-overtake", Bug: "a large piece is sent without the small ones before it", File: "bytes.go",
			Old: `own.parts = append(own.parts[:0], own.buf, b)`, New: `own.parts = append(own.parts[:0], b)`, Tests: "TestSendBytes",
		},
		{
			Name: "pump-bytes-without-yield", Bug: "a pump that sends much yields as rarely as one that sends little", File: "pump.go",
			Old: `own.visits.Did(steps+visitSteps*size, maxVisits)`, New: `own.visits.Did(steps, maxVisits)`, Tests: "TestPumpsThatSendMuchYield",
		},
		{
			Name: "pump-large-visits-are-turns", Bug: "a large visit counts as one turn of its client", File: "pump.go",
			Old: `client.owes += size`, New: `client.owes += 0 * size`, Tests: "TestALargeVisitCountsAsSeveralTurns",
		},
		{
			Name: "pump-connections-take-turns", Bug: "a client with more connections has more turns", File: "clients.go",
			Old: `	cl := c.client
	if cl.first`, New: `	cl := &client{}
	if cl.first`, Tests: "TestClientsOfPumpsTakeTurns",
		},
		{
			Name: "pump-on-all-processors", Bug: "pumps leave no processor to the rest", File: "pump.go",
			Old: `runtime.GOMAXPROCS(0)-1)`, New: `runtime.GOMAXPROCS(0))`, Tests: "TestPumpsLeaveAProcessor",
		},
		{
			Name: "pump-turn-without-bound", Bug: "a turn runs all tasks, however much they send", File: "pump.go",
			Old: `turn.first != nil && own.sent < turnBytes`, New: `turn.first != nil`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-unrun-last", Bug: "tasks without a place in a turn come after those that were woken meanwhile", File: "pump.go",
			Old: `s.ready.putFirst(turn)`, New: `c.collectLocked(); turn.putFirst(s.ready); s.ready = turn`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-again-twice", Bug: "a task with more to do that is woken meanwhile is on the list twice", File: "pump.go",
			Old: `if t.queued.CompareAndSwap(false, true) {
			c`, New: `{
			c`, Tests: "TestATaskThatHasMoreToDoAndIsWoken",
		},
		{
			Name: "pump-wakes-out-of-order", Bug: "tasks that were woken last run first", File: "pump.go",
			Old: `s.ready.push(t)`, New: `s.ready.putFirst(tasks{t, t})`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-wake-of-a-run-lost", Bug: "a task that is woken while it runs does not run again", File: "pump.go",
			Old: `		t.queued.Store(false) // later wakes are for the next turn
		if t.run(own) {`, New: `		again := t.run(own)
		t.queued.Store(false)
		if again {`, Tests: "TestATaskThatIsWokenWhileItRuns",
		},
		{
			Name: "pump-wake-of-a-visit-lost", Bug: "tasks that are woken as a visit ends wait for the next wake", File: "pump.go",
			Old: `if c.first != nil || c.woken.Load() != nil {`, New: `if c.first != nil {`, Tests: "TestATaskThatIsWokenAsAVisitEnds",
		},
		{
			Name: "pump-late-wake-stays", Bug: "a wake after the last stream was closed keeps pumps from the next one", File: "pump.go",
			Old: `if p.streams == 1 && p.due.any() {`, New: `if false {`, Tests: "TestAWakeAfterTheLastStream",
		},
		{
			Name: "pump-writes-each-turn", Bug: "writes after each stream's turn", File: "pump.go",
			Old: `	s.out.own = nil
`, New: `	s.out.own = nil
	if s.out.to != nil {
		s.out.to.Flush()
	}
`, Tests: "TestAVisitIsWrittenTogether",
		},
		{
			Name: "pump-trace-waits", Bug: "the trace of a revision waits for clients that do not read", File: "pump.go",
			Old: `	own.Trace.Flush() // the bytes`, New: `	// the bytes`, Tests: "TestATraceDoesNotWaitForAClient",
		},
		{
			Name: "pump-held-up-stays", Bug: "a pump that a send holds up keeps its place", File: "pump.go",
			Old: `if p.running--; p.due.any() {`, New: `if p.due.any() {`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-held-up-keeps-connection", Bug: "a send that waits holds up its connection", File: "pump.go",
			Old: `	own.endTurn()
	c.goOnLocked()`, New: `	own.endTurn()`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-turn-of-a-wait", Bug: "a send that waits keeps the pump's turn", File: "pump.go",
			Old: `	own.endTurn()
	c.goOnLocked()`, New: `	c.goOnLocked()`, Tests: "TestVisitsWaitForTurns",
		},
		{
			Name: "pump-one-by-one-shared", Bug: "a stream that takes messages one by one holds up a pump", File: "pump.go",
			Old: `			c.leaveLocked(own)
		}
		c.turnLocked(s, own)`, New: `		}
		c.turnLocked(s, own)`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-wait-unsaid", Bug: "a send that waits for the stream's window does not say so", File: "../grpcserver/send.go",
			Old: `			announce()
			s.sendable.Wait()`, New: `			s.sendable.Wait()`, Tests: "TestAStreamThatIsNotRead",
		},
	}}
}
