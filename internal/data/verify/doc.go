// Package verify compares the copies of shards with each other and with etcd, and has
// a copy of this node that is wrong loaded anew.
//
// Read [Verifier] first. All its methods may be called from any goroutine.
package verify
