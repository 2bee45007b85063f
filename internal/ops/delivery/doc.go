// Package delivery records how revisions come through this node, and what becomes of the
// sources of its shards: as metrics, as spans, and as lines of the log for many shards
// at a time.
//
// Read [Recorder] first. All its methods may be called from any goroutine.
package delivery
