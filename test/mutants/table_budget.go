package mutants

func budgetGroup() Group {
	return Group{Package: "internal/budget", Mutants: []Mutant{
		{
			Name: "budget-over-share", Bug: "lets a use have more than its share", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= 2*a.most || a.held <= own`, Tests: "TestUsesDoNotStarveEachOther",
		},
		{
			Name: "budget-one-queue", Bug: "clients that wait for a use's bytes take no turns", File: "budget.go",
			Old: `w.entry = a.waiting.Push(c.Name, w)`, New: `w.entry = a.waiting.Push("", w)`, Tests: "TestClientsTakeTurnsAtAUse",
		},
		{
			Name: "budget-never-alone", Bug: "refuses what is larger than the share to a caller that is alone", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= a.most`, Tests: "TestWhatIsLargerThanTheShareIsHadAlone",
		},
		{
			Name: "budget-overtaken", Bug: "lets callers overtake those that wait", File: "budget.go",
			Old: `case a.waiting.Len() == 0 && a.fitsLocked(n, 0):`, New: `case a.fitsLocked(n, 0):`, Tests: "TestWaitersAreServedInTurn",
		},
		{
			Name: "client-takes-all", Bug: "lets one client have all of a use", File: "budget.go",
			Old: `return p == nil || p.held+n <= b.partOf(u, c) || p.held <= own`, New: `return p == nil || b.partOf(u, c) < 0 || own < 0 || n >= 0`, Tests: "TestOneClientDoesNotTakeAll",
		},
		{
			Name: "client-delays-others", Bug: "a caller whose client has its part waits before those of other clients", File: "budget.go",
			Old: `case p != nil && (p.waiting.Len() > 0 || !b.fitsPartLocked(u, c, n, 0)):`, New: `case p != nil && n < 0:`, Tests: "TestAClientWaitsForItsOwn",
		},
		{
			Name: "part-of-who-gave-up", Bug: "a client's part holds what a caller that gave up waited for", File: "budget.go",
			Old: `		a.countLocked(w.client, -w.n)
`, New: ``, Tests: "TestAClientWaitsForTheShareAfterItsOwn",
		},
		{
			Name: "budget-given-up-kept", Bug: "holds what a caller that gave up waited for", File: "budget.go",
			Old: "	w.b.wakeLocked(w.use, w.client) // the others may have waited for this entry\n", New: "", Tests: "TestWhoGivesUpHoldsNothing",
		},
	}}
}
