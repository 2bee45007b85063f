package mutants

func adminAPIGroup() Group {
	return Group{Package: "internal/edge/admin", Mutants: []Mutant{
		{
			Name: "anyone-administers", Bug: "lets etcd users without the root role use administrative calls", File: "placement.go",
			Old: `err = g.MayAdminister(user)`, New: `_ = g`, Tests: "TestOnlyRootAdministers", Package: "internal/node",
		},
		{
			Name: "map-after-the-user", Bug: "shows the map to callers who are no longer etcd users", File: "watchmap.go",
			Old: `if err = s.callers.Guard.MayLook(user);`, New: `if err = error(nil);`, Tests: "TestTheClusterIsShownToUsers", Package: "internal/edge/server",
		},
		{
			Name: "accepts-no-cluster", Bug: "accepts 0 as the ID of etcd's next cluster", File: "lineage.go",
			Old: `err != nil || accept == 0`, New: `err != nil`, Tests: "TestBumpLineage", Package: "internal/edge/server",
		},
		{
			Name: "one-verify-too-few", Bug: "permits one comparison fewer than the bound", File: "verify.go",
			Old: `s.srv.verifies.Add(1) > maxVerifies`, New: `s.srv.verifies.Add(1) >= maxVerifies`, Tests: "TestVerifyIsBounded", Package: "internal/edge/server",
		},
	}}
}
