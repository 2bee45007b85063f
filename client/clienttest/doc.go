// Package clienttest is a cluster for tests: nodes with the native API on loopback that
// share one history in memory, and that can be killed, stopped, drained, made to lag,
// and cut at the worst moment. Read [Cluster] first.
//
// It is simple rather than fast, and keeps every revision until [Cluster.Compact].
package clienttest
