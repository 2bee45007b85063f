// Package router serves every key on every node: it finds the shards of a range, on
// this node or on others, and presents many shards as one.
//
// A [Watch] is one client watch over any number of shards. A watch of one shard reads
// the shard's cache: a replica, or a relay if the shard is not on this node. Several
// shards are merged by progress: revision R is delivered once every shard is known to
// have all events up to R, in one piece, so that a transaction over two shards arrives
// whole. Watches over the same shards share one merge, whose result is a merged window;
// a watch that is below that window merges the shards separately until it has caught up.
// When a cache retires (its shard was split or moved) the watch resumes from the shard's
// new cache, at its position.
//
// A [Reading] is a list or get at one exact revision. Its parts are read from this
// node and from others.
package router
