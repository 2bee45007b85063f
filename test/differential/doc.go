// Package differential sends etcd and the tier the same requests, and compares their
// answers field by field: reads, watches, writes, leases, malformed requests.
//
// Read [Run] first. It has two etcds. All writes go, in one order, to the plain
// one and through the tier to the one behind it, so that both have the same
// revisions; reads and watches go to the etcd behind the tier twice, directly and
// through a node, so that even the header is the same.
//
//	           ┌──────────▶ plain etcd
//	one writer ┤
//	           └─▶ node ──▶ etcd ◀── the same reads and watches
//	                ▲                       │ compared
//	                └───────────────────────┘
//
// Requests come from dice: those of a seed, which is printed, or the bytes of a fuzz target. A
// intended difference is in [Known] with its reason; no other one is tolerated.
//
// `go test ./test/differential` runs some rounds, `make differential` an hour.
package differential
