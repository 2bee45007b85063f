package mutants

func serverGroup() Group {
	return Group{Package: "internal/server", Mutants: []Mutant{
		{
			Name: "delta-across-lineages", Bug: "sends a delta to a watch whose position is of another lineage", File: "sync.go",
			Old: `case errors.As(err, &lineage) && w.phase == creating:`,
			New: `case errors.As(err, &lineage):
		w.lineage, w.follows = lineage.Current, lineage.Current
		return w.delta(), true
	case errors.As(err, &lineage) && w.phase == creating:`, Tests: "TestAnotherLineageResyncs|TestLineageEndsWhileWatching",
		},
		{
			Name: "resync-misses-chunk", Bug: "omits a chunk of a resync", File: "sync.go",
			Old: `if part.keys > 0 {`, New: `if part.keys > 0 && c.part != 2 {`, Tests: "TestLadder",
		},
		{
			Name: "position-before-end", Bug: "moves the position at the beginning of a unit", File: "sync.go",
			Old: `c.begun = true`, New: `c.begun, w.at = true, body.Revision`, Tests: "TestLadder|TestUnitBeginsAgainElsewhere",
		},
		{
			Name: "page-of-another-revision", Bug: "reads the next page at another revision", File: "read.go",
			Old: `req.Revision, options.From = p.Revision, p.Next`, New: `options.From = p.Next`, Tests: "TestListIsOneRevision|TestListEdges",
		},
	}}
}
