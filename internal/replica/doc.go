// Package replica follows a shard's events at other nodes, and selects the node to
// follow.
//
// [Peer] is another node as a source. [Failover] is the source of a replica's cache:
// the nodes before it in the shard map's order, then etcd itself. When a source is
// lost, the next one takes over from the first missing revision; the cache sees only a
// pause. When a better source is ready, it replaces the current one without a pause.
//
//	owner     : etcd
//	replica 1 : owner, else etcd
//	replica 2 : owner, else replica 1 (while that reads etcd itself), else etcd
//
// A follower also leaves a source that sends nothing although etcd has new revisions. The other
// followers of that source have the same events: none is followed before it has more. When etcd has
// compacted the missing events, the first replica that reads etcd fetches the changes, and the others
// take them from that replica, also a node that etcd does not answer.
//
// A [Link] connects to a node, with one heartbeat for all shards that are followed
// there. It also reports their progress, which may overtake their events: see joint.
//
// A change of the source needs no agreement: two sources send the same events, so an
// unneeded change is harmless, and the number of watches at etcd stays below shards ×
// replicas.
package replica
