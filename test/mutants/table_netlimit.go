package mutants

func netlimitGroup() Group {
	return Group{Package: "internal/edge/netlimit", Mutants: []Mutant{
		{
			Name: "silent-connections-pend", Bug: "clients that send their first bytes late displace each other", File: "listen_linux.go",
			Old: "const silence = 3", New: "const silence = 0", Tests: "TestClientsThatConnectAtTheSameTimeAreAdmitted",
		},
		{
			Name: "penalty-without-pace", Bug: "starts connections of a flooding address without delay", File: "penalty.go",
			Old: "of.next = of.next.Add(penaltyPace)", New: "of.next = now", Tests: "TestPenalties",
		},
		{
			Name: "penalty-without-end", Bug: "never ends a penalty", File: "penalty.go",
			Old: "e != nil && !now.Before(e.Value.(*penalty).ends)", New: "e != nil && now.IsZero()", Tests: "TestPenalties",
		},
		{
			Name: "penalty-not-prolonged", Bug: "does not prolong the penalty of an address that continues", File: "penalty.go",
			Old: "e.Value.(*penalty).ends = now.Add(penaltyTime) //nolint:forcetypeassert // all are\n\t\tp.list", New: "p.list", Tests: "TestPenalties",
		},
		{
			Name: "penalties-unbounded", Bug: "stores the penalties of any number of addresses", File: "penalty.go",
			Old: "len(p.of) > maxPenalties", New: "len(p.of) < 0", Tests: "TestPenaltiesAreBounded",
		},
		{
			Name: "refused-handshakes-count", Bug: "a refused handshake takes the turn of a waiting one", File: "pace.go",
			Old: "\tif wait = max(at.Sub(now), 0); wait > most {\n\t\treturn 0, false\n\t}\n\tp.paid[network] = at\n",
			New: "\tp.paid[network] = at\n\tif wait = max(at.Sub(now), 0); wait > most {\n\t\treturn 0, false\n\t}\n", Tests: "TestHandshakesOfAnAddressArePaced",
		},
		{
			Name: "penalty-outlives-connections", Bug: "a closed connection waits for its penalty", File: "netlimit.go",
			Old: "close(c.penalty.closed)", New: "_ = c.penalty.closed", Tests: "TestConnectionsWaitForTheirPenalty",
		},
		{
			Name: "penalty-at-no-port", Bug: "does not slow addresses that have flooded the node", File: "netlimit.go",
			Old: "out.penalty = &wayIn", New: "_ = &wayIn", Tests: "TestConnectionsWaitForTheirPenalty",
		},
		{
			Name: "handshakes-all-at-once", Bug: "lets all handshakes compute at the same time", File: "turns.go",
			Old: `case t.running < t.atATime:`, New: `case t.atATime > 0:`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "pending-of-any-address", Bug: "half-open connections displace those of other clients", File: "netlimit.go",
			Old: `c.network == crowd {`, New: `c.network == crowd || c != nil {`, Tests: "TestPendingConnectionsPushOutThoseOfTheLargestCrowd",
		},
		{
			Name: "no-pace", Bug: "reads an address's data as fast as it arrives", File: "netlimit.go",
			Old: `	time.Sleep(wait)`, New: `	_ = wait`, Tests: "TestConnectionsAreReadAtTheirPace",
		},
		{
			Name: "pace-not-counted", Bug: "does not count reads that wait for their address's rate", File: "netlimit.go",
			Old: `	c.limit.paced.Add(1)`, New: ``, Tests: "TestConnectionsAreReadAtTheirPace",
		},
		{
			Name: "paces-without-bound", Bug: "tracks any number of addresses", File: "pace.go",
			Old: `len(p.paid) >= maxPaces && `, New: `false && `, Tests: "TestPacesAreBounded",
		},
		{
			Name: "handshakes-without-turns-of-addresses", Bug: "one address's handshakes delay all others", File: "turns.go",
			Old: `queue.Push(SourceOf(c.RemoteAddr()), c)`, New: `queue.Push("", c)`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "handshakes-begun-wait-with-others", Bug: "started handshakes wait for those that have not started", File: "turns.go",
			Old: `queue = &t.begun`, New: `queue = &t.fresh`, Tests: "TestHandshakesTakeTurns",
		},
		{
			Name: "turn-kept-by-closed-connections", Bug: "a connection closed during its handshake keeps its turn", File: "netlimit.go",
			Old: "func (c *Conn) Close() error {\n\tc.shook()", New: "func (c *Conn) Close() error {", Tests: "TestClosedConnectionsGiveTheirTurnBack",
		},
		{
			Name: "probes-kept-out", Bug: "refuses new connections while old ones are held open", File: "netlimit.go",
			Old: `if full && !l.cfg.Evict {`, New: `if full {`, Tests: "TestHeldConnectionsExcludeNoProbe",
		},
		{
			Name: "address-pushes-out-others", Bug: "an address that has used its part of a port displaces the connections of others", File: "netlimit.go",
			Old: `c.network == network {`, New: `true {`, Tests: "TestAnAddressPushesOutItsOwn",
		},
		{
			Name: "address-refused-where-old-ones-end", Bug: "refuses an address that holds old connections open", File: "netlimit.go",
			Old: `if crowded && !l.cfg.Evict {`, New: `if crowded {`, Tests: "TestAnAddressPushesOutItsOwn",
		},
		{
			Name: "address-keeps-places", Bug: "does not release the place of a connection that its address has closed", File: "netlimit.go",
			Old: `	less(l.from, c.network)`, New: ``, Tests: "TestOneAddressDoesNotTakeAll",
		},
		{
			Name: "address-of-ipv6", Bug: "treats each address of an IPv6 network as a separate client", File: "netlimit.go",
			Old: `bits := 64`, New: `bits := 128`, Tests: "TestANetworkOfIPv6CountsAsOneAddress",
		},
		{
			Name: "address-of-ipv4-in-ipv6", Bug: "treats all IPv4 addresses at an IPv6 socket as one client", File: "netlimit.go",
			Old: `ip = ip.Unmap(); ip.Is4()`, New: `ip.Is4()`, Tests: "TestANetworkOfIPv6CountsAsOneAddress",
		},
	}}
}
