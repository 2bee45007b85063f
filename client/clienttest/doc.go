// Package clienttest is a cluster for tests: nodes that speak the native API
// on loopback over one history in memory, and that can be killed, stopped,
// drained, made to lag, and cut at the worst moment. Read [Cluster] first.
//
// It is as simple as can be, not fast, and keeps every revision until
// [Cluster.Compact].
package clienttest
