package mutants

func intakeGroup() Group {
	return Group{Package: "internal/edge/intake", Mutants: []Mutant{
		{
			Name: "unfinished-unbounded", Bug: "never closes the connection of the oldest unfinished request", File: "intake.go",
			Old: `in.endOldest(c.holder, capped)`, New: `_ = capped`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-at-their-parts", Bug: "reserves bytes for the parts of a request only", File: "intake.go",
			Old: `r.headN == messageHeader && int64(r.left) <= in.maxMessage`, New: `false`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-small-unbounded", Bug: "accepts any number of calls without their message", File: "intake.go",
			Old: `if in.smalls.Len() > maxSmall {`, New: `if false {`, Tests: "TestCallsThatNeverBeginAreBounded",
		},
		{
			Name: "unfinished-without-client", Bug: "does not count incomplete requests for their client", File: "intake.go",
			Old: `Name: netlimit.SourceOf(raw.RemoteAddr())`, New: `Name: netlimit.SourceOf(nil)`, Tests: "TestOneAddressLeavesRoomForRequestsOfOthers",
		},
		{
			Name: "unfinished-of-others-end", Bug: "a client that has used its part ends the requests of others", File: "intake.go",
			Old: `!own || `, New: `true || `, Tests: "TestOneAddressEndsItsOwnRequests",
		},
		{
			Name: "unfinished-kept", Bug: "keeps the bytes of a closed connection", File: "intake.go",
			Old: `e != nil && c.known > 0;`, New: `e != nil && c.known < 0;`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-given-up-kept", Bug: "keeps a request that its client abandons", File: "frames.go",
			Old: `case f.kind == typeReset, f.kind`, New: `case f.kind`, Tests: "TestOpenRequests",
		},
		{
			Name: "unfinished-reset-kept", Bug: "keeps a request whose stream the server resets", File: "intake.go",
			Old: `streamOf{c, stream}]; r != nil {`, New: `streamOf{c, stream}]; r != nil && c.gone {`, Tests: "TestRequestsOfResetStreamsHoldNothing",
		},
		{
			Name: "unfinished-reset-counted", Bug: "counts data that arrives for a reset stream", File: "intake.go",
			Old: `if r.in == nil && r.listed {`, New: `if r.in == nil && c.gone {`, Tests: "TestRequestsOfResetStreamsHoldNothing",
		},
		{
			Name: "unfinished-resets-known", Bug: "remembers all reset streams of a connection", File: "intake.go",
			Old: `len(c.resets) > keptResets {`, New: `len(c.resets) < 0 {`, Tests: "TestRequestsOfResetStreamsHoldNothing",
		},
		{
			Name: "unfinished-reset-waits", Bug: "closes the connection of the oldest request for one whose stream was reset", File: "intake.go",
			Old: `if !in.waits(r) {`, New: `if false {`, Tests: "TestAResetRequestWaitsForNoOther",
		},
		{
			Name: "unfinished-reset-takes", Bug: "keeps the bytes that a request of a reset stream waited for", File: "intake.go",
			Old: "	if r.in == nil {\n		in.budget.Give(", New: "	if c.gone {\n		in.budget.Give(", Tests: "TestAResetRequestWaitsForNoOther",
		},
		{
			Name: "unfinished-padding-free", Bug: "does not count padding", File: "frames.go",
			Old: "			f.left -= f.padding\n", New: "", Tests: "TestOpenRequests",
		},
	}}
}
