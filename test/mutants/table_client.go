package mutants

func clientGroup() Group {
	return Group{Package: "client", Mutants: []Mutant{
		{
			Name: "dead-members-asked", Bug: "asks members that are dead", File: "topology.go",
			Old: `m.ClientAddress == "" || m.State == MemberDead || m.State == MemberLeft`, New: `m.ClientAddress == ""`, Tests: "TestCandidates",
		},
		{
			Name: "draining-members-first", Bug: "prefers members that drain", File: "topology.go",
			Old: `if m.Draining || m.State == MemberSuspect {`, New: `if false {`, Tests: "TestCandidates",
		},
		{
			Name: "token-of-unread", Bug: "a token counts updates that the program has not read", File: "watch.go",
			Old: `if len(w.queue) == 0 && w.asm.positioned {`, New: `if w.asm.positioned {`, Tests: "TestAProgramsPositionIsWhatItHasTaken",
		},
	}}
}
