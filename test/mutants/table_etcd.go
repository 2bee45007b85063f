package mutants

func etcdGroup() Group {
	return Group{Package: "internal/etcd", Mutants: []Mutant{
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
	}}
}
