// Package copies runs the caches of a node: a replica of each shard that the shard map
// assigns to it, with its chain of sources, and relays of shards that other nodes have.
//
//	shard map ─▶ Set.Run ─▶ replicas and relays, a cache and its sources each
//	                  └───▶ Kick: watches search for new sources
//
// Read [Set] and its Run first. All its methods may be called from any goroutine.
package copies
