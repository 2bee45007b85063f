// Package statuspage is the page that every node serves on its HTTP port: which
// node has which shard, how far each copy is, and what has happened, live.
//
// Read [Page] first; [View] is its content.
//
//	Cluster.Changes ─▶ Run ─▶ observe ─▶ view ─▶ encoded once ─▶ every browser
//	  (map, members)    │                  └▶ news (what differs from the last)
//	  nodes' own status ┘ asked for only while the page is open
//
// It follows the same signal as WatchShardMap, and reads nothing of etcd. What it
// costs does not depend on how many look: all are sent the same bytes, each at
// its own pace, and one that is slow misses views and none of what they show,
// because a view is whole.
//
// The page has nothing from elsewhere and no script or style in its text, so that
// its Content-Security-Policy can forbid both. It shows no values, and the keys at
// which shards begin only where Config.ShowKeys allows it.
package statuspage
