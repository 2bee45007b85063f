package mutants

func serverGroup() Group {
	return Group{Package: "internal/server", Mutants: []Mutant{
		{
			Name: "delta-across-lineages", Bug: "sends a delta to a watch whose position is of another lineage", File: "sync.go",
			Old: `case errors.As(err, &lineage) && w.phase == creating:`,
			New: `case errors.As(err, &lineage):
		w.follows.lineage = lineage.Current
		w.in = w.follows
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
		{
			Name: "cluster-of-position-ignored", Bug: "takes a position of another cluster for one of this cluster", File: "stream.go",
			Old: `case h.cluster != here.cluster:`, New: `case false:`, Tests: "TestAnotherClustersPositionResyncs|TestReadsOfAnotherClustersRevision|TestWatchRefused",
		},
		{
			Name: "foreign-token-renamed", Bug: "issues a token of this cluster for a position of another one", File: "watch.go",
			Old: `Cluster: w.in.cluster,`, New: `Cluster: w.follows.cluster,`, Tests: "TestAnotherClustersPositionResyncs",
		},
		{
			Name: "node-of-another-cluster-served", Bug: "serves a node of another cluster", File: "peers.go",
			Old: `theirs == m.ClusterID`, New: `theirs != ""`, Tests: "TestNodesOfAnotherClusterAreNotServed",
		},
		{
			Name: "read-of-another-cluster", Bug: "reads a revision of another cluster", File: "read.go",
			Old: `return claimed(clusterID, lineage, here).judge(here, "revision")`, New: `return nil`, Tests: "TestReadsOfAnotherClustersRevision",
		},
	}}
}
