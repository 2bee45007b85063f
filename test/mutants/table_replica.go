package mutants

func replicaGroup() Group {
	return Group{Package: "internal/replica", Mutants: []Mutant{
		{
			Name: "handing-on-is-a-loss", Bug: "counts a source that hands its shard on as lost", File: "notice.go",
			Old: `		return HandedOn
	}
	return SourceLost`, New: `		return SourceLost
	}
	return SourceLost`, Tests: "TestASourceThatHandsOnIsNotLost",
		},
		{
			Name: "peer-of-any-lineage", Bug: "takes the stream of a peer in another lineage", File: "peer.go",
			Old: `begin.GetLineage() != requested`, New: `false`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "key-out-of-range", Bug: "takes a key that is not of the shard's range from a peer", File: "peer.go",
			Old: `if !r.ContainsBytes(item.Key()) {`, New: `if false {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-out-of-range", Bug: "takes an event that is not of the shard's range from a peer", File: "peer.go",
			Old: `case !r.ContainsBytes(item.Key()):`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "event-of-other-revision", Bug: "takes an event whose revision is not its batch's", File: "peer.go",
			Old: `case item.ModRevision() != u.Revision:`, New: `case false:`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "fragments-of-two-revisions", Bug: "joins fragments of two revisions", File: "peer.go",
			Old: `if assembling.Revision != 0 && assembling.Revision != revision {`, New: `if false {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "fragment-as-whole", Bug: "applies a peer's fragment as the whole revision", File: "peer.go",
			Old: `if m.GetFragment() {`, New: `if false {`, Tests: "TestPeerThatIsWrongIsRejected",
		},
		{
			Name: "stale-peer-direct", Bug: "believes a peer that reads etcd whatever its age", File: "peer.go",
			Old: `case !beat.GetAgeKnown() || beat.GetAge().AsDuration() > tooOld:`, New: `case !beat.GetAgeKnown():`, Tests: "TestProbe",
		},
		{
			Name: "peer-of-unknown-age", Bug: "believes a peer that does not know its age", File: "peer.go",
			Old: `case !beat.GetAgeKnown() || beat`, New: `case beat`, Tests: "TestProbe",
		},
		{
			Name: "source-begins-anywhere", Bug: "a failover goes on with a source that begins before or after its position", File: "handover.go",
			Old: `u.Revision < req.From && !u.Leap || u.Leap && req.AllowLeap`, New: `true`, Tests: "TestFailover",
		},
		{
			Name: "silence-not-noticed", Bug: "a peer that answers nothing is followed for ever", File: "link.go",
			Old: `if time.Duration(p.missed)*Heartbeat >= h.silence {`, New: `if false {`, Tests: "TestSilence",
		},
		{
			Name: "silence-one-beat-late", Bug: "a silent peer is given up one heartbeat late", File: "link.go",
			Old: `time.Duration(p.missed)*Heartbeat >= h.silence`, New: `time.Duration(p.missed)*Heartbeat > h.silence`, Tests: "TestSilence",
		},
		{
			Name: "warm-source-not-further", Bug: "takes a warm source that is no further than what is held", File: "run.go",
			Old: `revision <= r.req.HeldAt`, New: `false`, Tests: "TestWarmThatIsNoFurther",
		},
	}}
}
