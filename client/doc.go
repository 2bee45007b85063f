// Package client watches and reads keys through a Shardwatch cluster.
//
// Read [Client] first: [New] makes one from the addresses of any nodes. It
// learns the shard map and the members by itself, goes straight to a node that
// has the keys, and resumes on another one when that node dies:
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
// is the last revision that arrived whole; on another node it resumes after
// that.
//
// When the revisions behind its position are no longer to be had one by one,
// because it was away for longer than the nodes remember, they send a unit in
// their place, on the same stream: a [KindDelta] with each key that has changed
// and each that was deleted, or a [KindResync] with all there is, when no node knows
// what has changed, or when the history is another one: etcd was restored, or another
// cluster answers behind the same addresses ([Position]). A unit is held until its
// last key has arrived, and then handed out whole; the position moves with
// it. One that breaks off is dropped and asked for again at another node. So an
// application that applies what comes never has a state that never was. The price
// is memory for one unit ([Config.MaxUnit] bounds it). Use [WithoutResync] if the
// program cannot accept gaps: the watch then ends with [*CompactedError] or
// [ErrLineage].
//
// Package client/mirror does the applying: its mirrors are copies in memory that report
// the difference after each step, deletes that no server knows among it, and decode the
// values, too.
// Package client/follow calls a function for each update at least once, over restarts of
// the program.
//
//	Watch ─▶ Watcher ─┐ place: pick a node by map, penalties, hints
//	                  ▼
//	            stream (shared by many watchers) ─▶ one connection per node
//	                  │ silent, broken, ended
//	                  └─▶ every watcher of it is placed again, from its position
//
// A watch that had to leave its preferred node moves back when that serves again, in one of
// the rounds that follow every 15 to 45 s: one watch of the client first, then up to a tenth
// of all its watches in a round, and ever more seldom if it does not stay there. It
// resumes from its position, as after any move.
//
// # Operators
//
// Package client/admin shows and changes how a cluster is: nodes, shards, voters,
// lineage.
//
// # Certificates
//
// [TLSFiles] name the files of certificates and CAs. They are read again when they
// change: a program that runs for longer than its certificates are good, as with
// cert-manager, is not started again for them. [TokenFile] and [PasswordFile] do the
// same with a bearer token and with the password of etcd's user.
//
// # Stability
//
// The exported API of this package, of client/follow, client/mirror and client/admin is written down in
// api.txt beside each. A release removes or changes nothing in it without a new major version; until
// version 1, a minor version may, and CHANGELOG.md says what to write instead. New fields,
// methods and kinds of updates may come with any release: name the fields of struct
// literals, and give switches over kinds a default. Errors are compared with errors.Is and
// errors.As; their texts may change. Nodes serve clients of other versions as
// docs/upgrade.md says.
//
// # Concurrency
//
// All types may be used from several goroutines. A watcher costs no goroutine
// of its own; a stream costs three. A consumer that does not keep up holds up
// no other watch: once its buffer is full its watch leaves the stream, and resumes from
// its position when the buffer is empty again.
package client
