package mutants

func etcdGroup() Group {
	return Group{Package: "internal/etcd", Mutants: []Mutant{
		{
			Name: "caller-without-token", Bug: "passes a call without a token on with nothing but the node's certificate", File: "passage.go",
			Old: `ctx = withToken(ctx, nobody)`, New: `_ = nobody`, Tests: "TestPassageCarriesTheCaller",
		},
		{
			Name: "watermark-from-header", Bug: "takes the header's revision for progress though the response has events", File: "assemble.go",
			Old: "\tif !a.fragments {\n\t\ta.flush(now)\n\t}\n", New: "\tif !a.fragments {\n\t\ta.flush(now)\n\t}\n\ta.done = max(a.done, r.revision)\n", Tests: "TestAssembly",
		},
		{
			Name: "fragment-applied-early", Bug: "applies a revision before its last fragment is in", File: "assemble.go",
			Old: "if !a.fragments {\n\t\ta.flush(now)", New: "{\n\t\ta.flush(now)", Tests: "TestAssembly",
		},
		{
			Name: "fetch-joined-late", Bug: "a linearizable read shares a fetch of the revision that began before it", File: "shared.go",
			Old: `first := s.begun + 1`, New: `first := s.begun`, Tests: "TestSharedFetchBeginsAfterTheCall",
		},
		{
			Name: "starts-one-late", Bug: "the assembler starts one revision late", File: "assemble.go",
			Old: `case revision < a.from:`, New: `case revision <= a.from:`, Tests: "TestAssembly",
		},
		{
			Name: "event-repeated", Bug: "the assembler applies a revision again", File: "assemble.go",
			Old: `case revision <= a.done || revision < a.open:`, New: `case revision < a.done || revision < a.open:`, Tests: "TestAssembly",
		},
		{
			Name: "progress-amid-fragments", Bug: "takes progress from a fragment in the midst", File: "assemble.go",
			Old: `if len(r.events) == 0 && !r.fragment && !a.fragments {`, New: `if len(r.events) == 0 {`, Tests: "TestAssembly",
		},
		{
			Name: "answer-of-other-watch", Bug: "takes the answer to another watch", File: "assemble.go",
			Old: `if !a.announced || (r.watch != a.id && r.watch != anyWatch) {`, New: `if !a.announced {`, Tests: "TestAssembly",
		},
		{
			Name: "flight-given-up-shared", Bug: "shares the result of a fetch whose caller gave up", File: "shared.go",
			Old: `if f.number >= first && !f.gaveUp {`, New: `if f.number >= first {`, Tests: "TestSharedFetchSurvivesItsCaller",
		},
	}}
}
