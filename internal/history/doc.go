// Package history keeps what caches know of the past on disk: the window and
// the deletes of each shard. When all nodes have been restarted, watches from
// before go on.
//
// Read [Store] first.
//
//	cache ─▶ Export ─▶ Save, every few seconds ─▶ logs ─▶ Load, at the start ─▶ cache.History
//
// A shard has two logs, as its cache has two memories: one of batches and one
// of deletes, which goes back further.
//
//	7/window-00000004   header · batch · batch · progress · batch …
//	7/window-00000005   header · …
//	7/deletes-00000002  header · deletes · progress · deletes …
//
// A log is a chain of files that are only appended to. A file's header says of
// which cluster, etcd, lineage, shard and range it is, and behind which revision
// it begins: it has everything from there up to its last record. A file is
// closed when it is large, and deleted when the cache has forgotten what is in
// it, or when the log is over its bound. So each event is written once.
//
// Every record carries a checksum over the file's own number, its place and its
// bytes. What is read is the longest valid beginning of each file, and of the
// files the newest that join up. A crash of the machine may lose the last
// seconds, since files are synced when they are closed only; that costs what
// etcd's own log has still. A crash of the process loses what was not saved yet.
package history
