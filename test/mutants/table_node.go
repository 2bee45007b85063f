package mutants

func membershipGroup() Group {
	return Group{Package: "internal/membership", Mutants: []Mutant{
		{
			Name: "gossip-between-beats", Bug: "starts rounds of gossip and probes outside of the common intervals", File: "membership.go",
			Old: `time.Sleep(beat.Until(m.cfg.GossipInterval))`, New: `time.Sleep(0 * beat.Until(m.cfg.GossipInterval))`, Tests: "TestProbesAndReadsOfMembersFallOnTicks",
		},
		{
			Name: "looks-between-beats", Bug: "checks the members outside of the common intervals", File: "watch.go",
			Old: `tick.Reset(beat.Until(m.cfg.ViewInterval))`, New: `tick.Reset(m.cfg.ViewInterval + time.Millisecond)`, Tests: "TestProbesAndReadsOfMembersFallOnTicks",
		},
		{
			Name: "view-read-twice-a-second", Bug: "reads the view of few members twice a second when idle", File: "quiet.go",
			Old: `max(restViews, `, New: `max(1, `, Tests: "TestFewMembersLookSeldomAtRest",
		},
	}}
}

func nodeGroup() Group {
	return Group{Package: "internal/node", Mutants: []Mutant{
		{
			Name: "history-loaded-once", Bug: "a restarted node does not load the history of shards that it gets later", File: "history.go",
			Old: `case len(shards) == 0 || !h.returns():`, New: `case true:`, Tests: "TestPositionsOutliveTheWholeTierWithoutItsLastNode",
		},
		{
			Name: "history-of-no-shard", Bug: "a restarted node without shards removes its saved history", File: "history.go",
			Old: ` && len(shards) > 0 && !h.returns() && `, New: ` && `, Tests: "TestPositionsOutliveTheWholeTierWithoutItsLastNode",
		},
		{
			Name: "last-save-unbounded", Bug: "a node that stops waits for a disk that hangs", File: "history.go",
			Old: `return wait.For(ctx, done)`, New: `<-done; return true`, Tests: "TestLastSaveIsBounded",
		},
		{
			Name: "last-save-whole-drain", Bug: "a disk that hangs takes the time in which a node hands over its shards", File: "history.go",
			Old: `ctx, cancel := context.WithTimeout(ctx, lastSave)`, New: `ctx, cancel := context.WithTimeout(ctx, 2*lastSave)`, Tests: "TestLastSaveIsBounded",
		},
		{
			Name: "node-handshakes-at-once", Bug: "handshakes at the peer port do not take turns", File: "limits.go",
			Old: `atPort(cfg.PeerServerTLS, netlimit.NewTurns(1))`, New: `atPort(nil, netlimit.NewTurns(1))`, Tests: "TestHandshakesOfNodesTakeTurns",
		},
		{
			Name: "looks-not-borrowed", Bug: "each node reads etcd's revision twice a second", File: "clock.go",
			Old: `c.borrowed(time.Now()); ok && c.ok.Load()`, New: `c.borrowed(time.Now()); ok && false`,
			Tests: "TestNodesAtRestReadLittleAtEtcd", Package: "internal/testing/sim",
		},
		{
			Name: "ready-without-etcd", Bug: "reports a node as ready that expects shards and has never reached etcd", File: "node.go",
			Old: `(first.IsZero() || time.Since(first) < owedWait)`, New: `time.Since(n.started) < owedWait`,
			Tests: "TestARollingRestartWithoutEtcdStopsBeforeTheLastCopies", Package: "internal/testing/sim",
		},
		{
			Name: "old-look-borrowed", Bug: "uses an old read of another node", File: "clock.go",
			Old: `now.Sub(look.At) < borrowedFor`, New: `true`, Tests: "TestReadsOfEtcdAreShared",
		},
		{
			Name: "own-look-never-due", Bug: "never reads etcd itself while another node does", File: "clock.go",
			Old: `now.Sub(c.own) < ownEvery`, New: `true`, Tests: "TestReadsOfEtcdAreShared",
		},
		{
			Name: "all-borrow", Bug: "no node reads etcd among nodes that exchange their reads", File: "clock.go",
			Old: `case !c.newest.At.Equal(c.own):`, New: `case true:`, Tests: "TestReadsOfEtcdAreShared",
		},
	}}
}
