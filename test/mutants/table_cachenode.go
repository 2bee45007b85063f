package mutants

func cachenodeGroup() Group {
	return Group{Package: "cmd/cachenode", Mutants: []Mutant{
		{
			Name: "processors-one-while-busy", Bug: "keeps one processor while the node is busy", File: "processors.go",
			Old: "case share > busyShare:", New: "case false:", Tests: "TestDemandOfProcessors|TestProcessorsFollowTheDemand",
		},
		{
			Name: "processors-one-at-once", Bug: "uses one processor after a single idle interval", File: "processors.go",
			Old: "case d.quiet >= quietBeats:", New: "case d.quiet > 0:", Tests: "TestDemandOfProcessors",
		},
		{
			Name: "processors-quiet-sum", Bug: "counts idle intervals with busy ones in between", File: "processors.go",
			Old: "\t\td.quiet = 0\n", New: "", Tests: "TestDemandOfProcessors",
		},
		{
			Name: "processors-of-the-operator", Bug: "changes the operator's number of processors", File: "processors.go",
			Old: "\tif fixedProcessors() {\n\t\treturn\n\t}\n\tvar d demand", New: "\tvar d demand", Tests: "TestProcessorsFollowTheDemand",
		},
		{
			Name: "processors-one-at-the-end", Bug: "leaves a process with one processor", File: "processors.go",
			Old: "\t\t\tif one {\n\t\t\t\tuseAllProcessors()\n\t\t\t}\n\t\t\treturn", New: "\t\t\treturn", Tests: "TestProcessorsFollowTheDemand",
		},
		{
			Name: "heap-kept", Bug: "keeps the memory of a burst", File: "heap.go",
			Old: "debug.FreeOSMemory()", New: "_ = debug.FreeOSMemory", Tests: "TestMemoryOfABurstIsReturned",
		},
	}}
}
