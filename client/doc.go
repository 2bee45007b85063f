// Package client watches and reads keys through a Shardwatch cluster.
//
// Read [Client] first: [New] creates one from the addresses of any nodes. The client
// fetches the shard map and the members, connects directly to a node that has the keys,
// and resumes on another node if that node fails:
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
// A [Watcher] returns whole revisions in order. It never returns part of a revision,
// and never repeats or skips one, even if nodes fail. Its position is the last revision
// that arrived whole; on another node it resumes after that revision.
//
// If a watch was disconnected for longer than the nodes keep revisions, the nodes send
// a unit in place of the missing ones, on the same stream. A [KindDelta] has the keys
// that have changed and those that were deleted. A [KindResync] has the full state: no
// node can compute the difference, or the history is another one, because etcd was
// restored or another cluster answers at the same addresses ([Position]). The watcher
// buffers a unit until its last key has arrived, then returns it whole, and the
// position advances with it. An incomplete unit is discarded and requested again from
// another node. An application that applies the updates thus never has a state that
// etcd never had. The price is memory for one unit ([Config.MaxUnit] bounds it). Use
// [WithoutResync] if the program cannot accept gaps: the watch then ends with
// [*CompactedError] or [ErrLineage].
//
// Package client/mirror applies the updates: a mirror is a copy in memory that reports
// the difference after each step, including deletes that no server knows, and can decode
// the values. Package client/follow calls a function at least once for each update,
// across restarts of the program.
//
//	Watch ─▶ Watcher ─┐ place: pick a node by map, penalties, hints
//	                  ▼
//	            stream (shared by many watchers) ─▶ one connection per node
//	                  │ silent, broken, ended
//	                  └─▶ every watcher of it is placed again, from its position
//
// A watch that lost its preferred node moves back when that node serves again. Moves happen
// in rounds, every 15 to 45 s: the first round moves one watch of the client, later rounds
// up to a tenth of all its watches. Each time a watch does not stay there, it waits longer.
// A moved watch resumes from its position.
//
// # Operators
//
// Package client/admin reports and changes the state of a cluster: nodes, shards, voters, lineage.
//
// # Certificates
//
// [TLSFiles] names the files of certificates and CAs. They are reloaded when they
// change: a program that outlives its certificates, as with cert-manager, needs no
// restart. [TokenFile] and [PasswordFile] do the same for a bearer token and for the
// password of an etcd user.
//
// # Stability
//
// The exported API of this package, client/follow, client/mirror and client/admin is listed in
// api.txt beside each. A release removes or changes nothing in it without a new major version;
// until version 1, a minor version may, and CHANGELOG.md describes the replacement. Any release may
// add fields, methods and kinds of updates: name the fields of struct literals, and give switches
// over kinds a default. Compare errors with errors.Is and errors.As; their texts may change.
// docs/upgrade.md lists the client versions that nodes serve.
//
// # Concurrency
//
// Types are safe for use by several goroutines unless their documentation restricts
// that. A watcher costs no goroutine of its own; a stream costs three. A slow consumer
// delays no other watch: once its buffer is full, its watch leaves the stream, and
// resumes from its position when the buffer is empty.
package client
