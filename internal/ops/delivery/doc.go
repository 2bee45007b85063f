// Package delivery records how revisions pass through this node, and changes of the sources of its shards: as
// metrics, as spans, and as log lines that sum up many shards.
//
// Read [Recorder] first. All its methods may be called from any goroutine.
package delivery
