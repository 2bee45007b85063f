// Package memetcd is a small etcd in memory, for tests on fake time
// (testing/synctest). etcd itself cannot run there: it needs real sockets and a
// real disk.
//
// Read [Server] first. It serves KV, Watch, Maintenance.Status and
// Cluster.MemberList over gRPC on any listener, and has faults on demand. The
// store is a value (store.go, txn.go); streams are positions in it (stream.go).
//
// The model is etcd 3.7.3, field by field, and a test runs the same random
// operations and watches against both. The model includes the traps for clients:
// header revisions that are ahead of the events, progress requests that are
// silently dropped, a compacted watch that holds its stream's progress back until
// it is cancelled. It leaves out leases (a lease ID is stored, and never expires),
// auth, alarms, RangeStream, more than one member, and freeing compacted
// revisions: the whole history is kept for a checker.
//
// Everything waits on channels or in gRPC. A server made and started inside a
// bubble must be stopped in it: see the notes of package sim.
package memetcd
