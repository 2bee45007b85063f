package mutants

func guardGroup() Group {
	return Group{Package: "internal/auth/etcdauth", Mutants: []Mutant{
		{
			Name: "asks-despite-proofs", Bug: "asks etcd whether authentication is on although other reads prove that it is off", File: "checker.go",
			Old: `if !g.proven() {`, New: `if true {`, Tests: "TestOtherReadsReplaceTheRequest",
		},
		{
			Name: "proofs-of-before", Bug: "stops following users' rights after a read from before authentication was turned on", File: "checker.go",
			Old: `return now.denied == nil && !now.on && time`, New: `return now.denied == nil && time`, Tests: "TestOtherReadsReplaceTheRequest",
		},
		{
			Name: "off-is-not-told", Bug: "does not notify watches that authentication was turned off", File: "rights.go",
			Old: `if before.on || now.on || before.denied != nil {`, New: `if now.on || before.denied != nil {`, Tests: "TestANodeKnowsThatAuthenticationIsOff",
		},
		{
			Name: "known-off-borrowed", Bug: "a node that knows that authentication is off accepts other nodes' answers about it", File: "rights.go",
			Old: `before.denied != nil && !before.on {
		g.borrow(ctx)`, New: `!before.on {
		g.borrow(ctx)`, Tests: "TestANodeKnowsThatAuthenticationIsOff",
		},
		{
			Name: "token-counted-twice", Bug: "a reused token stays among the old ones", File: "memory.go",
			Old: `	delete(m.old, id)
	if _, ok`, New: `	if _, ok`, Tests: "TestMemoryCountsATokenOnce",
		},
		{
			Name: "memory-turns-early", Bug: "forgets old tokens when a recent one is reused", File: "memory.go",
			Old: `!ok && len(m.young) >= `, New: `(ok || !ok) && len(m.young) >= `, Tests: "TestMemoryCountsATokenOnce",
		},
		{
			Name: "strangers-look", Bug: "shows the cluster to callers who are not etcd users", File: "checker.go",
			Old: `return t.Has(caller)`, New: `return true`, Tests: "TestUsersMayReadTheShardMap",
		},
		{
			Name: "cluster-shown-before-etcd-spoke", Bug: "shows the cluster before etcd has reported whether authentication is on", File: "checker.go",
			Old: `if !now.on && !g.cfg.Etcd.Account() {`, New: `if !now.on {`, Tests: "TestUsersMayReadTheShardMap",
		},
		{
			Name: "readers-administer", Bug: "lets users without etcd's root role use administrative calls", File: "checker.go",
			Old: `return t.Root(caller)`, New: `return true`, Tests: "TestRootAdministers",
		},
		{
			Name: "refused-token-trusted", Bug: "trusts a token that etcd has refused", File: "caller.go",
			Old: "\t\tg.tokens.drop(id)\n", New: ``, Tests: "TestRefusedTokenIsNotTrustedWhileEtcdIsAway",
		},
		{
			Name: "token-of-older-rights", Bug: "accepts a token that was confirmed before the rights changed", File: "caller.go",
			Old: `h.revision < revision, age`, New: `age`, Tests: "TestVerdictsAreEtcds",
		},
		{
			Name: "token-never-confirmed-again", Bug: "trusts a token forever", File: "caller.go",
			Old: `age > g.cfg.Confirm*3/2:`, New: `false:`, Tests: "TestIntervalsOfConfirmations",
		},
		{
			Name: "refusal-for-ever", Bug: "refuses a token forever after one refusal", File: "caller.go",
			Old: `time.Now().Before(r.until)`, New: `r.err != nil`, Tests: "TestRefusalIsShort",
		},
		{
			Name: "stranger-token-shared", Bug: "shares the claimed identity of a stranger with other nodes", File: "learn.go",
			Old: `ok && !h.claimed`, New: `ok`, Tests: "TestSignedTokens",
		},
		{
			Name: "rights-between-two-revisions", Bug: "accepts rights that changed during the read", File: "rights.go",
			Old: `case after == revision:`, New: `case true:`, Tests: "TestRightsReadWhileTheyChange",
		},
		{
			Name: "long-token", Bug: "accepts a token of any length", File: "caller.go",
			Old: `if len(token) > maxToken {`, New: `if false {`, Tests: "TestALongTokenIsRefused",
		},
		{
			Name: "older-rights-borrowed", Bug: "copies older rights than those of another node", File: "learn.go",
			Old: `r.GetRevision() > than.GetRevision()`, New: `false`, Tests: "TestOrderOfRights",
		},
		{
			Name: "half-a-token-known", Bug: "accepts a truncated token name as one that ends in zeros", File: "learn.go",
			Old: `if len(b) != len(id) {
		return id, false
	}
	return tokenID(b), true`, New: `return id, copy(id[:], b) <= len(id)`, Tests: "TestAnIncompleteTokenHashMatchesNoToken",
		},
		{
			Name: "claimed-token-told", Bug: "sends other nodes a token's unverified claims", File: "learn.go",
			Old: `ok && !h.claimed`, New: `ok`, Tests: "TestIncompleteSharesAreNotLearned",
		},
	}}
}

func accessGroup() Group {
	return Group{Package: "internal/auth/authz", Mutants: []Mutant{
		{
			Name: "refused-watch-counts", Bug: "a watch with too many keys counts as open", File: "keys.go",
			Old: `watchKeyBytes, n); err != nil {
			c.WatchesEnded(1)`, New: `watchKeyBytes, n); err != nil {`, Tests: "TestWatchKeysOfACallerAreBounded",
		},
		{
			Name: "refused-keys-held", Bug: "the keys of a refused watch stay in the budget", File: "keys.go",
			Old: `		b.Give(holder, budget.WatchKeys, n)
	}
	return err`, New: `	}
	return err`, Tests: "TestWatchKeysOfACallerAreBounded",
		},
		{
			Name: "callers-keys-kept", Bug: "the keys of an ended watch count for its caller", File: "keys.go",
			Old: `c.use.give(watchKeyBytes, n)`, New: `_ = n`, Tests: "TestWatchKeysOfACallerAreBounded",
		},
		{
			Name: "limit-off-by-one", Bug: "a caller has one more open than its limit", File: "usage.go",
			Old: `have+n > most`, New: `have+n > most+1`, Tests: "TestLimits",
		},
		{
			Name: "connection-without-calls", Bug: "does not count connections without a call", File: "presence.go",
			Old: `if err := p.arrive(); err != nil {`, New: `if err := error(nil); err != nil {`,
			Tests: "TestConnectionsCountWithoutCalls", Package: "internal/node",
		},
		{
			Name: "removed-goes-on", Bug: "keeps connections of an identity that lost its rights", File: "cut.go",
			Old: `if !known(names) {`, New: `if false && known(names) {`, Tests: "TestAnIdentityWithoutRightsIsCutOff",
		},
		{
			Name: "watch-keys-unbounded", Bug: "does not bound the total size of watch keys", File: "keys.go",
			Old: `if err := b.Take(holder, budget.WatchKeys, n, 0); err != nil {`, New: `if err := (*budget.Budget)(nil).Take(holder, budget.WatchKeys, n, 0); err != nil {`, Tests: "TestWatchKeysAreBounded",
		},
		{
			Name: "watch-keys-kept", Bug: "counts the keys of ended watches", File: "keys.go",
			Old: "	b.Give(holder, budget.WatchKeys, n)\n	if c != nil {", New: "	if c != nil {", Tests: "TestWatchKeysAreBounded",
		},
		{
			Name: "large-message", Bug: "accepts messages of any size from a caller with a limit", File: "caller.go",
			Old: `if most == 0 || int64(bytes) <= most {`, New: `if true {`, Tests: "TestMessagesOfACallerAreBounded",
		},
		{
			Name: "message-off-by-one", Bug: "refuses a message of exactly the permitted size", File: "caller.go",
			Old: `int64(bytes) <= most {`, New: `int64(bytes) < most {`, Tests: "TestMessagesOfACallerAreBounded",
		},
		{
			Name: "watches-unbounded", Bug: "reserves no bytes for the watch itself", File: "keys.go",
			Old: `if err := b.Take(holder, budget.Watches, watchBytes, 0); err != nil {`, New: `if err := (*budget.Budget)(nil).Take(holder, budget.Watches, watchBytes, 0); err != nil {`, Tests: "TestWatchesAreBounded",
		},
		{
			Name: "watch-bytes-kept", Bug: "does not release the bytes of an ended watch", File: "keys.go",
			Old: "	b.Give(holder, budget.Watches, watchBytes)\n	b.Give(holder, budget.WatchKeys, n)", New: "	b.Give(holder, budget.WatchKeys, n)", Tests: "TestWatchesAreBounded",
		},
		{
			Name: "refused-watch-bytes-kept", Bug: "does not release the bytes of a watch whose keys are refused", File: "keys.go",
			Old: "	if err != nil {\n		b.Give(holder, budget.Watches, watchBytes)\n	}", New: "", Tests: "TestWatchesAreBounded",
		},
		{
			Name: "address-with-port", Bug: "each connection of an address has a separate part of the budget", File: "keys.go",
			Old: `name = netlimit.SourceOf(p.Addr)`, New: `name = netlimit.SourceOf(nil)`, Tests: "TestBytesCountForTheIdentityOrTheAddress",
		},
		{
			Name: "long-watch-key", Bug: "accepts watch keys of any length", File: "keys.go",
			Old: `if len(key) <= MaxWatchKey {`, New: `if true {`, Tests: "TestTheLongestWatchKey",
		},
		{
			Name: "limit-not-given-back", Bug: "counts ended calls against the caller's limit", File: "caller.go",
			Old: `return func() { c.use.give(streams, 1) }, nil`, New: `return func() {}, nil`, Tests: "TestLimits",
		},
		{
			Name: "watch-not-given-back", Bug: "does not release ended watches", File: "caller.go",
			Old: "\t\tc.use.give(watches, int64(n))\n", New: ``, Tests: "TestLimits",
		},
		{
			Name: "connection-not-given-back", Bug: "does not release ended connections", File: "presence.go",
			Old: "\t\tu.give(connections, 1)\n\t\tp.a.usage.leave(u)\n\t}\n}", New: "\t\tp.a.usage.leave(u)\n\t}\n}", Tests: "TestLimits",
		},
		{
			Name: "token-after-its-end", Bug: "accepts an expired token on a connection that has used it", File: "presence.go",
			Old: ` && (l.ends.IsZero() || time.Now().Before(l.ends))`, New: ``, Tests: "TestATokenEnds",
		},
		{
			Name: "token-of-another-caller", Bug: "treats a caller with another token as the previous caller", File: "presence.go",
			Old: ` && l.tokens == tokens`, New: ``, Tests: "TestIdentityOfACaller",
		},
		{
			Name: "metrics-for-all", Bug: "shows metrics to callers without operator:read", File: "web.go",
			Old: `return (&Caller{a: a, names: names}).May(ctx, policy.OperatorRead, kv.Range{})`, New: `_, _, _ = names, policy.OperatorRead, kv.Range{}; return nil`, Tests: "TestHTTPNeedsOperatorRead",
		},
		{
			Name: "policy-of-before", Bug: "a reload does not affect known callers", File: "caller.go",
			Old: `r != nil && r.state == s`, New: `r != nil`, Tests: "TestReload",
		},
		{
			Name: "past-the-port", Bug: "accepts a call that did not pass the handshake", File: "presence.go",
			Old: `if !ok || p.a != a {`, New: `if false {`, Tests: "TestIdentityOfACaller",
		},
		{
			Name: "identities-unbounded", Bug: "counts any number of identities separately", File: "usage.go",
			Old: `len(l.known) < l.max || l.dropLocked()`, New: `true`, Tests: "TestIdentitiesAreBounded",
		},
		{
			Name: "certificate-without-identity", Bug: "a verified certificate yields no identity", File: "presence.go",
			Old: `return policy.CertificateNames(state.VerifiedChains[0][0])
`, New: `return nil
`, Tests: "TestAnUnverifiedCertificateNamesNoIdentity",
		},
		{
			Name: "caller-outlives-keys", Bug: "still accepts a caller whose signing key was removed", File: "presence.go",
			Old: `l != nil && l.state == s &&`, New: `l != nil &&`, Tests: "TestNewKeysAreAChange",
		},
		{
			Name: "connection-of-another", Bug: "accepts a call that arrived at another port", File: "presence.go",
			Old: `if !ok || p.a != a {`, New: `if !ok {`, Tests: "TestACallOfAnotherOrOfNoConnectionIsRefused",
		},
	}}
}

func policyGroup() Group {
	return Group{Package: "internal/auth/policy", Mutants: []Mutant{
		{
			Name: "star-in-any-name", Bug: "accepts a leading star in names that are not DNS names", File: "names.go",
			Old: `kind+":" == kindDNS && strings.HasPrefix(rest, "*."):`, New: `strings.HasPrefix(rest, "*."):`, Tests: "TestEdgesOfPatterns",
		},
		{
			Name: "empty-label-matches", Bug: "a star matches an empty label", File: "names.go",
			Old: ` && label != "" && `, New: ` && `, Tests: "TestEdgesOfPatterns",
		},
		{
			Name: "words-give-names", Bug: "an entry for all callers assigns them their first name", File: "policy.go",
			Old: `if p.kind() == "" {`, New: `if false {`, Tests: "TestNameOfAnIdentityInLogsAndLimits",
		},
		{
			Name: "long-token-looked-at", Bug: "parses tokens of any length", File: "token.go",
			Old: `	if len(token) > maxToken {
		return false`, New: `	if false {
		return false`, Tests: "TestALongTokenIsNotParsed",
		},
		{
			Name: "deny-loses", Bug: "permits a request that one rule allows and another denies", File: "policy.go",
			Old: `.Without(etcdroles.KeysOf(denied.keys[v]))`, New: ``, Tests: "TestADenyRuleWins|TestDenyRulesAgainstAModel",
		},
		{
			Name: "deny-of-orders-loses", Bug: "accepts a shard map change although a rule denies it", File: "policy.go",
			Old: `allowed.acts[v] && !denied.acts[v]`, New: `allowed.acts[v]`, Tests: "TestADenyRuleWins",
		},
		{
			Name: "token-without-end", Bug: "accepts a token without an expiry", File: "token.go",
			Old: `case claims.Expiry == nil:`, New: `case false:`, Tests: "TestTokens",
		},
		{
			Name: "token-without-subject", Bug: "accepts a token without a subject", File: "token.go",
			Old: `case claims.Subject == "":`, New: `case false:`, Tests: "TestTokens",
		},
	}}
}
