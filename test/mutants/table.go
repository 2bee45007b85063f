package mutants

// All returns all mutants.
func All() []Mutant {
	return []Mutant{
		{"watermark-from-header", "takes the header's revision for progress though the response has events", "etcd", "^TestAssembly$"},
		{"fragment-applied-early", "applies a revision before its last fragment is in", "etcd", "^TestAssembly$"},
		{"fetch-joined-late", "a linearizable read shares a fetch of the revision that began before it", "etcd", "^TestShared"},
		{"duplicate-at-change-over", "applies again what a new source repeats", "cache", "^TestResumeAfterLoss$"},
		{"previous-of-same-revision", "the previous value is one of the same revision", "cache", "^TestPreviousValueWithinARevision$"},
		{"replay-skips-boundary", "a replay leaves out the revision it starts at", "cache", "^TestAgainstModel$"},
		{"filtered-progress-forgotten", "a watcher does not move past what does not concern it", "cache", "^TestAgainstModel$|^TestCompactedAtSource$"},
		{"tombstone-forgotten", "a delete is not remembered for deltas", "cache", "^TestAgainstModel$"},
		{"delta-of-another-snapshot", "a delta has values newer than its revision", "cache", "^TestAgainstModel$"},
		{"delta-over-hole", "a delta from inside a leap, where deletes are not known", "cache", "^TestAgainstModel$"},
		{"split-without-window", "the halves of a split inherit the state without its window", "cache", "^TestSplitInheritsWindowAndState$"},
		{"merge-of-two-moments", "a merged shard begins with parts of different revisions", "cache", "^TestHeirsAgainstModel$"},
		{"merge-drops-half", "of a revision over two shards that are merged, one half is lost", "cache", "^TestHeirsAgainstModel$"},
		{"floor-left-behind", "events leave the window and its floor stays", "cache", "^TestAgainstModel$"},
		{"source-behind-gap", "goes on with a source that begins behind a gap", "cache", "^TestSourceOutOfTurn$"},
		{"stale-source", "takes the state of a source that is older than its own", "cache", "^TestOlderStateIsRefused$"},
		{"digest-of-key-alone", "compares copies by their keys alone", "cache", "^TestDigestTellsEveryByte$"},
		{"fresh-before-caught-up", "calls data fresh that has not caught up", "cache", "^TestFreshness$"},
		{"progress-before-events", "tells progress over shards of which one is behind", "router", "^TestPositionOfAMerge$|^TestWatchAgainstHistory$"},
		{"transaction-torn", "delivers a revision before all shards have it", "router", "^TestWatchAgainstHistory$"},
		{"linearizable-without-waiting", "answers a linearizable read with what is there", "router", "^TestReads|^TestList|^TestScan$"},
		{"epoch-reset", "a shard's epoch begins anew when it moves", "shard", "^TestEpoch"},
		{"delta-across-lineages", "sends a delta to one whose position is of another history", "server", "^TestAnotherLineageResyncs$|^TestLineageEndsWhileWatching$"},
		{"resync-misses-chunk", "leaves a chunk of a resync out", "server", "^TestLadder|^TestStateFirst$"},
		{"position-before-end", "moves the position at the beginning of a unit", "server", "^TestUnitBeginsAgainElsewhere$|^TestLadder"},
		{"page-of-another-revision", "reads the next page at another revision", "server", "^TestListIsOneRevision$|^TestListEdges$"},
		{"starts-too-late", "a watch of etcd's API from now on misses the next revision", "etcdapi", "^TestWatchStart$"},
	}
}
