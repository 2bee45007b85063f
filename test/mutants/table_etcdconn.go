package mutants

func etcdconnGroup() Group {
	return Group{Package: "internal/etcd/etcdconn", Mutants: []Mutant{
		{
			Name: "authentication-stays-off", Bug: "does not detect from a refused read that authentication was turned on", File: "authoff.go",
			Old: `		c.authOff.end()
`, New: ``, Tests: "TestReadsProveThatAuthenticationIsOff", Package: "internal/etcd",
		},
		{
			Name: "off-proven-for-ever", Bug: "an old read still proves that authentication is off after it was turned on", File: "authoff.go",
			Old: `if o.off = off; !off {`, New: `if o.off = off; false {`, Tests: "TestReadsProveThatAuthenticationIsOff", Package: "internal/etcd",
		},
		{
			Name: "caller-without-token", Bug: "forwards a call without a token under the node's certificate alone", File: "proxy.go",
			Old: `ctx = WithToken(ctx, invalidToken)`, New: `_ = invalidToken`, Tests: "TestProxyConnCarriesTheCaller", Package: "internal/etcd",
		},
		{
			Name: "refused-compaction-remembered", Bug: "records a compaction that etcd refused", File: "proxy.go",
			Old: `if err == nil && floor > 0 {`, New: `if floor > 0 {`, Tests: "TestProxyConnRemembersCompactions", Package: "internal/etcd",
		},
		{
			Name: "inquiries-at-once", Bug: "queries all members again before they have answered", File: "inquiry.go",
			Old: `i.running || now`, New: `now`, Tests: "TestInquiriesAreOneAtATime",
		},
		{
			Name: "leaderless-is-led", Bug: "treats a member that reports no leader as connected to the leader", File: "inquiry.go",
			Old: ` && !IsUnavailable(err) }`, New: ` }`, Tests: "TestLedBy",
		},
	}}
}
