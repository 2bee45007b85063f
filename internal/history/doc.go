// Package history keeps the history of caches on disk: the window and the deletes of
// each shard. When all nodes have been restarted, watches from
// before continue.
//
// Read [Store] first.
//
//	cache ─▶ Export ─▶ Save, every few seconds ─▶ bbolt ─▶ Load, at the start ─▶ cache.History
//
// All is in one bbolt file, with a bucket for each shard. A shard has two logs,
// as its cache has two memories: one of batches and one of deletes, which goes
// back further. A log is a chain of segments, buckets of their own, whose
// records are keyed by revision and only added:
//
//	history-1.db
//	  format                 1
//	  shard 7                header: cluster, etcd cluster, lineage, range
//	    window  behind 1000  1004 → batch · 1010 → batch … · progress
//	    window  behind 5210  5213 → batch …
//	    deletes behind 12    40 → keys · 1010 → keys … · progress
//
// A segment is closed when it is large, and deleted when the cache has
// forgotten its records, or when the log is over its bound. So each event is
// written once.
//
// bbolt makes a write whole or not at all, synced, but it does not notice a
// byte that has changed since. So every record carries a checksum over its
// place and its bytes, and the revision of the record before it: a record that
// is wrong or missing costs the rest of its segment, and nothing of other
// shards. A page that bbolt cannot follow costs the shard that it belongs to;
// the file is set aside then, and written again from memory.
//
// Each format has a file of its own. Files of other versions are left alone.
package history
