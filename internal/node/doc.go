// Package node builds the parts of a cache node, and connects them.
//
// Read [Node] and its Run first.
//
//	gossip ──▶ members ─┐
//	raft / a peer ─▶ map ┴─▶ copies ─▶ replicas (a cache and its chain of sources each)
//	                              └──▶ router.Kick: watches move to the new caches
//	etcd ──▶ clock, twice a second ─▶ every cache's age
//
// A node follows the newest map it knows: it loads the shards whose replicas name it, and
// drops all others.
package node
