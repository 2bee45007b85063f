// Package history keeps the history of caches on disk: the window and the deletes of
// each shard. So watches resume even after a restart of all nodes.
//
// Read [Store] first.
//
//	cache ─▶ Export ─▶ Save, every few seconds ─▶ bbolt ─▶ Load, at the start ─▶ cache.History
//
// One bbolt file has a bucket for each shard. A shard has two logs, like its cache: one
// of batches and one of deletes, which goes back further. A log is a chain of segments,
// each a bucket, whose records are keyed by revision and only appended:
//
//	history-1.db
//	  format                 1
//	  shard 7                header: cluster, etcd cluster, lineage, range
//	    window  behind 1000  1004 → batch · 1010 → batch … · progress
//	    window  behind 5210  5213 → batch …
//	    deletes behind 12    40 → keys · 1010 → keys … · progress
//
// A segment is closed when it is large, and deleted when the cache has evicted its
// records, or when the log exceeds its bound. So each event is written once.
//
// bbolt makes writes atomic and durable, but it does not detect a byte that changes
// later. So every record has a checksum over its place and its bytes, and the revision
// of the record before it: a wrong or missing record costs the rest of its segment, and
// nothing of other shards. A page that bbolt cannot read costs its shard; the file is
// then set aside, and written again from memory.
//
// Each format has a separate file. Files of other versions are left unchanged.
package history
