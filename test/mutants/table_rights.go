package mutants

func guardGroup() Group {
	return Group{Package: "internal/auth/etcdauth", Mutants: []Mutant{
		{
			Name: "asks-despite-proofs", Bug: "asks etcd whether authentication is on although other reads prove that it is off", File: "checker.go",
			Old: `if !g.proven() {`, New: `if true {`, Tests: "TestOtherReadsSpareTheQuestion",
		},
		{
			Name: "proofs-of-before", Bug: "does not follow the rights of users after a read from before authentication was turned on", File: "checker.go",
			Old: `return now.denied == nil && !now.on && time`, New: `return now.denied == nil && time`, Tests: "TestOtherReadsSpareTheQuestion",
		},
		{
			Name: "off-is-not-told", Bug: "watches do not learn that authentication was turned off", File: "rights.go",
			Old: `if before.on || now.on || before.denied != nil {`, New: `if now.on || before.denied != nil {`, Tests: "TestOffIsKnown",
		},
		{
			Name: "known-off-borrowed", Bug: "a node that knows that authentication is off takes what others say", File: "rights.go",
			Old: `before.denied != nil && !before.on {
		g.borrow(ctx)`, New: `!before.on {
		g.borrow(ctx)`, Tests: "TestOffIsKnown",
		},
		{
			Name: "token-counted-twice", Bug: "a token that is used again stays among the old ones", File: "memory.go",
			Old: `	delete(m.old, id)
	if _, ok`, New: `	if _, ok`, Tests: "TestMemoryCountsATokenOnce",
		},
		{
			Name: "memory-turns-early", Bug: "forgets old tokens when a young one is used again", File: "memory.go",
			Old: `!ok && len(m.young) >= `, New: `(ok || !ok) && len(m.young) >= `, Tests: "TestMemoryCountsATokenOnce",
		},
		{
			Name: "strangers-look", Bug: "shows the cluster to callers who are no users of etcd's", File: "checker.go",
			Old: `return t.Has(caller)`, New: `return true`, Tests: "TestUsersLook",
		},
		{
			Name: "cluster-shown-before-etcd-spoke", Bug: "shows the cluster before etcd has said whether authentication is on", File: "checker.go",
			Old: `if !now.on && !g.cfg.Etcd.Account() {`, New: `if !now.on {`, Tests: "TestUsersLook",
		},
		{
			Name: "readers-administer", Bug: "lets users without etcd's root role administer", File: "checker.go",
			Old: `return t.Root(caller)`, New: `return true`, Tests: "TestRootAdministers",
		},
		{
			Name: "refused-token-trusted", Bug: "trusts a token that etcd has refused", File: "caller.go",
			Old: "\t\tg.tokens.drop(id)\n", New: ``, Tests: "TestRefusedTokenIsNotTrustedWhileEtcdIsAway",
		},
		{
			Name: "token-of-older-rights", Bug: "serves by a token that was confirmed before the rights changed", File: "caller.go",
			Old: `h.revision < revision, age`, New: `age`, Tests: "TestVerdictsAreEtcds",
		},
		{
			Name: "token-never-confirmed-again", Bug: "trusts a token for ever", File: "caller.go",
			Old: `age > g.cfg.Confirm*3/2:`, New: `false:`, Tests: "TestWhenATokenIsConfirmedAgain",
		},
		{
			Name: "refusal-for-ever", Bug: "a token that was refused once is refused for ever", File: "caller.go",
			Old: `time.Now().Before(r.until)`, New: `r.err != nil`, Tests: "TestRefusalIsShort",
		},
		{
			Name: "stranger-token-shared", Bug: "shares what a stranger claims with other nodes", File: "learn.go",
			Old: `ok && !h.claimed`, New: `ok`, Tests: "TestSignedTokens",
		},
		{
			Name: "rights-between-two-revisions", Bug: "takes rights that changed while they were read", File: "rights.go",
			Old: `case after == revision:`, New: `case true:`, Tests: "TestRightsReadWhileTheyChange",
		},
		{
			Name: "long-token", Bug: "takes a token of any length", File: "caller.go",
			Old: `if len(token) > maxToken {`, New: `if false {`, Tests: "TestALongTokenIsRefused",
		},
		{
			Name: "older-rights-borrowed", Bug: "borrows rights that are older than those of another node", File: "learn.go",
			Old: `r.GetRevision() > than.GetRevision()`, New: `false`, Tests: "TestWhichRightsAreNewer",
		},
		{
			Name: "half-a-token-known", Bug: "takes a shorter name of a token for one with zeros", File: "learn.go",
			Old: `if len(b) != len(id) {
		return id, false
	}
	return tokenID(b), true`, New: `return id, copy(id[:], b) <= len(id)`, Tests: "TestHalfTheNameOfATokenNamesNone",
		},
		{
			Name: "claimed-token-told", Bug: "tells other nodes what a token says of itself", File: "learn.go",
			Old: `ok && !h.claimed`, New: `ok`, Tests: "TestWhatIsNotLearnt",
		},
	}}
}

func tlsGroup() Group {
	return Group{Package: "internal/files/tlsconf", Mutants: []Mutant{
		{
			Name: "tls-config-of-old-files", Bug: "has handshakes use files as they were before", File: "material.go",
			Old: "was != nil && was.of == now", New: "was != nil", Tests: "TestConnectionsShareAConfiguration|TestReload",
		},
		{
			Name: "own-wildcard", Bug: "takes a star in its own certificate for a wildcard", File: "material.go",
			Old: `names, like := p.names(now), same`, New: `names, like := p.names(now), matches`, Tests: "TestPeersKnowEachOtherByName",
		},
		{
			Name: "revoked-goes-on", Bug: "connections of a revoked certificate go on", File: "live.go",
			Old: `if next.revoked.check(c.shown) != nil {`, New: `if false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "revoked-opens", Bug: "a revoked certificate opens connections", File: "live.go",
			Old: `if err := m.now.Load().revoked.check(state.PeerCertificates); err != nil {`, New: `if err := error(nil); err != nil {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "foreign-list", Bug: "takes revocation lists that no CA has signed", File: "crl.go",
			Old: `if err := signedByOne(list, cas); err != nil {`, New: `if err := signedByOne(list, cas); false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "any-node-will-do", Bug: "takes the certificate of one node for another's", File: "material.go",
			Old: `names = names.of(node)`, New: `_ = node`, Tests: "TestACertificateIsForOneNode",
		},
		{
			Name: "greatest-version", Bug: "speaks TLS 1.3 whatever the greatest version is", File: "material.go",
			Old: `MaxVersion: p.Max, `, New: ``, Tests: "TestProtocols",
		},
		{
			Name: "any-cipher-suite", Bug: "speaks all of Go's cipher suites whatever the flag has", File: "material.go",
			Old: `, CipherSuites: p.CipherSuites,`, New: `,`, Tests: "TestProtocols",
		},
		{
			Name: "least-version", Bug: "speaks TLS 1.2 whatever the least version is", File: "material.go",
			Old: `MinVersion: max(p.Min, tls.VersionTLS12)`, New: `MinVersion: tls.VersionTLS12`, Tests: "TestProtocols",
		},
	}}
}

func netlimitGroup() Group {
	return Group{Package: "internal/edge/netlimit", Mutants: []Mutant{
		{
			Name: "silent-connections-pend", Bug: "clients that connect and send later push each other out", File: "listen_linux.go",
			Old: "const silence = 3", New: "const silence = 0", Tests: "TestClientsThatConnectAtTheSameTimeGetIn",
		},
		{
			Name: "penalty-without-pace", Bug: "lets connections of an address that has flooded the node begin at once", File: "penalty.go",
			Old: "of.next = of.next.Add(penaltyPace)", New: "of.next = now", Tests: "TestPenalties",
		},
		{
			Name: "penalty-without-end", Bug: "never ends a penalty", File: "penalty.go",
			Old: "e != nil && !now.Before(e.Value.(*penalty).ends)", New: "e != nil && now.IsZero()", Tests: "TestPenalties",
		},
		{
			Name: "penalty-not-prolonged", Bug: "does not prolong the penalty of an address that goes on", File: "penalty.go",
			Old: "e.Value.(*penalty).ends = now.Add(penaltyTime) //nolint:forcetypeassert // all are\n\t\tp.list", New: "p.list", Tests: "TestPenalties",
		},
		{
			Name: "penalties-unbounded", Bug: "keeps the penalties of any number of addresses", File: "penalty.go",
			Old: "len(p.of) > maxPenalties", New: "len(p.of) < 0", Tests: "TestPenaltiesAreBounded",
		},
		{
			Name: "refused-handshakes-count", Bug: "connections that are refused take from those that wait", File: "pace.go",
			Old: "\tif wait = max(at.Sub(now), 0); wait > most {\n\t\treturn 0, false\n\t}\n\tp.paid[network] = at\n",
			New: "\tp.paid[network] = at\n\tif wait = max(at.Sub(now), 0); wait > most {\n\t\treturn 0, false\n\t}\n", Tests: "TestHandshakesOfAnAddressArePaced",
		},
		{
			Name: "penalty-outlives-connections", Bug: "a connection that is closed waits for its penalty", File: "netlimit.go",
			Old: "close(c.penalty.closed)", New: "_ = c.penalty.closed", Tests: "TestConnectionsWaitForTheirPenalty",
		},
		{
			Name: "penalty-at-no-port", Bug: "does not slow down addresses that have flooded the node", File: "netlimit.go",
			Old: "out.penalty = &wayIn", New: "_ = &wayIn", Tests: "TestConnectionsWaitForTheirPenalty",
		},
		{
			Name: "handshakes-all-at-once", Bug: "lets all handshakes compute at a time", File: "turns.go",
			Old: `case t.running < t.atATime:`, New: `case t.atATime > 0:`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "pending-of-any-address", Bug: "half-open connections push out those of other clients", File: "netlimit.go",
			Old: `c.network == crowd {`, New: `c.network == crowd || c != nil {`, Tests: "TestPendingConnectionsPushOutThoseOfTheLargestCrowd",
		},
		{
			Name: "no-pace", Bug: "reads what an address sends as fast as it comes", File: "netlimit.go",
			Old: `	time.Sleep(wait)`, New: `	_ = wait`, Tests: "TestConnectionsAreReadAtTheirPace",
		},
		{
			Name: "pace-not-counted", Bug: "does not count reads that wait for the rate of their address", File: "netlimit.go",
			Old: `	c.limit.paced.Add(1)`, New: ``, Tests: "TestConnectionsAreReadAtTheirPace",
		},
		{
			Name: "paces-without-bound", Bug: "counts any number of addresses", File: "pace.go",
			Old: `len(p.paid) >= maxPaces && `, New: `false && `, Tests: "TestPacesAreBounded",
		},
		{
			Name: "handshakes-without-turns-of-addresses", Bug: "lets one address delay the handshakes of others by all of its own", File: "turns.go",
			Old: `queue.Push(SourceOf(c.RemoteAddr()), c)`, New: `queue.Push("", c)`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "handshakes-begun-wait-with-others", Bug: "lets handshakes that have begun wait for those that have not", File: "turns.go",
			Old: `queue = &t.begun`, New: `queue = &t.fresh`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "turn-kept-by-closed-connections", Bug: "a connection that is closed in its handshake keeps its turn", File: "netlimit.go",
			Old: "func (c *Conn) Close() error {\n\tc.shook()", New: "func (c *Conn) Close() error {", Tests: "TestClosedConnectionsGiveTheirTurnBack",
		},
		{
			Name: "probes-kept-out", Bug: "refuses new connections while old ones are held open", File: "netlimit.go",
			Old: `if full && !l.cfg.Evict {`, New: `if full {`, Tests: "TestHeldConnectionsKeepNoProbeOut",
		},
		{
			Name: "address-pushes-out-others", Bug: "an address that has its part of a port pushes out the connections of others", File: "netlimit.go",
			Old: `c.network == network {`, New: `true {`, Tests: "TestAnAddressPushesOutItsOwn",
		},
		{
			Name: "address-refused-where-old-ones-end", Bug: "refuses an address that holds old connections open", File: "netlimit.go",
			Old: `if crowded && !l.cfg.Evict {`, New: `if crowded {`, Tests: "TestAnAddressPushesOutItsOwn",
		},
		{
			Name: "address-keeps-places", Bug: "does not give back the place of a connection that its address has closed", File: "netlimit.go",
			Old: `	less(l.from, c.network)`, New: ``, Tests: "TestOneAddressDoesNotTakeAll",
		},
		{
			Name: "address-of-ipv6", Bug: "takes each address of a network of IPv6 for another client", File: "netlimit.go",
			Old: `bits := 64`, New: `bits := 128`, Tests: "TestANetworkOfIPv6CountsAsOneAddress",
		},
		{
			Name: "address-of-ipv4-in-ipv6", Bug: "takes all addresses of IPv4 at a socket of IPv6 for one client", File: "netlimit.go",
			Old: `ip = ip.Unmap(); ip.Is4()`, New: `ip.Is4()`, Tests: "TestANetworkOfIPv6CountsAsOneAddress",
		},
	}}
}

func gatewayGroup() Group {
	return Group{Package: "internal/edge/gateway", Mutants: []Mutant{
		{
			Name: "json-decoded-in-one-go", Bug: "decodes a large request without yielding", File: "gateway.go",
			Old: "&yield.Reader{Reader: r, Part: quick}", New: "&yield.Reader{Reader: r, Part: 1 << 30}", Tests: "TestDecodingYields",
		},
		{
			Name: "json-deep", Bug: "decodes requests as deep as the decoder can", File: "exchange.go",
			Old: "case b.nesting.deepest > maxDepth:", New: "case b.nesting.deepest > 1<<30:", Tests: "TestDeepRequestsAreRefused",
		},
		{
			Name: "json-depth-of-strings", Bug: "takes brackets within strings for nesting", File: "exchange.go",
			Old: "\tcase d.quoted:\n\t\td.escaped = c == '\\\\'\n", New: "", Tests: "TestNesting",
		},
		{
			Name: "json-written-beside-its-pump", Bug: "a pump continues while its message is written", File: "calls.go",
			Old: "\t\tif inTurn {\n", New: "\t\tif false {\n", Tests: "TestAPumpWaitsUntilItsMessageIsWritten",
		},
		{
			Name: "json-turn-of-a-wait", Bug: "an answer waits for its client in a turn", File: "credentials.go",
			Old: "c.socket.Stalled() {\n\t\t\tc.end()\n", New: "c.socket.Stalled() {\n", Tests: "TestAnswersWaitWithoutATurn",
		},
		{
			Name: "json-unsent-unbounded", Bug: "the kernel takes megabytes for a client of HTTP/1 that does not read", File: "credentials.go",
			Old: "\tboundUnsent(conn)\n", New: "", Tests: "TestTheKernelHoldsLittleForClientsThatDoNotRead",
		},
		{
			Name: "json-decoded-at-once", Bug: "decodes large requests without a turn", File: "gateway.go",
			Old: `if b.Len() <= quick {`, New: `if b.Len() > 0 {`, Tests: "TestLargeRequestsAreDecodedInTurns",
		},
		{
			Name: "id-of-a-part", Bug: "gives a part of a revision or unit an id: a client that resumes after it misses the rest", File: "events.go",
			Old: `if e.partial = !complete; !complete {`, New: `if e.partial = !complete; false {`, Tests: "TestEventIDs",
		},
		{
			Name: "progress-id-in-a-part", Bug: "progress moves the id in the middle of a unit", File: "events.go",
			Old: `if !e.partial && !e.whole && p.GetRevision() > e.at {`, New: `if !e.whole && p.GetRevision() > e.at {`, Tests: "TestEventIDs",
		},
		{
			Name: "id-before-the-state", Bug: "gives an id to a client that does not have the state", File: "events.go",
			Old: `if !e.partial && !e.whole && p.GetRevision() > e.at {`, New: `if !e.partial && p.GetRevision() > e.at {`, Tests: "TestEventIDs",
		},
		{
			Name: "json-slow-reader", Bug: "lets a client take any time for an answer if it reads something now and then", File: "credentials.go",
			Old: `min(grace, pieceTimeout)`, New: `max(grace, pieceTimeout)`, Tests: "TestClientsThatDoNotReadAreCut",
		},
		{
			Name: "json-field-twice", Bug: "writes a field twice, or a list in two parts", File: "translate.go",
			Old: `case seen&(1<<number) != 0:`, New: `case false:`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-beyond-its-end", Bug: "reads a field beyond the end of its message", File: "translate.go",
			Old: ` || size > uint64(w.left):`, New: `:`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-kind", Bug: "takes bytes for a number", File: "translate.go",
			Old: `case kind != field.wire() || `, New: `case `, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-skips-too-far", Bug: "skips an unknown field beyond the end of its message", File: "translate.go",
			Old: `if size < 0 || size > w.left {`, New: `if size < 0 {`, Tests: "TestBrokenMessagesAreNotWritten",
		},
		{
			Name: "json-whole-values", Bug: "holds the JSON of a whole value", File: "translate.go",
			Old: `		w.left -= n
		w.flush(translatorBytes)`, New: `		w.left -= n`, Tests: "TestValuesAreWrittenInParts",
		},
		{
			Name: "json-defaults", Bug: "writes fields that have their default", File: "translate.go",
			Old: `case field.form == nil && value == 0 && size == 0:`, New: `case false:`, Tests: "TestAWatchIsWrittenAsAtEtcd",
		},
		{
			Name: "socket-in-parts", Bug: "sends a large answer of a WebSocket as several messages", File: "socket.go",
			Old: `	if len(text) < len(p) {
		err = w.end()
	}`, New: `	err = w.end()`, Tests: "TestLargeAnswersAreOneMessageOfAWebSocket", Package: "internal/node",
		},
		{
			Name: "json-objects", Bug: "takes any number of objects in a request", File: "exchange.go",
			Old: `case b.objects > maxObjects:`, New: `case b.objects < 0:`, Tests: "TestJSONBodiesCostTheirSize", Package: "internal/node",
		},
		{
			Name: "json-rebinding", Bug: "lets a request name any host at a loopback address", File: "hosts.go",
			Old: `return !ok || !isLoopback(at.LocalAddr)`, New: `return true`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "json-other-origin", Bug: "lets pages of another origin write", File: "gateway.go",
			Old: `err := g.origins.Check(asWrite(r, socket)); err != nil`, New: `err := g.origins.Check(asWrite(r, socket)); err != nil && socket`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "json-host-unlisted", Bug: "takes any host beside those that are listed", File: "hosts.go",
			Old: "\treturn false\n}\n\nfunc isLoopback", New: "\treturn true\n}\n\nfunc isLoopback", Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
		{
			Name: "socket-of-other-origin", Bug: "lets pages of another origin open WebSockets", File: "gateway.go",
			Old: `g.origins.Check(asWrite(r, socket))`, New: `g.origins.Check(r)`, Tests: "TestPagesDoNotReachANodeOnLoopback", Package: "internal/node",
		},
	}}
}

func configGroup() Group {
	return Group{Package: "internal/ops/config", Mutants: []Mutant{
		{
			Name: "help-shows-expert-flags", Bug: "--help shows the flags for experts", File: "flags.go",
			Old: `func(title string) bool { return title == groupExpert }`, New: `func(title string) bool { return false }`, Tests: "TestUsagesShowGroups",
		},
		{
			Name: "founders-without-a-shard", Bug: "founds a cluster of more nodes than replicas with one shard", File: "config.go",
			Old: `return max(c.BootstrapExpect, len(c.Prefixes))`, New: `return max(1, len(c.Prefixes))`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "shards-that-part-nothing", Bug: "founds a cluster with a shard for each node though all have all shards", File: "config.go",
			Old: `case c.BootstrapExpect <= c.Replicas:`, New: `case c.BootstrapExpect < c.Replicas:`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "asked-shards-ignored", Bug: "ignores --shards", File: "config.go",
			Old: `case c.Shards > 0:`, New: `case c.Shards < 0:`, Tests: "TestAClusterBeginsWithTheShardsThatItsNodesNeed",
		},
		{
			Name: "dev-shards-of-voters", Bug: "a dev cluster begins with shards for its voters alone", File: "dev.go",
			Old: `c.Shards = d.Nodes`, New: `c.Shards = d.voters()`, Tests: "TestADevClusterBeginsWithAShardForEachNode",
		},
	}}
}

func kvGroup() Group {
	return Group{Package: "internal/kv", Mutants: []Mutant{
		{
			Name: "whole-key-shown", Bug: "shows keys of any length in logs and errors", File: "range.go",
			Old: `if len(key) <= maxQuoted {`, New: `if true {`, Tests: "TestRangeString",
		},
		{
			Name: "changed-without-previous", Bug: "takes a change without its previous value for complete", File: "event.go",
			Old: `e.KV.Version() > 1:`, New: `e.KV.Version() > 2:`, Tests: "TestPreviousValueThatEtcdLeavesOut",
		},
		{
			Name: "deleted-without-previous", Bug: "takes a delete without its previous value for complete", File: "event.go",
			Old: `case !put[string(e.KV.Key())]:`, New: `case false:`, Tests: "TestPreviousValueThatEtcdLeavesOut",
		},
		{
			Name: "batch-split-whole", Bug: "gives a range the events of others", File: "runs.go",
			Old: `at >= 0 && !slices.ContainsFunc(`, New: `at >= 0 && true || at >= 0 && !slices.ContainsFunc(`, Tests: "TestSplitIsByRange",
		},
		{
			Name: "runs-over-gaps", Bug: "takes ranges for adjacent that are not", File: "runs.go",
			Old: `at, found := ends[r.Start]`, New: `at, found := max(0, len(runs)-1), len(runs) > 0`, Tests: "TestRunsAreOfAdjacentRanges",
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
			Name: "connection-without-calls", Bug: "does not count connections that have no call", File: "presence.go",
			Old: `if err := p.arrive(); err != nil {`, New: `if err := error(nil); err != nil {`,
			Tests: "TestConnectionsCountWithoutCalls", Package: "internal/node",
		},
		{
			Name: "removed-goes-on", Bug: "connections of an identity that lost its rights go on", File: "cut.go",
			Old: `if !known(names) {`, New: `if false && known(names) {`, Tests: "TestAnIdentityWithoutRightsIsCutOff",
		},
		{
			Name: "watch-keys-unbounded", Bug: "holds watch keys of any total", File: "keys.go",
			Old: `if err := b.Take(holder, budget.WatchKeys, n, 0); err != nil {`, New: `if err := (*budget.Budget)(nil).Take(holder, budget.WatchKeys, n, 0); err != nil {`, Tests: "TestWatchKeysAreBounded",
		},
		{
			Name: "watch-keys-kept", Bug: "counts the keys of ended watches", File: "keys.go",
			Old: "	b.Give(holder, budget.WatchKeys, n)\n	if c != nil {", New: "	if c != nil {", Tests: "TestWatchKeysAreBounded",
		},
		{
			Name: "large-message", Bug: "takes messages of any size from a caller with a limit", File: "caller.go",
			Old: `if most == 0 || int64(bytes) <= most {`, New: `if true {`, Tests: "TestMessagesOfACallerAreBounded",
		},
		{
			Name: "message-off-by-one", Bug: "refuses a message of just the size that is allowed", File: "caller.go",
			Old: `int64(bytes) <= most {`, New: `int64(bytes) < most {`, Tests: "TestMessagesOfACallerAreBounded",
		},
		{
			Name: "watches-unbounded", Bug: "takes no bytes for a watch itself", File: "keys.go",
			Old: `if err := b.Take(holder, budget.Watches, watchBytes, 0); err != nil {`, New: `if err := (*budget.Budget)(nil).Take(holder, budget.Watches, watchBytes, 0); err != nil {`, Tests: "TestWatchesAreBounded",
		},
		{
			Name: "watch-bytes-kept", Bug: "does not give back the bytes of a watch that has ended", File: "keys.go",
			Old: "	b.Give(holder, budget.Watches, watchBytes)\n	b.Give(holder, budget.WatchKeys, n)", New: "	b.Give(holder, budget.WatchKeys, n)", Tests: "TestWatchesAreBounded",
		},
		{
			Name: "refused-watch-bytes-kept", Bug: "does not give back the bytes of a watch whose keys are refused", File: "keys.go",
			Old: "	if err != nil {\n		b.Give(holder, budget.Watches, watchBytes)\n	}", New: "", Tests: "TestWatchesAreBounded",
		},
		{
			Name: "address-with-port", Bug: "each connection of an address has its own part of the budget", File: "keys.go",
			Old: `name = netlimit.SourceOf(p.Addr)`, New: `name = netlimit.SourceOf(nil)`, Tests: "TestWhomBytesCountFor",
		},
		{
			Name: "long-watch-key", Bug: "takes watch keys of any length", File: "keys.go",
			Old: `if len(key) <= MaxWatchKey {`, New: `if true {`, Tests: "TestTheLongestWatchKey",
		},
		{
			Name: "limit-not-given-back", Bug: "what a call has taken is not given back", File: "caller.go",
			Old: `return func() { c.use.give(streams, 1) }, nil`, New: `return func() {}, nil`, Tests: "TestLimits",
		},
		{
			Name: "watch-not-given-back", Bug: "ended watches are not given back", File: "caller.go",
			Old: "\t\tc.use.give(watches, int64(n))\n", New: ``, Tests: "TestLimits",
		},
		{
			Name: "connection-not-given-back", Bug: "ended connections are not given back", File: "presence.go",
			Old: "\t\tu.give(connections, 1)\n\t\tp.a.usage.leave(u)\n\t}\n}", New: "\t\tp.a.usage.leave(u)\n\t}\n}", Tests: "TestLimits",
		},
		{
			Name: "token-after-its-end", Bug: "takes a token after its end on a connection that has used it", File: "presence.go",
			Old: ` && (l.ends.IsZero() || time.Now().Before(l.ends))`, New: ``, Tests: "TestATokenEnds",
		},
		{
			Name: "token-of-another-caller", Bug: "a caller with another token is taken for the one before", File: "presence.go",
			Old: ` && l.tokens == tokens`, New: ``, Tests: "TestWhoACallerIs",
		},
		{
			Name: "metrics-for-all", Bug: "shows metrics to callers without operator:read", File: "web.go",
			Old: `return (&Caller{a: a, names: names}).May(ctx, policy.OperatorRead, kv.Range{})`, New: `_, _, _ = names, policy.OperatorRead, kv.Range{}; return nil`, Tests: "TestWhoMayLookOverHTTP",
		},
		{
			Name: "policy-of-before", Bug: "a reload has no effect on callers that were seen", File: "caller.go",
			Old: `r != nil && r.state == s`, New: `r != nil`, Tests: "TestReload",
		},
		{
			Name: "past-the-port", Bug: "takes a call that did not come through the handshake", File: "presence.go",
			Old: `if !ok || p.a != a {`, New: `if false {`, Tests: "TestWhoACallerIs",
		},
		{
			Name: "identities-unbounded", Bug: "counts any number of identities apart", File: "usage.go",
			Old: `len(l.known) < l.max || l.dropLocked()`, New: `true`, Tests: "TestIdentitiesAreBounded",
		},
		{
			Name: "certificate-names-nobody", Bug: "a verified certificate names nobody", File: "presence.go",
			Old: `return policy.CertificateNames(state.VerifiedChains[0][0])
`, New: `return nil
`, Tests: "TestACertificateThatWasNotVerifiedNamesNobody",
		},
		{
			Name: "caller-outlives-keys", Bug: "a caller who was known by a key that is gone stays known", File: "presence.go",
			Old: `l != nil && l.state == s &&`, New: `l != nil &&`, Tests: "TestNewKeysAreAChange",
		},
		{
			Name: "connection-of-another", Bug: "takes a call that came in at another port", File: "presence.go",
			Old: `if !ok || p.a != a {`, New: `if !ok {`, Tests: "TestACallOfAnotherOrOfNoConnectionIsRefused",
		},
	}}
}

func policyGroup() Group {
	return Group{Package: "internal/auth/policy", Mutants: []Mutant{
		{
			Name: "star-in-any-name", Bug: "takes a star at the beginning of names that are no DNS names", File: "names.go",
			Old: `kind+":" == kindDNS && strings.HasPrefix(rest, "*."):`, New: `strings.HasPrefix(rest, "*."):`, Tests: "TestEdgesOfPatterns",
		},
		{
			Name: "empty-label-matches", Bug: "a star stands for no label", File: "names.go",
			Old: ` && label != "" && `, New: ` && `, Tests: "TestEdgesOfPatterns",
		},
		{
			Name: "words-give-names", Bug: "an entry for all callers gives them their first name", File: "policy.go",
			Old: `if p.kind() == "" {`, New: `if false {`, Tests: "TestTheNameThatIsMeant",
		},
		{
			Name: "long-token-looked-at", Bug: "parses tokens of any length", File: "token.go",
			Old: `	if len(token) > maxToken {
		return false`, New: `	if false {
		return false`, Tests: "TestALongTokenIsNotOurs",
		},
		{
			Name: "deny-loses", Bug: "what a rule allows is allowed, though another denies it", File: "policy.go",
			Old: `.Without(etcdroles.KeysOf(denied.keys[v]))`, New: ``, Tests: "TestADenyRuleWins|TestDenyRulesAgainstAModel",
		},
		{
			Name: "deny-of-orders-loses", Bug: "takes orders though a rule denies them", File: "policy.go",
			Old: `allowed.acts[v] && !denied.acts[v]`, New: `allowed.acts[v]`, Tests: "TestADenyRuleWins",
		},
		{
			Name: "token-without-end", Bug: "takes a token without an end", File: "token.go",
			Old: `case claims.Expiry == nil:`, New: `case false:`, Tests: "TestTokens",
		},
		{
			Name: "token-without-subject", Bug: "takes a token without a subject", File: "token.go",
			Old: `case claims.Subject == "":`, New: `case false:`, Tests: "TestTokens",
		},
	}}
}

func budgetGroup() Group {
	return Group{Package: "internal/budget", Mutants: []Mutant{
		{
			Name: "budget-over-share", Bug: "lets a use have more than its share", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= 2*a.most || a.held <= own`, Tests: "TestUsesDoNotStarveEachOther",
		},
		{
			Name: "budget-one-queue", Bug: "clients that wait for a use's bytes take no turns", File: "budget.go",
			Old: `w.entry = a.waiting.Push(c.Name, w)`, New: `w.entry = a.waiting.Push("", w)`, Tests: "TestClientsTakeTurnsAtAUse",
		},
		{
			Name: "budget-never-alone", Bug: "refuses what is larger than the share to a caller that is alone", File: "budget.go",
			Old: `return a.held+n <= a.most || a.held <= own`, New: `return a.held+n <= a.most`, Tests: "TestWhatIsLargerThanTheShareIsHadAlone",
		},
		{
			Name: "budget-overtaken", Bug: "lets callers overtake those that wait", File: "budget.go",
			Old: `case a.waiting.Len() == 0 && a.fitsLocked(n, 0):`, New: `case a.fitsLocked(n, 0):`, Tests: "TestWaitersAreServedInTurn",
		},
		{
			Name: "client-takes-all", Bug: "lets one client have all of a use", File: "budget.go",
			Old: `return p == nil || p.held+n <= b.partOf(u, c) || p.held <= own`, New: `return p == nil || b.partOf(u, c) < 0 || own < 0 || n >= 0`, Tests: "TestOneClientDoesNotTakeAll",
		},
		{
			Name: "client-delays-others", Bug: "a caller whose client has its part waits before those of other clients", File: "budget.go",
			Old: `case p != nil && (p.waiting.Len() > 0 || !b.fitsPartLocked(u, c, n, 0)):`, New: `case p != nil && n < 0:`, Tests: "TestAClientWaitsForItsOwn",
		},
		{
			Name: "part-of-who-gave-up", Bug: "a client's part holds what a caller that gave up waited for", File: "budget.go",
			Old: `		a.countLocked(w.client, -w.n)
`, New: ``, Tests: "TestAClientWaitsForTheShareAfterItsOwn",
		},
		{
			Name: "budget-given-up-kept", Bug: "holds what a caller that gave up waited for", File: "budget.go",
			Old: "	w.b.wakeLocked(w.use, w.client) // it may have been the one that the others waited for\n", New: "", Tests: "TestWhoGivesUpHoldsNothing",
		},
	}}
}

func telemetryGroup() Group {
	return Group{Package: "internal/ops/telemetry", Mutants: []Mutant{
		{
			Name: "refusals-on-one-connection", Bug: "a connection carries any number of requests that are refused", File: "serve.go",
			Old: "				w.Header().Set(\"Connection\", \"close\") // as a probe's\n", New: "", Tests: "TestAConnectionCarriesOneProbe",
		},
	}}
}

func intakeGroup() Group {
	return Group{Package: "internal/edge/intake", Mutants: []Mutant{
		{
			Name: "unfinished-unbounded", Bug: "never closes the connection of the oldest unfinished request", File: "intake.go",
			Old: `in.endOldest(c.holder, capped)`, New: `_ = capped`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-at-their-parts", Bug: "takes bytes for the parts of a request alone", File: "intake.go",
			Old: `r.headN == messageHeader && int64(r.left) <= in.maxMessage`, New: `false`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-small-unbounded", Bug: "any number of calls may lack their message", File: "intake.go",
			Old: `if in.smalls.Len() > maxSmall {`, New: `if false {`, Tests: "TestCallsThatNeverBeginAreBounded",
		},
		{
			Name: "unfinished-for-nobody", Bug: "requests that are not complete count for no client", File: "intake.go",
			Old: `Name: netlimit.SourceOf(raw.RemoteAddr())`, New: `Name: netlimit.SourceOf(nil)`, Tests: "TestOneAddressLeavesRoomForRequestsOfOthers",
		},
		{
			Name: "unfinished-of-others-end", Bug: "a client that has its part ends the requests of others", File: "intake.go",
			Old: `!own || `, New: `true || `, Tests: "TestOneAddressEndsItsOwnRequests",
		},
		{
			Name: "unfinished-kept", Bug: "keeps the bytes of a connection that is closed", File: "intake.go",
			Old: `e != nil && c.known > 0;`, New: `e != nil && c.known < 0;`, Tests: "TestRequestsThatNeverEndAreBounded",
		},
		{
			Name: "unfinished-given-up-kept", Bug: "keeps a request that its client gives up", File: "frames.go",
			Old: `case f.kind == typeReset, f.kind`, New: `case f.kind`, Tests: "TestWhatIsOpen",
		},
		{
			Name: "unfinished-padding-free", Bug: "takes padding for data", File: "frames.go",
			Old: "			f.left -= f.padding\n", New: "", Tests: "TestWhatIsOpen",
		},
	}}
}

func fairGroup() Group {
	return Group{Package: "internal/fair", Mutants: []Mutant{
		{
			Name: "turns-without-yield", Bug: "large work takes turn after turn without a yield", File: "turns.go",
			Old: `t.taken.Add(1)%yieldEvery == 0`, New: `t.taken.Add(1) == 0`, Tests: "TestTurnsYield",
		},
		{
			Name: "turns-not-taken", Bug: "a client with many entries keeps its turn", File: "queue.go",
			Old: "		q.turns = append(q.turns, client)\n	}\n	return value, ok\n", New: "		q.turns = append([]string{client}, q.turns...)\n	}\n	return value, ok\n", Tests: "TestClientsTakeTurns",
		},
		{
			Name: "removed-entries-kept", Bug: "keeps entries that were removed", File: "queue.go",
			Old: `if q.gone++; q.gone < keepGone || q.gone < q.length/2 {`, New: `if q.gone++; true {`, Tests: "TestRemovedEntriesAreGone",
		},
		{
			Name: "gate-of-any-queue", Bug: "has any number wait", File: "gate.go",
			Old: `case g.waiting.Len() >= g.maxWaiting:`, New: `case false:`, Tests: "TestGate",
		},
	}}
}
