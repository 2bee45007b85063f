package mutants

func etcdapiGroup() Group {
	return Group{Package: "internal/etcdapi", Mutants: []Mutant{
		{
			Name: "starts-too-late", Bug: "a watch of etcd's API from now on misses the next revision", File: "watch.go",
			Old: `return now + 1, now, nil`, New: `return now + 2, now, nil`, Tests: "TestWatchStart",
		},
		{
			Name: "split-operation-taken", Bug: "passes an operation in several parts on to etcd", File: "pass_txn.go",
			Old: `case s.split:`, New: `case false:`, Tests: "TestNestedTransactions",
		},
	}}
}
