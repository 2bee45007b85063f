// Package peerapi serves the other nodes of the cluster; package replica is its client.
//
// Read service.go first, then follow.go: the stream of one shard. Streams of the same
// follower share a heartbeat, which reports the progress of their shards together; see
// pair.go. A Service may be used from any goroutine.
package peerapi
