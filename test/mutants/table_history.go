package mutants

func historyGroup() Group {
	return Group{Package: "internal/history", Mutants: []Mutant{
		{
			Name: "history-of-other-cluster", Bug: "loads the past of another cluster", File: "load.go",
			Old: `case is.Cluster != want.Cluster:`, New: `case false:`, Tests: "TestAnotherOrigin",
		},
		{
			Name: "history-of-other-etcd", Bug: "loads the past of another etcd", File: "load.go",
			Old: `case is.Etcd != want.Etcd:`, New: `case false:`, Tests: "TestAnotherOrigin",
		},
		{
			Name: "checksum-ignored", Bug: "takes a record whose checksum is wrong", File: "record.go",
			Old: `case binary.LittleEndian.Uint64(value) != p.checksum(key, value[checksumBytes:]):`, New: `case false:`, Tests: "TestDamagedFile",
		},
		{
			Name: "history-format-ignored", Bug: "reads a file of an unknown format", File: "db.go",
			Old: `if err == nil && string(is) != fmt.Sprint(format) {`, New: `if false {`, Tests: "TestUnknownFormatIsRefused",
		},
	}}
}
