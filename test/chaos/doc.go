// Package chaos injects faults into real cache nodes in front of a real etcd, under load, and
// checks that every watch keeps every promise.
//
// Read [Run] first. It starts an etcd and a cluster of cachenode processes, writes to etcd, watches
// through many clients, and then runs cycles: in each cycle a [Fault] breaks something and heals
// it, the writes pause, every watcher must reach etcd's revision, and package check judges all
// updates since the start. Timings are reported, never judged.
//
//	workload ──▶ etcd ──▶ truth (one watch of everything) ──▶ check.History
//	      │        │                                              │
//	      └────▶ nodes ◀── faults                               judge
//	               │                                              │
//	            clients ──▶ watchers ─────────────────────▶ check.Checker, each
//
// Nodes have the settings of deploy/k8s, and clients connect while the nodes start. Clients use the
// native API (native.go) and etcd's: clientv3, which resumes its watches itself (clientv3.go), and
// bare streams of many watches, which on any error, and occasionally without an error, resume on
// the next node from the last revision plus one, without other information (stream.go). One native
// client has a separate process, which a fault can stop (remote.go). With etcd's API, part of the
// writes goes through the nodes (write_nodes.go): acknowledged writes must exist, and none may
// happen twice.
//
// A fault is one small file that implements [Fault] and is listed in [Faults].
//
// `make chaos` runs the command in cmd/chaos; `go test ./test/chaos` runs a short fixed set.
package chaos
