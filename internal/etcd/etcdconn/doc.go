// Package etcdconn connects to one etcd cluster: endpoints, login, and calls that go from
// one endpoint to the next until one answers.
//
// Read [Conns] first. [Conns.Call] makes a small call, [Conns.Check] checks versions,
// [Conns.Grants] and [Conns.Confirm] read etcd's users and tokens, and [Conns.ProxyConn]
// forwards calls of clients.
//
// Four connections separate four kinds of traffic, because on a shared connection a
// large list starves the watches (etcd#15402):
//
//	watches ─ the streams of Follows       lists ─ pages of state and keys, and etcd's log
//	reads   ─ small linearizable reads     proxy ─ forwarded calls of clients
//
// Each of them connects to every endpoint and uses the endpoints in turn, so a dead
// endpoint costs at most one attempt and no call waits for a dial.
//
// Conns may be used from any number of goroutines. They start goroutines only for
// gRPC's connections and, when a member may hang, one that asks all members and ends
// before Close returns.
package etcdconn
