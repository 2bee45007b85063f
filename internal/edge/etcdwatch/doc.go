// Package etcdwatch is the Watch service of etcd's API.
//
// Read [Streams], then stream.go and watch.go. A watch is sent what the window of its
// shards holds; what is older comes from etcd's own log (past.go), which is read once for
// all watches of a range. Where it answers, it is exactly etcd: revisions, IDs, orders and
// errors.
package etcdwatch
