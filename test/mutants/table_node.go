package mutants

func membershipGroup() Group {
	return Group{Package: "internal/membership", Mutants: []Mutant{
		{
			Name: "gossip-between-beats", Bug: "rounds of gossip and probes begin when the node starts", File: "membership.go",
			Old: `time.Sleep(beat.Until(m.cfg.GossipInterval))`, New: `time.Sleep(0 * beat.Until(m.cfg.GossipInterval))`, Tests: "TestProbesAndLooksFallOnBeats",
		},
		{
			Name: "looks-between-beats", Bug: "looks at the members are as far apart as they begin", File: "watch.go",
			Old: `tick.Reset(beat.Until(m.cfg.ViewInterval))`, New: `tick.Reset(m.cfg.ViewInterval + time.Millisecond)`, Tests: "TestProbesAndLooksFallOnBeats",
		},
		{
			Name: "view-read-twice-a-second", Bug: "reads the view of few members twice a second at rest", File: "quiet.go",
			Old: `max(restViews, `, New: `max(1, `, Tests: "TestFewMembersLookSeldomAtRest",
		},
	}}
}

func nodeGroup() Group {
	return Group{Package: "internal/node", Mutants: []Mutant{
		{
			Name: "node-handshakes-at-once", Bug: "handshakes at the peer port take no turns", File: "limits.go",
			Old: `atPort(cfg.PeerServerTLS, netlimit.NewTurns(1))`, New: `atPort(nil, netlimit.NewTurns(1))`, Tests: "TestHandshakesOfNodesTakeTurns",
		},
		{
			Name: "looks-not-borrowed", Bug: "has each node read etcd's revision twice a second", File: "clock.go",
			Old: `c.borrowed(time.Now()); ok && c.ok.Load()`, New: `c.borrowed(time.Now()); ok && false`,
			Tests: "TestNodesAtRestReadLittleAtEtcd", Package: "internal/testing/sim",
		},
		{
			Name: "ready-without-etcd", Bug: "a node that is owed shards and has never reached etcd is ready", File: "node.go",
			Old: `(first.IsZero() || time.Since(first) < owedWait)`, New: `time.Since(n.started) < owedWait`,
			Tests: "TestARollingRestartWithoutEtcdStopsBeforeTheLastCopies", Package: "internal/testing/sim",
		},
		{
			Name: "old-look-borrowed", Bug: "takes an old read of another node for its own", File: "clock.go",
			Old: `now.Sub(look.At) < borrowedFor`, New: `true`, Tests: "TestALookIsBorrowed",
		},
		{
			Name: "own-look-never-due", Bug: "never reads etcd itself while another node does", File: "clock.go",
			Old: `now.Sub(c.own) < ownEvery`, New: `true`, Tests: "TestALookIsBorrowed",
		},
		{
			Name: "all-borrow", Bug: "has no node read etcd of those that tell each other", File: "clock.go",
			Old: `case !c.newest.At.Equal(c.own):`, New: `case true:`, Tests: "TestALookIsBorrowed",
		},
	}}
}
