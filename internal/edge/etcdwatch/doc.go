// Package etcdwatch is the Watch service of etcd's API.
//
// Read [Streams], then stream.go and watch.go. A watch is sent the events of its shards'
// window; older events come from etcd's own log (past.go), which is read once for all
// watches of a range. Its answers equal etcd's exactly: revisions, IDs, orders and
// errors.
package etcdwatch
