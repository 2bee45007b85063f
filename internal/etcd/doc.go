// Package etcd is the only package that talks to etcd.
//
// Read [Client.Follow] first: it is the cache's source on a replica that
// watches etcd itself. Beside it stand the clock ([Client.Revision]), lists of
// keys ([Client.Keys]), what can be read at etcd ([Client.Verify]), the check of
// versions ([Client.Check]) and the way of what is passed through
// ([Client.Passage]).
//
// It uses etcd's generated stubs and not clientv3: clientv3's watch buffers
// without a bound and has watches that catch up share streams with others, where one
// that lags silences the progress of all; its login needs an etcd that answers at start.
//
// Four connections keep four kinds of traffic apart, because on one of them a
// large list starves the watches (etcd#15402):
//
//	watches ─ the streams of Follows       lists  ─ pages of state and keys
//	clock   ─ tiny linearizable reads      passage ─ what is passed through
//
// Each of them holds a connection to every endpoint and takes them in turn, so
// that a dead one costs at most one attempt and no call waits for a dial.
//
// A Client may be used from any number of goroutines. It starts none but those
// of gRPC's connections and, when a member may hang, one that asks all members,
// which ends before Close returns. A Follow with a stream of its own has one, which ends
// before the Follow does. Those that have caught up share a stream (mux), whose two end
// with the last of them, and before Close returns.
package etcd
