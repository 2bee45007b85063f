// Package chaos breaks real cache nodes over a real etcd, under load, and
// checks that every watch keeps every promise.
//
// Read [Run] first. It starts an etcd and a cluster of cachenode processes,
// writes to etcd, watches through many native clients, and then runs cycles:
// in each a [Fault] breaks something and mends it, the writes pause, every
// watcher must reach etcd's revision, and package check judges all that was
// seen since the start. Timings are reported, never judged.
//
//	workload ──▶ etcd ──▶ truth (one watch of everything) ──▶ check.History
//	               │                                              │
//	             nodes ◀── faults                               judge
//	               │                                              │
//	            clients ──▶ watchers ─────────────────────▶ check.Checker, each
//
// A fault is one small file that implements [Fault] and is listed in [Faults].
//
// `make chaos` runs the command in cmd/chaos; `go test ./test/chaos` a short
// fixed set.
package chaos
