// Package replica brings a shard's events from other nodes, and chooses
// the node to take them from.
//
// [Peer] is one other node as a source. [Failover] is the source that a
// replica's cache really has: the nodes before it in the shard map's order,
// then etcd itself. When one is lost the next takes over from the first
// revision that is missing; the cache notices only a pause. When a better
// one is ready it relieves the one that is followed, and there is not even that.
//
//	owner     : etcd
//	replica 1 : owner, else etcd
//	replica 2 : owner, else replica 1 (while that reads etcd itself), else etcd
//
// A follower also leaves a source that brings nothing though etcd has moved on. The
// other followers of that source have the same events: none is followed before it has more. When etcd
// has compacted the missing events, the first replica that reads etcd fetches the changes,
// and the others take it from that one, also a node that etcd does not answer.
//
// A [Link] is the way to a node: one heartbeat for all shards that are followed there.
// It also brings their progress, which may overtake their events: see joint.
//
// Changing over needs no agreement: two sources bring the same events, so
// a change that was not needed is harmless, and the number of watches at etcd
// stays below shards × replicas.
package replica
