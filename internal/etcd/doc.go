// Package etcd reads the data of etcd: watches, lists and history.
//
// Read [Client.Follow] first: it is the cache's source on a replica that watches etcd
// itself. [Client.Keys] lists keys, and [Client.History] reads parts of the past. A
// Client is also an [etcdclock.Reader], for etcd's clock, and has the connections of
// [etcdconn.Conns].
//
// It uses etcd's generated stubs and not clientv3. clientv3's watch buffers without a
// bound, and its watches that catch up share streams with others, where a lagging watch
// silences the progress of all. Its login needs an etcd that answers at start.
//
// A Client may be used from any number of goroutines. It starts goroutines for its connections
// and for shared reads. A Follow on a separate stream has one, which ends before the Follow
// does. Follows that have caught up share a stream (mux), whose two goroutines end with the
// last Follow, and before Close returns.
package etcd
