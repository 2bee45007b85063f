// Package node joins the parts into one cache node, and connects them.
//
// Read [Node] and its Run first.
//
//	gossip ──▶ members ─┐
//	raft / a peer ─▶ map ┴─▶ copies ─▶ replicas (a cache and its chain of sources each)
//	                              └──▶ router.Kick: watches find their new homes
//	etcd ──▶ clock, twice a second ─▶ every cache's age
//
// A node follows the newest map it knows: it has the shards that name it, and drops the
// others.
package node
