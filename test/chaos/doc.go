// Package chaos breaks real cache nodes over a real etcd, under load, and
// checks that every watch keeps every promise.
//
// Read [Run] first. It starts an etcd and a cluster of cachenode processes,
// writes to etcd, watches through many clients, and then runs cycles: in each a
// [Fault] breaks something and mends it, the writes pause, every watcher must
// reach etcd's revision, and package check judges all that was seen since the
// start. Timings are reported, never judged.
//
//	workload ──▶ etcd ──▶ truth (one watch of everything) ──▶ check.History
//	      │        │                                              │
//	      └────▶ nodes ◀── faults                               judge
//	               │                                              │
//	            clients ──▶ watchers ─────────────────────▶ check.Checker, each
//
// Nodes have the settings of deploy/k8s, and clients connect while they start.
// Clients speak the native API (native.go) and etcd's: clientv3, which resumes
// its watches itself (clientv3.go), and bare streams of many watches, which on
// any error and now and then without one resume on the next node, with nothing
// but the last revision plus one (stream.go). One native client is a process of
// its own, which a fault can stop (remote.go). With etcd's API a part of the
// writes goes through the nodes, too (write_nodes.go): acknowledged writes
// must exist, and none may happen twice.
//
// A fault is one small file that implements [Fault] and is listed in [Faults].
//
// `make chaos` runs the command in cmd/chaos; `go test ./test/chaos` a short
// fixed set.
package chaos
