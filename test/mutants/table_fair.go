package mutants

func fairGroup() Group {
	return Group{Package: "internal/fair", Mutants: []Mutant{
		{
			Name: "turns-without-yield", Bug: "large work takes turn after turn without a yield", File: "turns.go",
			Old: `t.taken.Add(1)%yieldEvery == 0`, New: `t.taken.Add(1) == 0`, Tests: "TestTurnsYield",
		},
		{
			Name: "turns-not-taken", Bug: "a client with many entries keeps its turn", File: "queue.go",
			Old: "		q.turns = append(q.turns, client)\n	}\n	return value, ok\n", New: "		q.turns = append([]string{client}, q.turns...)\n	}\n	return value, ok\n", Tests: "TestClientsTakeTurns",
		},
		{
			Name: "removed-entries-kept", Bug: "keeps removed entries", File: "queue.go",
			Old: `if q.gone++; q.gone < keepGone || q.gone < q.length/2 {`, New: `if q.gone++; true {`, Tests: "TestRemovedEntriesAreGone",
		},
		{
			Name: "gate-of-any-queue", Bug: "lets any number of callers wait", File: "gate.go",
			Old: `case g.waiting.Len() >= g.maxWaiting:`, New: `case false:`, Tests: "TestGate",
		},
	}}
}
