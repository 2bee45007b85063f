// Package etcdauth identifies callers and checks their read rights while etcd's authentication is on: reads
// served from memory do not reach etcd, which would check them.
//
// Read [Checker.Caller] and [Checker.MayRead] first. A Checker keeps two bounded
// tables, and etcd can revoke both:
//
//	read rights of users ─ an etcdroles.Table, reloaded after a change of etcd's users
//	                       or roles (rights.go)
//	user of each token   ─ learned when etcd issues the token (learn.go), from other
//	                       nodes, or from the token itself; etcd has to accept the
//	                       token before its first use and then once a minute (caller.go)
//
// In doubt, a read is denied. While etcd does not answer, its last answers apply.
//
// A Checker is safe for concurrent use. Its only goroutines are queries to other nodes,
// which end before the call does.
package etcdauth
