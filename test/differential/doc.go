// Package differential sends etcd and the tier the same requests, and compares their
// answers field by field: reads, watches, writes, leases, malformed requests.
//
// Read [Run] first. It uses two etcds. All writes go, in one order, to the plain one and through
// the tier to the one behind it, so that both have the same revisions. Reads and watches go to the
// etcd behind the tier twice, directly and through a node, so that even the header is the same.
//
//	           ┌──────────▶ plain etcd
//	one writer ┤
//	           └─▶ node ──▶ etcd ◀── the same reads and watches
//	                ▲                       │ compared
//	                └───────────────────────┘
//
// Requests come from dice: of a seed, which is printed, or from the bytes of a fuzz target. An
// intended difference is in [Known] with its reason; no other difference is tolerated.
//
// `go test ./test/differential` runs some rounds, `make differential` runs for an hour.
package differential
