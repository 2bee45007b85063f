package mutants

func shardGroup() Group {
	return Group{Package: "internal/shard", Mutants: []Mutant{
		{
			Name: "recovered-ids-again", Bug: "shards of a recovered map get IDs that lost voters may have used", File: "recover.go",
			Old: `next.NextID += recoveredStep`, New: `next.NextID += 0`, Tests: "TestRecoveredMapKeepsPlacementAndReusesNoNumber",
		},
		{
			Name: "recovered-epochs-again", Bug: "shards of a recovered map keep epochs that lost voters may have passed", File: "recover.go",
			Old: `next.Shards[i].Epoch += recoveredStep`, New: `next.Shards[i].Epoch += 0`, Tests: "TestRecoveredMapKeepsPlacementAndReusesNoNumber",
		},
		{
			Name: "map-before-its-generation", Bug: "accepts a map from before its own generation", File: "validate.go",
			Old: `if m.Generation > m.Version {`, New: `if false {`, Tests: "TestRecoveredMapKeepsPlacementAndReusesNoNumber",
		},
		{
			Name: "level-not-final", Bug: "allows commands of a level that is not finalized", File: "level.go",
			Old: `case level > m.FinalLevel():`, New: `case false:`, Tests: "TestALevelIsUsedOnceItIsFinal",
		},
		{
			Name: "finalize-with-old-members", Bug: "finalizes a level that some members do not support", File: "level.go",
			Old: `case m == nil || finalizes:`, New: `case finalizes: return nil; case m == nil:`, Tests: "TestALevelIsUsedOnceItIsFinal",
		},
		{
			Name: "final-level-not-in-encoding", Bug: "encodes a map of a finalized level so that older software reads it", File: "level.go",
			Old: `case m.Finalized != 0:`, New: `case false:`, Tests: "TestFinalize",
		},
		{
			Name: "left-members-count", Bug: "waits for the level of former members", File: "level.go",
			Old: `if m := &members[i]; m.State != Left && m.understands()`, New: `if m := &members[i]; m.understands()`, Tests: "TestUnderstood",
		},
		{
			Name: "level-lowered", Bug: "lowers the finalized level", File: "apply.go",
			Old: `if c.Level <= m.Finalized {`, New: `if c.Level == m.Finalized {`, Tests: "TestFinalize",
		},
		{
			Name: "epoch-reset", Bug: "a move restarts a shard's epoch", File: "apply.go",
			Old: `s.Epoch++`, New: `s.Epoch = 1`, Tests: "TestEpochGrowsOnlyWithReplicas",
		},
		{
			Name: "map-with-hole", Bug: "accepts a shard map with a hole", File: "validate.go",
			Old: `case s.Start > at:`, New: `case false:`, Tests: "TestValidate",
		},
		{
			Name: "map-with-overlap", Bug: "accepts a shard map with an overlap", File: "validate.go",
			Old: `case s.Start < at:`, New: `case false:`, Tests: "TestValidate",
		},
		{
			Name: "shard-id-twice", Bug: "accepts two shards with one ID", File: "validate.go",
			Old: `case seen[s.ID]:`, New: `case false:`, Tests: "TestValidate",
		},
		{
			Name: "last-replica-lost", Bug: "a move takes a shard's last replica", File: "apply.go",
			Old: `case len(mv.Replicas) == 0:`, New: `case false:`, Tests: "TestApplyRefuses",
		},
		{
			Name: "epoch-grows-anyway", Bug: "a move without a change begins an epoch", File: "apply.go",
			Old: `if !slices.Equal(s.Replicas, mv.Replicas) {`, New: `if true {`, Tests: "TestEpochGrowsOnlyWithReplicas",
		},
		{
			Name: "merge-without-replica", Bug: "merges shards that their node does not replicate", File: "apply.go",
			Old: `if !slices.Contains(m.Shards[first+i].Replicas, n) {`, New: `if false {`, Tests: "TestApplyRefuses",
		},
		{
			Name: "replicas-unbounded", Bug: "settings accept any number of replicas", File: "configure.go",
			Old: `case c.Replicas < 1 || c.Replicas > MaxReplicas:`, New: `case c.Replicas < 1:`, Tests: "TestApplyRefuses",
		},
		{
			Name: "served-ranges-unbounded", Bug: "settings accept any number of served ranges", File: "configure.go",
			Old: `case len(c.Ranges) > MaxRanges:`, New: `case false:`, Tests: "TestApplyRefuses",
		},
		{
			Name: "kept-shard-renamed", Bug: "a change of the served keys gives every shard a new ID", File: "configure.go",
			Old: `if part == s.Range {`, New: `if false {`, Tests: "TestConfigureWiderRangesAddsShards|TestConfigureNarrowerRangesCutsShards",
		},
		{
			Name: "pins-lost-with-replicas", Bug: "a change of the number of replicas moves pinned shards", File: "configure.go",
			Old: `len(h.Pins) == 0 && h.Replicas <= c.Replicas`, New: `h.Replicas <= c.Replicas`, Tests: "TestConfigureReplicasTakesExtraReplicasIn",
		},
		{
			Name: "extra-replicas-lost", Bug: "a change of the number of replicas removes the extra ones of busy shards", File: "configure.go",
			Old: `len(h.Pins) == 0 && h.Replicas <= c.Replicas`, New: `len(h.Pins) == 0`, Tests: "TestConfigureReplicasTakesExtraReplicasIn",
		},
		{
			Name: "delta-of-another-cluster", Bug: "applies the delta of another cluster", File: "delta.go",
			Old: ` || m.ClusterID != d.Map.ClusterID`, New: ``, Tests: "TestADeltaFitsOneMap",
		},
		{
			Name: "merge-of-unordered", Bug: "merges shards that are given out of order", File: "apply.go",
			Old: `m.Shards[first+i].ID != id`, New: `false`, Tests: "TestAMergeNamesNeighboursInOrder",
		},
		{
			Name: "joins-despite-pins", Bug: "merges shards with different pins", File: "merge.go",
			Old: ` && slices.Equal(a.Home.Pins, b.Home.Pins)`, New: ``, Tests: "TestNeighboursThatCanMerge",
		},
	}}
}

func plannerGroup() Group {
	return Group{Package: "internal/control/planner", Mutants: []Mutant{
		{
			Name: "weights-too-early", Bug: "places by weights before their level is finalized", File: "plan.go",
			Old: `weighted := m.FinalLevel() >= shard.LevelSettings && `, New: `weighted := `, Tests: "TestEqualWeightsChangeNothing",
		},
		{
			Name: "weight-unbounded", Bug: "accepts any weight from gossip", File: "score.go",
			Old: `return min(max(m.Weight, 1), shard.MaxWeight)`, New: `return max(m.Weight, 1)`, Tests: "TestANodeOfWeightTwoGetsTwiceTheShards",
		},
		{
			Name: "owners-scattered", Bug: "assigns adjacent shards to different owners at the bootstrap", File: "owners.go",
			Old: `near := o.beside(i, slot) > 0 &&`, New: `near := false && o.beside(i, slot) > 0 &&`, Tests: "TestOwnersOwnAdjacentShards",
		},
		{
			Name: "owners-unequal", Bug: "hands over any shard, even in the middle of its owner's adjacent shards", File: "owners.go",
			Old: `gain := o.beside(i, to) - o.beside(i, from)`, New: `gain := o.beside(i, from) - o.beside(i, to)`, Tests: "TestOwnersOwnAdjacentShards",
		},
		{
			Name: "owners-without-weights", Bug: "spreads owners evenly over nodes of different weights", File: "owners.go",
			Old: `return f.of*g.by < g.of*f.by`, New: `return f.of < g.of`, Tests: "TestANodeOfWeightTwoGetsTwiceTheShards",
		},
		{
			Name: "owners-follow-members", Bug: "chooses new owners when a node joins", File: "owners.go",
			Old: `func(*unit) bool { return true }`, New: `func(u *unit) bool { return u.pinned }`, Tests: "TestFewOwnersStay",
		},
		{
			Name: "owners-few-uneven", Bug: "makes more than the few nodes owners", File: "owners.go",
			Old: `u.able = slices.DeleteFunc(slices.Clone(u.wanted), func(slot int32) bool { return !may[o.rank(slot)] })`, New: `u.able = u.wanted`, Tests: "TestFewNodesOwnAllShards",
		},
		{
			Name: "owners-suspect", Bug: "chooses an owner that may not get shards yet", File: "owners.go",
			Old: `u.holder < 0 && !n.suspect {`, New: `u.holder < 0 {`, Tests: "TestFewOwnersAreNodesThatMayBeGivenShards",
		},
		{
			Name: "owners-suspect-leave", Bug: "moves shards away from a suspect owner", File: "owners.go",
			Old: `u.holder < 0 && !n.suspect {`, New: `!n.suspect {`, Tests: "TestFewOwnersAreNodesThatMayBeGivenShards",
		},
		{
			Name: "owner-given-up-early", Bug: "removes an owner as soon as the others can handle its events", File: "balance.go",
			Old: `n, patience = min(fit(2*events), have), l.MergePatience`, New: `patience = l.MergePatience`, Tests: "TestOwnersFollowTheEvents",
		},
		{
			Name: "owners-of-too-many-ranges", Bug: "repeatedly proposes a number of owners that the map refuses", File: "balance.go",
			Old: ` || len(l.m.Spec.Ranges) > shard.MaxRanges {`, New: ` {`, Tests: "TestOwnersFollowTheEvents",
		},
		{
			Name: "owners-follow-others", Bug: "reduces the number of owners when a node that owned nothing has left", File: "balance.go",
			Old: `least := max(1, fewestOwners(l.m))`, New: `least := 1`, Tests: "TestOwnersFollowTheEvents",
		},
		{
			Name: "weight-change-not-seen", Bug: "keeps a node's former weight", File: "plan.go",
			Old: ` || p.nodes[slot].weight != weight {`, New: ` {`, Tests: "TestThePlannerSeesAWeightChange",
		},
		{
			Name: "dead-node-planned", Bug: "plans shards for dead nodes", File: "plan.go",
			Old: `return n.State != shard.Alive && n.State != shard.Suspect`, New: `return n.State == shard.Left`, Tests: "TestPlanHomes",
		},
		{
			Name: "drained-node-planned", Bug: "keeps drained nodes in the plan", File: "plan.go",
			Old: `if p.drain[n.Name] {`, New: `if false {`, Tests: "TestPlanStep|TestPlanHomes",
		},
		{
			Name: "drained-in-map-ignored", Bug: "plans shards for a node that an operator has drained", File: "plan.go",
			Old: `n.Draining || m.IsDrained(n.Name)`, New: `n.Draining`, Tests: "TestPlanHomes",
		},
		{
			Name: "newcomer-first", Bug: "makes a new node owner before it has loaded the shard", File: "plan.go",
			Old: `return append(have, fresh...)`, New: `return append(fresh, have...)`, Tests: "TestPlanHomes",
		},
		{
			Name: "fill-never-ends", Bug: "waits forever for a new node that does not load", File: "rules.go",
			Old: `now.Before(latest) && h.reports`, New: `!latest.IsZero() && h.reports`, Tests: "TestRecordsOfALeader",
		},
		{
			Name: "left-node-buried", Bug: "treats a shard of a node that left as a shard of a dead node", File: "rules.go",
			Old: `return !gone(states, n) && !serves(states, n) }) {
			next`, New: `return !serves(states, n) }) {
			next`, Tests: "TestRecordsOfALeader",
		},
		{
			Name: "first-half-does-not-rest", Bug: "moves the first shard of a split too early", File: "rules.go",
			Old: `id >= h.nextID`, New: `id > h.nextID`, Tests: "TestRecordsOfALeader",
		},
		{
			Name: "owed-what-it-has", Bug: "waits for a shard that the node already has", File: "rules.go",
			Old: `if !slices.Contains(s.Replicas, self) && lacks`, New: `if lacks`, Tests: "TestRecordsOfALeader",
		},
		{
			Name: "unheard-voter-is-away", Bug: "treats a voter that has not reported yet as absent", File: "voters.go",
			Old: ` || (s.Votes && !reports.told(n))`, New: ``, Tests: "TestAVoterWhoseLogDoesNotFollowIsAway",
		},
		{
			Name: "silent-learner-awaited", Bug: "waits forever for a learner that reports nothing", File: "voters.go",
			Old: `(s.Votes && !reports.told(n))`, New: `!reports.told(n)`, Tests: "TestALearnerThatReportsNothingIsNotAwaitedForEver",
		},
		{
			Name: "log-without-etcd-does-not-count", Bug: "ignores the raft logs of nodes that have not reached etcd", File: "reports.go",
			Old: `if report.NoEtcd {`, New: `if delete(next.logs, report.Node); report.NoEtcd {`, Tests: "TestOfANodeWithoutEtcdOnlyTheRaftLogCounts",
		},
		{
			Name: "heir-shuts-down", Bug: "waits for a node that shuts down to take over the vote", File: "voters.go",
			Old: `o.BootstrapExpect > 0 && !o.Draining &&`, New: `o.BootstrapExpect > 0 &&`, Tests: "TestRecipientsOfAVote",
		},
		{
			Name: "heir-votes-already", Bug: "waits for a node that already votes to take over the vote", File: "voters.go",
			Old: ` && !slices.Contains(voters, o.Name)`, New: ` && len(voters) > 0`, Tests: "TestRecipientsOfAVote",
		},
		{
			Name: "silent-node-blocks-repair", Bug: "plans shards for a node that does not answer the leader, so that no node gets them", File: "owners.go",
			Old: `return p.bars(s, slot) })`, New: `return p.bars(nil, slot) })`, Tests: "TestASilentNodeDoesNotBlockTheRepairOfShards",
		},
		{
			Name: "unheard-copy-is-warm", Bug: "removes the last loaded copy in favour of one on a node that has not reported", File: "rules.go",
			Old: `&& reports.heard(n) &&`, New: `&&`, Tests: "TestTheLastLoadedCopyIsKnownByReports",
		},
		{
			Name: "vote-moves-while-a-log-lags", Bug: "moves a vote while the raft log of a voter lags", File: "voters.go",
			Old: ` || f.Away(v.Node()) > 0`, New: ``, Tests: "TestDecideVoter",
		},
		{
			Name: "living-learner-removed", Bug: "removes a live learner whose log lags", File: "voters.go",
			Old: `f.lost(l.Node()) && !serves(f.states, l.Node())`, New: `f.lost(l.Node())`, Tests: "TestDecideVoter",
		},
		{
			Name: "missing-time-restarts", Bug: "restarts the timer of a node missing from gossip at each check", File: "rules.go",
			Old: "missing[n] = t\n", New: "missing[n] = now; _ = t\n", Tests: "TestRules",
		},
		{
			Name: "missing-never-noticed", Bug: "never starts the timer of a node missing from gossip", File: "rules.go",
			Old: `h.missing, h.presence = missing,`, New: `h.presence =`, Tests: "TestRules",
		},
		{
			Name: "drain-ignored", Bug: "keeps shards on a node that an operator has drained", File: "rules.go",
			Old: `n.Draining = n.Draining || m.IsDrained(n.Name)`, New: `_ = m.IsDrained(n.Name)`, Tests: "TestANodeDrainedInTheMapGivesItsShardsAway",
		},
		{
			Name: "dead-at-once", Bug: "moves shards away from a dead node without waiting", File: "rules.go",
			Old: `if holds[n.Name] && wait(n.Since.Add(r.DeadGrace)) {`, New: `if false {`, Tests: "TestRules",
		},
		{
			Name: "last-warm-copy-taken", Bug: "removes a shard from the last node that has loaded it", File: "rules.go",
			Old: `if takesLastWarm(s, out, states, h.reports) {`, New: `if false {`, Tests: "TestRulesKeepTheLastWarmCopy",
		},
		{
			Name: "fills-unbounded", Bug: "lets any number of nodes load at a time", File: "rules.go",
			Old: `(r.MaxFills == 0 || all < r.MaxFills)`, New: `true`, Tests: "TestRulesBoundNewcomers",
		},
		{
			Name: "fills-one-more", Bug: "lets one node more load than permitted", File: "rules.go",
			Old: `all < r.MaxFills)`, New: `all <= r.MaxFills)`, Tests: "TestRulesBoundNewcomers",
		},
		{
			Name: "shard-does-not-rest", Bug: "moves a shard again too early", File: "rules.go",
			Old: `rested := since.Add(r.PromoteDelay)`, New: `rested := since`, Tests: "TestRules",
		},
		{
			Name: "node-fills-unbounded", Bug: "lets a node be the source of any number of loading nodes", File: "rules.go",
			Old: `r.MaxNodeFills > 0 && of[n] >= r.MaxNodeFills`, New: `false`, Tests: "TestRulesBoundNewcomers",
		},
		{
			Name: "lost-voter-never", Bug: "restarts the timer of a lost voter at each check", File: "voters.go",
			Old: "\ta.since = since\n", New: ``, Tests: "TestAbsenceOfANode",
		},
		{
			Name: "lost-voter-late", Bug: "does not treat a voter as lost exactly at the limit", File: "voters.go",
			Old: `f.Away(n) >= f.LostAfter`, New: `f.Away(n) > f.LostAfter`, Tests: "TestAbsenceOfANode",
		},
		{
			Name: "one-split-too-many", Bug: "creates one shard more than permitted", File: "balance.go",
			Old: `len(l.m.Shards)+len(l.Splits) >= l.MaxShards`, New: `len(l.m.Shards)+len(l.Splits) > l.MaxShards`, Tests: "TestSplitsKeepToTheirBounds",
		},
		{
			Name: "two-clusters", Bug: "lets half of the nodes in --join bootstrap a cluster", File: "bootstrap.go",
			Old: `2*named > len(f.Join)`, New: `2*named >= len(f.Join)`, Tests: "TestOnlyOnePartFoundsACluster",
		},
		{
			Name: "extra-replicas-at-once", Bug: "changes the number of replicas before the load has lasted long enough", File: "balance.go",
			Old: `l.now.Sub(r.since) < patience || `, New: `patience < 0 || `, Tests: "TestReplicasKeepToTheirBounds",
		},
		{
			Name: "uncuttable-for-ever", Bug: "never splits a shard again that once had too few keys", File: "balance.go",
			Old: `now.Sub(at) < uncuttableFor`, New: `now.After(at)`, Tests: "TestSplitsKeepToTheirBounds",
		},
		{
			Name: "founded-too-early", Bug: "bootstraps a cluster with members that have just joined", File: "bootstrap.go",
			Old: `now.Before(at) && at.After(again)`, New: `false && at.After(again)`, Tests: "TestFounders",
		},
		{
			Name: "merged-shards-split-again", Bug: "splits up to the initial number of shards after merges", File: "cuts.go",
			Old: `return s.Home.Seat != 0 })`, New: `return false })`, Tests: "TestLacksShards",
		},
		{
			Name: "leader-asked-of-dead", Bug: "asks dead nodes for the leader", File: "bootstrap.go",
			Old: ` || m.State != shard.Alive && m.State != shard.Suspect:`, New: `:`, Tests: "TestKnowsLeader",
		},
		{
			Name: "fill-timeout-too-short", Bug: "accepts a fill timeout below the promote delay", File: "rules.go",
			Old: `errs.check(r.FillTimeout >= r.PromoteDelay,`, New: `errs.check(true,`, Tests: "TestBoundsOfTheConfig", Package: "internal/control/placement",
		},
	}}
}

func mapchangeGroup() Group {
	return Group{Package: "internal/control/mapchange", Mutants: []Mutant{
		{
			Name: "done-before-moved", Bug: "reports a plan as done before its shard has moved", File: "progress.go",
			Old: `left = left || moving[s.ID] || c.joins(s.ID)`, New: `left = left || c.joins(s.ID)`, Tests: "TestAPlanIsNotDoneBeforeThePlanner",
		},
		{
			Name: "done-before-merged", Bug: "reports a plan as done before its shards are merged", File: "progress.go",
			Old: `left = left || moving[s.ID] || c.joins(s.ID)`, New: `left = left || moving[s.ID]`, Tests: "TestAPlanIsNotDoneBeforeThePlanner",
		},
		{
			Name: "silent-nodes-have-no-watches", Bug: "counts nodes that do not answer as nodes without watches, and does not report it", File: "settings.go",
			Old: `case c.Members[i].State != shard.Left:`, New: `case false:`, Tests: "TestThePlanCountsTheWatchesThatEnd",
		},
		{
			Name: "recover-while-led", Bug: "recovers voters that have a leader", File: "recovery.go",
			Old: `if w.Leader != "" {`, New: `if false {`, Tests: "TestARecoveryIsRefusedWhileTheVotersMayElect",
		},
		{
			Name: "recover-with-majority", Bug: "recovers voters of which a bare majority is reachable", File: "recovery.go",
			Old: `len(r.Reachable) >= need`, New: `len(r.Reachable) > need`, Tests: "TestARecoveryIsRefusedWhileTheVotersMayElect",
		},
		{
			Name: "wiped-voters-count", Bug: "counts voters that lost their disks as reachable", File: "recovery.go",
			Old: `if w.reachable() && w.Member.Voter && slices`, New: `if w.reachable() && slices`, Tests: "TestARecoveryIsRefusedWhileTheVotersMayElect",
		},
		{
			Name: "suspects-do-not-count", Bug: "counts voters that gossip suspects as lost", File: "recovery.go",
			Old: `return w.Member.State == shard.Alive || w.Member.State == shard.Suspect`, New: `return w.Member.State == shard.Alive`, Tests: "TestARecoveryIsRefusedWhileTheVotersMayElect",
		},
		{
			Name: "recover-from-an-old-map", Bug: "recovers from a map that is not the newest", File: "recovery.go",
			Old: `w.MapVersion == r.MapVersion && `, New: ``, Tests: "TestARecoveryIsRefusedWhileTheVotersMayElect",
		},
		{
			Name: "another-plan-carried-out", Bug: "executes another recovery plan than the displayed one", File: "recovery.go",
			Old: `o.Node == r.Node && o.MapVersion == r.MapVersion`, New: `o.Node == r.Node`, Tests: "TestARecoveryNeedsItsCurrentPlan",
		},
		{
			Name: "finalize-without-a-voter", Bug: "finalizes a level without a report of every voter", File: "finalize.go",
			Old: `if !slices.ContainsFunc(c.Members, func(m shard.Member) bool { return m.Name == v }) {`, New: `if slices.Contains(c.Voters[:0], v) {`, Tests: "TestFinalizeWaitsForEveryMember",
		},
		{
			Name: "finalize-voters-unknown", Bug: "finalizes a level while the voters are not known", File: "finalize.go",
			Old: `if len(c.Voters) == 0 {`, New: `if false {`, Tests: "TestFinalizeWaitsForEveryMember",
		},
		{
			Name: "order-for-another-map", Bug: "executes a change that was requested for another map", File: "change.go",
			Old: `if o.IfVersion != 0 && o.IfVersion != c.Map.Version {`, New: `if false {`, Tests: "TestAnotherVersion",
		},
		{
			Name: "doubts-ignored", Bug: "executes a doubtful change without force", File: "change.go",
			Old: `if len(doubts) > 0 && !o.Force {`, New: `if false {`, Tests: "TestRefusals",
		},
		{
			Name: "cut-out-of-shard", Bug: "accepts a cut outside of the shard", File: "change.go",
			Old: `case !s.Range.Contains(key):`, New: `case false:`, Tests: "TestRefusals",
		},
		{
			Name: "merge-with-itself", Bug: "merges a shard with itself", File: "change.go",
			Old: `if a.ID == b.ID {`, New: `if false {`, Tests: "TestRefusals",
		},
		{
			Name: "merge-of-strangers", Bug: "merges shards that are not adjacent", File: "change.go",
			Old: `if left.Range.End != right.Range.Start {`, New: `if false {`, Tests: "TestRefusals",
		},
		{
			Name: "settings-not-finalized", Bug: "plans a change of settings that the cluster's feature level does not allow", File: "settings.go",
			Old: `if err := shard.Allows(c.Map, change, shard.LevelSettings, c.Members); err != nil {`,
			New: `if err := error(nil); err != nil {`, Tests: "TestSettingsOfAClusterThatIsNotFinalized",
		},
		{
			Name: "settings-bytes-unbounded", Bug: "settings accept served keys of any size", File: "settings.go",
			Old: `if size > maxSettingsBytes {`, New: `if false {`, Tests: "TestSettingsRefused",
		},
		{
			Name: "settings-serve-others", Bug: "changes to disjoint served keys without force", File: "settings.go",
			Old: `if !slices.ContainsFunc(want.Ranges, func(w kv.Range) bool { return slices.ContainsFunc(spec.Ranges, w.Overlaps) }) {`,
			New: `if false {`, Tests: "TestSettingsRefused",
		},
		{
			Name: "new-keys-cost-nothing", Bug: "a plan shows no copies for newly served keys", File: "plan.go",
			Old: `if len(s.From) == 0 {`, New: `if false {`, Tests: "TestSettingsOfMoreServedKeys",
		},
		{
			Name: "narrower-not-warned", Bug: "does not warn that watches end with the served keys", File: "settings.go",
			Old: `return !want.Covers(now)`, New: `return want.Covers(now) && false`, Tests: "TestSettingsOfFewerServedKeys",
		},
		{
			Name: "loading-copy-counts", Bug: "uses a copy that is still loading for the size of a shard", File: "plan.go",
			Old: `ok && held.Ready`, New: `ok`, Tests: "TestNodesOfAMerge",
		},
		{
			Name: "drained-heir", Bug: "gives a vote to a drained node", File: "change.go",
			Old: `m.State != shard.Alive || going(m.Name)`, New: `m.State != shard.Alive || false && going(m.Name)`, Tests: "TestRiskyDrainsNeedForce",
		},
	}}
}

func placementGroup() Group {
	return Group{Package: "internal/control/placement", Mutants: []Mutant{
		{
			Name: "heartbeats-at-random", Bug: "wakes the voters for raft's heartbeats outside of the common intervals", File: "transport.go",
			Old: `if isHeartbeat(args) {`, New: `if false {`, Tests: "TestHeartbeatsAreSentAtTicks",
		},
		{
			Name: "barrier-each-second", Bug: "writes an entry of the raft log each second", File: "config.go",
			Old: `BarrierEvery: 5 * time.Second`, New: `BarrierEvery: time.Second`, Tests: "TestVotersAtRestWriteLittle",
		},
		{
			Name: "unfounded-cluster-kept", Bug: "keeps the ID of a cluster that other nodes bootstrapped first", File: "vote.go",
			Old: `return v.disk.setClusterID("")`, New: `return nil`, Tests: "TestAClusterThatIsNotFoundedLeavesNoID",
		},
		{
			Name: "next-generation-not-followed", Bug: "continues raft when the map is of the next generation", File: "vote.go",
			Old: `m.Generation > v.generation {`, New: `m.Generation > v.generation+1 {`, Tests: "TestRaftEndsWithItsGeneration",
		},
		{
			Name: "heartbeat-bound-off-by-one", Bug: "refuses the shortest heartbeat", File: "config.go",
			Old: `d.d >= 5*time.Millisecond,`, New: `d.d > 5*time.Millisecond,`, Tests: "TestBoundsOfTheConfig",
		},
		{
			Name: "raft-port-any-generation", Bug: "accepts messages from voters of another generation", File: "transport.go",
			Old: `if !bytes.Equal(preface, want) {`, New: `if false && !bytes.Equal(preface, want) {`, Tests: "TestVotersOfOtherGenerationsGetNoVote",
		},
		{
			Name: "memory-any-generation", Bug: "connects voters of other generations after a partition", File: "mem.go",
			Old: ` || ta.generation != tb.generation:`, New: `:`, Tests: "TestVotersOfOtherGenerationsGetNoVote",
		},
		{
			Name: "older-raft-reported", Bug: "reports the leader and voters of an older generation", File: "placement.go",
			Old: `if m != nil && m.Generation > p.generation {`, New: `if m != nil && false {`, Tests: "TestRaftOfAnOlderGenerationReportsNoVoters",
		},
		{
			Name: "older-log-counts", Bug: "treats the raft log of an older generation as up to date", File: "voters.go",
			Old: `if m != nil && reports[i].MapVersion < m.Generation {`, New: `if m != nil && false {`, Tests: "TestRaftOfAnOlderGenerationReportsNoVoters",
		},
		{
			Name: "older-raft-goes-on", Bug: "an old voter continues although it has seen the new group", File: "vote.go",
			Old: `if m != nil && m.Generation > v.generation {`, New: `if m != nil && false {`, Tests: "TestReturningVotersFollowAfterARecovery",
		},
		{
			Name: "recovered-at-once-alike", Bug: "gives two concurrently recovered groups the same generation", File: "recover.go",
			Old: `m.Version + generationStep + rand.Uint64N(generationStep)`, New: `m.Version + generationStep + 0*rand.Uint64N(generationStep)`, Tests: "TestVotersRecoveredTwiceBecomeOneGroup",
		},
		{
			Name: "unfinished-log-used", Bug: "gives the log of a new generation its final name before it is complete", File: "storage.go",
			Old: `s, err := openStorage(to+unfinished, log)`, New: `s, err := openStorage(to, log)`, Tests: "TestUnfinishedRaftLogIsNotUsed",
		},
		{
			Name: "recovered-log-lost", Bug: "a voter that lost its recovered log keeps its identity", File: "storage.go",
			Old: `filepath.Join(d.path(generation), "raft.db")`, New: `filepath.Join(d.path(0), "raft.db")`, Tests: "TestUnfinishedRaftLogIsNotUsed",
		},
		{
			Name: "recover-stale", Bug: "recovers the voters from another map than the displayed one", File: "recover.go",
			Old: `case m.Version != ifVersion:`, New: `case false:`, Tests: "TestRecoverIsRefused",
		},
		{
			Name: "recover-led-here", Bug: "recovers the voters at a node that has a leader", File: "recover.go",
			Old: `if _, led := p.Leader(); led {`, New: `if false {`, Tests: "TestRecoverIsRefused",
		},
		{
			Name: "newer-map-file-put-aside", Bug: "moves a map file of newer software aside", File: "placement.go",
			Old: `case errors.Is(err, shard.ErrNewer): // the newer`, New: `case false: // the newer`, Tests: "TestAMapFileOfANewerVersionIsKept",
		},
		{
			Name: "commands-before-final", Bug: "the leader agrees on commands of a level that is not finalized", File: "propose.go",
			Old: `err := shard.Allows(p.Map(), change, shard.CommandLevel(b), p.ourMembers())`, New: `err := shard.Understood(shard.CommandLevel(b), p.ourMembers())`,
			Tests: "TestAnUpgradeCanGoBackUntilItIsFinalized",
		},
		{
			Name: "refused-counts-as-made", Bug: "applies a map that cannot be encoded", File: "fsm.go",
			Old: `if err := f.show(next); err != nil {`, New: `if err := f.show(next); false {`, Tests: "TestARefusedRequestIsNotRemembered",
		},
		{
			Name: "full-disk-panics", Bug: "raft panics when a term is not written", File: "vote.go",
			Old: `disk.logs, stable, disk.snaps`, New: `disk.logs, disk.stable, disk.snaps`, Tests: "TestVoterWithAFullDiskKeepsRunning",
		},
		{
			Name: "full-disk-ends-node", Bug: "a voter whose disk is full ends its node", File: "vote.go",
			Old: `case errors.Is(err, errUnwritten), `, New: `case errors.Is(err, errUnwritten) && false, `, Tests: "TestVoterWithAFullDiskKeepsRunning",
		},
		{
			Name: "full-disk-opened-once", Bug: "a voter whose disk is still full ends its node at the second attempt", File: "vote.go",
			Old: `errors.Is(err, errUnwritten), !failed.IsZero() &&`, New: `errors.Is(err, errUnwritten), false &&`, Tests: "TestVoterWithAFullDiskKeepsRunning",
		},
		{
			Name: "same-term-written", Bug: "a full disk ends the goroutine that starts raft", File: "storage.go",
			Old: `old == v {`, New: `old == v && false {`, Tests: "TestStartOfRaftWritesNoTerm",
		},
		{
			Name: "map-goes-back", Bug: "shows an older map", File: "maps.go",
			Old: `if m.Version <= b.m.Version {`, New: `if false {`, Tests: "TestMapsOnlyGoForward",
		},
	}}
}
