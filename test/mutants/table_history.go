package mutants

func historyGroup() Group {
	return Group{Package: "internal/history", Mutants: []Mutant{
		{
			Name: "history-of-other-cluster", Bug: "loads the history of another cluster", File: "load.go",
			Old: `case is.Cluster != want.Cluster:`, New: `case false:`, Tests: "TestAnotherOrigin",
		},
		{
			Name: "history-of-other-etcd", Bug: "loads the history of another etcd", File: "load.go",
			Old: `case is.Etcd != want.Etcd:`, New: `case false:`, Tests: "TestAnotherOrigin",
		},
		{
			Name: "checksum-ignored", Bug: "accepts a record with a wrong checksum", File: "record.go",
			Old: `case binary.LittleEndian.Uint64(value) != p.checksum(key, value[checksumBytes:]):`, New: `case false:`, Tests: "TestDamagedFile",
		},
		{
			Name: "history-format-ignored", Bug: "reads a file of an unknown format", File: "db.go",
			Old: `if err == nil && string(is) != fmt.Sprint(format) {`, New: `if false {`, Tests: "TestUnknownFormatIsRefused",
		},
		{
			Name: "damaged-file-left-open", Bug: "leaves a damaged file open and mapped", File: "db.go",
			Old: "\ts.abandon()\n\taside", New: "\ts.forget()\n\taside", Tests: "TestDamagedFilesAreClosed",
		},
		{
			Name: "share-lost-for-ever", Bug: "keeps records at the smallest share after large ones were removed", File: "store.go",
			Old: `max(mostShare, s.share/2), 0`, New: `s.share, 0`, Tests: "TestLargeRecordsLeaveNoLessRoomForEver",
		},
		{
			Name: "full-at-smallest-share", Bug: "does not rewrite a full file at the smallest share", File: "store.go",
			Old: `(!again || s.share < leastShare)`, New: `s.share < leastShare`, Tests: "TestFullFileAtTheSmallestShare",
		},
		{
			Name: "record-behind-any", Bug: "accepts a record after one that is not its predecessor", File: "segment.go",
			Old: `in.bad || before != s.progress`, New: `in.bad || before > s.progress`, Tests: "TestRecordsThatDoNotFollow",
		},
		{
			Name: "record-of-later-revision", Bug: "accepts a record with another revision", File: "segment.go",
			Old: `if b.Revision != revision {`, New: `if b.Revision < revision {`, Tests: "TestRecordsThatDoNotFollow",
		},
		{
			Name: "deletes-of-other-range", Bug: "accepts deletes of keys outside the shard", File: "segment.go",
			Old: `if err := outside([]byte(key)); err != nil {`, New: `if err := outside([]byte(key)); false && err != nil {`, Tests: "TestRecordsThatDoNotFollow",
		},
		{
			Name: "previous-value-of-any-revision", Bug: "accepts a previous value of another revision", File: "record.go",
			Old: `e.Prev == nil || e.Prev.ModRevision() != prev`, New: `e.Prev == nil || e.Prev.ModRevision() < prev`, Tests: "TestPreviousValuesHaveTheRecordedRevision",
		},
		{
			Name: "deleted-key-has-previous-value", Bug: "a key that was deleted keeps its previous value", File: "record.go",
			Old: `delete(latest, string(e.KV.Key()))`, New: `_ = latest`, Tests: "TestPreviousValuesHaveTheRecordedRevision",
		},
		{
			Name: "cut-record-taken", Bug: "accepts a truncated batch", File: "record.go",
			Old: "if !r.ended() {\n\t\treturn nil, fmt.Errorf(\"%w: batch of", New: "if false {\n\t\treturn nil, fmt.Errorf(\"%w: batch of", Tests: "TestATruncatedRecordIsInvalid",
		},
		{
			Name: "oldest-shard-inherited", Bug: "inherits from the oldest shard that had a key", File: "load.go",
			Old: `l.window.newest().after > newest`, New: `newest < 0`, Tests: "TestTheNewestShardThatHadAKey",
		},
		{
			Name: "inherits-from-empty-shard", Bug: "inherits from a shard without saved data", File: "load.go",
			Old: `len(l.window.segments) > 0 && l.rng.Contains(key)`, New: `l.rng.Contains(key)`, Tests: "TestTheNewestShardThatHadAKey",
		},
		{
			Name: "parent-removed-early", Bug: "removes the parent of a shard without saved data", File: "store.go",
			Old: ` || len(l.window.segments) == 0 {`, New: ` {`, Tests: "TestOldHistoryIsKeptUntilCurrentShardsAreSaved",
		},
		{
			Name: "loading-shard-failed", Bug: "counts a loading shard as failed", File: "store.go",
			Old: `saved++ // it is being loaded`, New: `_ = saved // it is being loaded`, Tests: "TestAShardThatIsBeingLoadedHasNotFailed",
		},
		{
			Name: "unloaded-file-rewritten", Bug: "does not know the extent of a file that was not loaded", File: "load.go",
			Old: `g.written = max(g.written, e.progress)`, New: `g.written = max(g.written, e.after)`, Tests: "TestAFileThatWasNotLoadedIsContinued",
		},
		{
			Name: "forgets-only-loaded", Bug: "does not remove a shard from a file that was not loaded yet", File: "store.go",
			Old: "err := s.prepare()\n\tif err", New: "err := s.open()\n\tif err", Tests: "TestAForgottenShardIsSavedAgain",
		},
	}}
}
