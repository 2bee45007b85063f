// Package etcdwatch implements the Watch service of etcd's API.
//
// Read [Streams], then stream.go and watch.go. A watch gets the events in the windows of
// its shards; older events come from etcd's own log (past.go), which is read once for all
// watches of a range. The responses equal etcd's exactly: revisions, IDs, order and
// errors.
package etcdwatch
