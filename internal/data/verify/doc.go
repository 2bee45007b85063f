// Package verify compares the copies of shards with each other and with etcd, and has
// a wrong copy of this node reloaded.
//
// Read [Verifier] first. All its methods may be called from any goroutine.
package verify
