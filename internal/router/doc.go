// Package router answers for every key on every node: it knows which shards a
// range touches, which of them are here, and makes many shards look like one.
//
// A [Watch] is one client watch over any number of shards. Of one shard it reads
// the cache: a replica's, or a relay's for a shard that is not here. Several shards
// are merged by progress: revision R is delivered once every shard is known to have
// everything up to R, in one piece, so that a transaction over two shards arrives
// whole. Watches over the same shards share one merge, whose result is a window of its
// own; a watch that is below that window merges alone until it has caught up. When a
// cache retires (its shard was split or moved) the watch continues at its
// new home, at its position.
//
// A [Reading] is a list or get at one exact revision, in parts, here and on
// other nodes.
package router
