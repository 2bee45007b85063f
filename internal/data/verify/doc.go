// Package verify compares the copies of shards with each other and with etcd, and
// reloads wrong copies of this node.
//
// Read [Verifier] first. All its methods may be called from any goroutine.
package verify
