// Package router answers for every key on every node: it knows which shards a
// range touches, which of them are here, and makes many shards look like one.
//
// A [Watch] is one client watch over any number of shards. It reads a cursor
// in each shard's cache (a replica's, or a relay's for a shard that is not
// here) and merges them by progress: revision R is delivered once every shard
// is known to have everything up to R, in one piece, so that a transaction
// over two shards arrives whole. When a cache retires (its shard was split or
// moved) the watch finds its new home by itself, at its position.
//
// A [Reading] is a list or get at one exact revision, in parts, here and on
// other nodes.
package router
