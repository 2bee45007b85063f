// Package statuspage serves the status page on each node's HTTP port: the nodes of each shard, the progress of
// each copy, and recent events, live.
//
// Read [Page] first; [View] is its content.
//
//	Cluster.Changes ─▶ Run ─▶ observe ─▶ view ─▶ encoded once ─▶ every browser
//	  (map, members)    │                  └▶ news (differences from the last)
//	  nodes' own status ┘ asked for only while the page is open
//
// It follows the same signal as WatchShardMap, and reads nothing from etcd. Its cost does not depend on the
// number of browsers: all receive the same bytes, each at its own pace. A slow browser may skip views without
// loss, because each view is complete.
//
// The page loads nothing from other hosts, and has no inline script or style, so its Content-Security-Policy
// forbids both. It shows no values, and the start keys of shards only if Config.ShowKeys allows it.
package statuspage
