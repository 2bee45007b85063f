// Package etcd brings the data of etcd: watches, lists and history.
//
// Read [Client.Follow] first: it is the cache's source on a replica that
// watches etcd itself. Beside it stand lists of keys ([Client.Keys]) and parts of the
// past ([Client.History]). A Client is also a [etcdclock.Reader], for etcd's clock, and
// has the connections of [etcdconn.Conns].
//
// It uses etcd's generated stubs and not clientv3: clientv3's watch buffers
// without a bound and has watches that catch up share streams with others, where one
// that lags silences the progress of all; its login needs an etcd that answers at start.
//
// A Client may be used from any number of goroutines. It starts none but those
// of its connections and of shared reads. A Follow with a stream of its own has one, which ends
// before the Follow does. Those that have caught up share a stream (mux), whose two end
// with the last of them, and before Close returns.
package etcd
