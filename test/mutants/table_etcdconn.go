package mutants

func etcdconnGroup() Group {
	return Group{Package: "internal/etcd/etcdconn", Mutants: []Mutant{
		{
			Name: "authentication-stays-off", Bug: "does not learn from a refused read that authentication was turned on", File: "authoff.go",
			Old: `		c.authOff.end()
`, New: ``, Tests: "TestReadsProveThatAuthenticationIsOff", Package: "internal/etcd",
		},
		{
			Name: "off-proven-for-ever", Bug: "takes authentication for off after it was turned on, as of an old read", File: "authoff.go",
			Old: `if o.off = off; !off {`, New: `if o.off = off; false {`, Tests: "TestReadsProveThatAuthenticationIsOff", Package: "internal/etcd",
		},
		{
			Name: "caller-without-token", Bug: "passes a call without a token on with nothing but the node's certificate", File: "proxy.go",
			Old: `ctx = WithToken(ctx, invalidToken)`, New: `_ = invalidToken`, Tests: "TestProxyConnCarriesTheCaller", Package: "internal/etcd",
		},
		{
			Name: "refused-compaction-remembered", Bug: "remembers a compaction that etcd refused", File: "proxy.go",
			Old: `if err == nil && floor > 0 {`, New: `if floor > 0 {`, Tests: "TestProxyConnRemembersCompactions", Package: "internal/etcd",
		},
		{
			Name: "inquiries-at-once", Bug: "asks all members again before they have answered", File: "inquiry.go",
			Old: `i.running || now`, New: `now`, Tests: "TestInquiriesAreOneAtATime",
		},
		{
			Name: "leaderless-is-led", Bug: "takes a member that reports no leader for one that reaches it", File: "inquiry.go",
			Old: ` && !IsUnavailable(err) }`, New: ` }`, Tests: "TestLedBy",
		},
	}}
}
