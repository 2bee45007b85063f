// Package statuspage is the page that every node serves on its HTTP port: which
// node has which shard, the progress of each copy, and recent events, live.
//
// Read [Page] first; [View] is its content.
//
//	Cluster.Changes ─▶ Run ─▶ observe ─▶ view ─▶ encoded once ─▶ every browser
//	  (map, members)    │                  └▶ news (differences from the last)
//	  nodes' own status ┘ asked for only while the page is open
//
// It follows the same signal as WatchShardMap, and reads nothing from etcd. Its cost
// does not depend on the number of browsers: all receive the same bytes, each at its
// own pace. A slow browser misses views but no information, because each view is
// complete.
//
// The page has nothing from elsewhere and no script or style in its text, so that
// its Content-Security-Policy can forbid both. It shows no values, and the keys at
// which shards begin only if Config.ShowKeys allows it.
package statuspage
