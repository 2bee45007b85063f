package mutants

func budgetGroup() Group {
	return Group{Package: "internal/budget", Mutants: []Mutant{
		{
			Name: "budget-over-share", Bug: "lets a use exceed its share", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= 2*a.most || a.held <= own`, Tests: "TestUsesDoNotStarveEachOther",
		},
		{
			Name: "budget-one-queue", Bug: "clients that wait for a use's bytes do not take turns", File: "budget.go",
			Old: `w.entry = a.waiting.Push(c.Name, w)`, New: `w.entry = a.waiting.Push("", w)`, Tests: "TestClientsTakeTurnsAtAUse",
		},
		{
			Name: "budget-never-alone", Bug: "refuses a request larger than the share to the only caller", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= a.most`, Tests: "TestASoleHolderMayExceedTheShare",
		},
		{
			Name: "budget-overtaken", Bug: "lets callers overtake waiting callers", File: "budget.go",
			Old: `case a.waiting.Len() == 0 && a.fitsLocked(n, 0):`, New: `case a.fitsLocked(n, 0):`, Tests: "TestWaitersAreServedInTurn",
		},
		{
			Name: "client-takes-all", Bug: "lets one client take all bytes of a use", File: "budget.go",
			Old: `return p == nil || p.held+n <= b.partOf(u, c) || p.held <= own`, New: `return p == nil || b.partOf(u, c) < 0 || own < 0 || n >= 0`, Tests: "TestOneClientDoesNotTakeAll",
		},
		{
			Name: "client-delays-others", Bug: "a caller whose client has used its part waits ahead of other clients' callers", File: "budget.go",
			Old: `case p != nil && (p.waiting.Len() > 0 || !b.fitsPartLocked(u, c, n, 0)):`, New: `case p != nil && n < 0:`, Tests: "TestAClientWaitsForItsPart",
		},
		{
			Name: "part-of-who-gave-up", Bug: "a client's part keeps the request of a caller that gave up", File: "budget.go",
			Old: `		a.countLocked(w.client, -w.n)
`, New: ``, Tests: "TestAClientWaitsForTheShareAfterItsPart",
		},
		{
			Name: "budget-given-up-kept", Bug: "keeps the bytes for a caller that gave up waiting", File: "budget.go",
			Old: "	w.b.wakeLocked(w.use, w.client) // the others may have waited for this entry\n", New: "", Tests: "TestACanceledCallHoldsNothing",
		},
	}}
}
