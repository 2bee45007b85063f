package mutants

func pumpGroup() Group {
	return Group{Package: "internal/edge/pump", Mutants: []Mutant{
		{
			Name: "pump-bytes-overtake", Bug: "sends a large piece before earlier small ones", File: "bytes.go",
			Old: `own.parts = append(own.parts[:0], own.buf, b)`, New: `own.parts = append(own.parts[:0], b)`, Tests: "TestSendBytes",
		},
		{
			Name: "pump-bytes-without-yield", Bug: "a pump that sends much yields as rarely as one that sends little", File: "pump.go",
			Old: `own.visits.Did(steps+visitSteps*size, maxVisits)`, New: `own.visits.Did(steps, maxVisits)`, Tests: "TestPumpsThatSendMuchYield",
		},
		{
			Name: "pump-large-visits-are-turns", Bug: "counts a large visit as one turn of its client", File: "pump.go",
			Old: `client.owes += size`, New: `client.owes += 0 * size`, Tests: "TestALargeVisitCountsAsSeveralTurns",
		},
		{
			Name: "pump-connections-take-turns", Bug: "gives a client with more connections more turns", File: "clients.go",
			Old: `	cl := c.client
	if cl.first`, New: `	cl := &client{}
	if cl.first`, Tests: "TestClientsOfPumpsTakeTurns",
		},
		{
			Name: "pump-on-all-processors", Bug: "pumps leave no processor to other goroutines", File: "pump.go",
			Old: `runtime.GOMAXPROCS(0)-1)`, New: `runtime.GOMAXPROCS(0))`, Tests: "TestPumpsLeaveAProcessor",
		},
		{
			Name: "pump-turn-without-bound", Bug: "a turn runs all tasks, however much they send", File: "pump.go",
			Old: `turn.first != nil && own.sent < turnBytes`, New: `turn.first != nil`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-unrun-last", Bug: "runs tasks left over from a turn after tasks that were woken meanwhile", File: "pump.go",
			Old: `s.ready.putFirst(turn)`, New: `c.collectLocked(); turn.putFirst(s.ready); s.ready = turn`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-again-twice", Bug: "lists a task with more work twice if it is woken meanwhile", File: "pump.go",
			Old: `if t.queued.CompareAndSwap(false, true) {
			c`, New: `{
			c`, Tests: "TestATaskThatHasMoreToDoAndIsWoken",
		},
		{
			Name: "pump-wakes-out-of-order", Bug: "runs the last woken tasks first", File: "pump.go",
			Old: `s.ready.push(t)`, New: `s.ready.putFirst(tasks{t, t})`, Tests: "TestATurnIsBounded",
		},
		{
			Name: "pump-wake-of-a-run-lost", Bug: "does not rerun a task that is woken during its run", File: "pump.go",
			Old: `		t.queued.Store(false) // later wakes are for the next turn
		if t.run(own) {`, New: `		again := t.run(own)
		t.queued.Store(false)
		if again {`, Tests: "TestATaskThatIsWokenWhileItRuns",
		},
		{
			Name: "pump-wake-of-a-visit-lost", Bug: "tasks woken at the end of a visit wait for the next wake", File: "pump.go",
			Old: `if c.first != nil || c.woken.Load() != nil {`, New: `if c.first != nil {`, Tests: "TestATaskThatIsWokenAsAVisitEnds",
		},
		{
			Name: "pump-late-wake-stays", Bug: "a wake after the last stream was closed blocks pumps of the next one", File: "pump.go",
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
			Name: "pump-trace-waits", Bug: "a revision's trace waits for clients that do not read", File: "pump.go",
			Old: `	own.Trace.Flush() // the bytes`, New: `	// the bytes`, Tests: "TestATraceDoesNotWaitForAClient",
		},
		{
			Name: "pump-held-up-stays", Bug: "a pump that a send blocks keeps its place", File: "pump.go",
			Old: `if p.running--; p.due.any() {`, New: `if p.due.any() {`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-held-up-keeps-connection", Bug: "a waiting send blocks its connection", File: "pump.go",
			Old: `	own.endTurn()
	c.goOnLocked()`, New: `	own.endTurn()`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-turn-of-a-wait", Bug: "a waiting send keeps the pump's turn", File: "pump.go",
			Old: `	own.endTurn()
	c.goOnLocked()`, New: `	c.goOnLocked()`, Tests: "TestVisitsWaitForTurns",
		},
		{
			Name: "pump-one-by-one-shared", Bug: "a stream that accepts messages one by one blocks a pump", File: "pump.go",
			Old: `			c.leaveLocked(own)
		}
		c.turnLocked(s, own)`, New: `		}
		c.turnLocked(s, own)`, Tests: "TestSendsThatWait",
		},
		{
			Name: "pump-wait-unsaid", Bug: "a send that waits for the stream's window does not report it", File: "../grpcserver/send.go",
			Old: "if s.announceLocked(wait); !s.gone {\n\t\t\t\ts.sendable.Wait()", New: "if !s.gone {\n\t\t\t\ts.sendable.Wait()", Tests: "TestAStreamThatIsNotRead",
		},
		{
			Name: "reads-cost-nothing", Bug: "events that a task reads and does not send do not end its turn", File: "pump.go",
			Old: `own.sent += n * readBytes`, New: `_ = own`, Tests: "TestReadEventsEndATurn",
		},
	}}
}
