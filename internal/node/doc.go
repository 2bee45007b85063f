// Package node joins the parts into one cache node and keeps them in step with
// the shard map.
//
// Read [Node] and its Run first.
//
//	gossip ──▶ members ─┐
//	raft / a peer ─▶ map ┴─▶ keeper ─▶ replicas (a cache and its chain of sources each)
//	                              └──▶ router.Kick: watches find their new homes
//	etcd ──▶ clock, twice a second ─▶ every cache's age
//
// What a node does follows from the newest map it knows: it has the shards
// that name it, and drops the others. Nothing here asks for permission: the
// map is the permission.
package node
