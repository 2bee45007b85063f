// Package client watches and reads keys through a Shardwatch cluster.
//
// Read [Client] first: [New] makes one from the addresses of any nodes. It
// learns the shard map and the members by itself, goes straight to a node that
// has the keys, and goes on at another one when that node dies:
//
//	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
//	...
//	w := c.Watch(ctx, client.Prefix("/demo/"), client.WithState())
//	for u, err := range w.Updates() {
//		...
//	}
//
// # What a watch promises
//
// A [Watcher] hands out whole revisions in order: never a part of one, never
// one twice, never one left out, whatever happens to the nodes. Its position
// is the last revision that arrived whole; on another node it goes on behind
// that. It ends only when its context does, when it is closed, or when the
// cluster cannot keep the promise: [*CompactedError] when the history it needs
// is gone, [ErrLineage] when etcd was restored and has another history.
// A [Mirror] takes care of both.
//
//	Watch ─▶ Watcher ─┐ place: pick a node by map, penalties, hints
//	                  ▼
//	            stream (shared by many watchers) ─▶ one connection per node
//	                  │ silent, broken, ended
//	                  └─▶ every watcher of it is placed anew, from its position
//
// # Concurrency
//
// All types may be used from several goroutines. A watcher costs no goroutine
// of its own; a stream costs three. A consumer that does not keep up holds up
// nobody: once its buffer is full its watch leaves the stream, and resumes from
// its position when the buffer is empty again.
package client
