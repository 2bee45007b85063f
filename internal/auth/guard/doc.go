// Package guard identifies, while etcd's authentication is on, the user of a call and the
// user's read rights. etcd does not see reads that are served from memory: this package
// checks them in its place.
//
// Read [Guard.Caller] and [Guard.MayRead] first. Two things are kept, both
// bounded and both etcd's to take back:
//
//	what users may read ─ a rights.Table, read again when etcd's users or roles
//	                      have changed (rights.go)
//	whose a token is    ─ learnt when the token is given out (learn.go), asked of
//	                      the other nodes, or read off the token; in each case
//	                      etcd has to say that it takes the token, at first and
//	                      then once a minute (caller.go)
//
// When in doubt the answer is no. While etcd is away what it said last holds.
//
// A Guard may be used from any number of goroutines. It starts none but those
// that ask other nodes, which end before the call does.
package guard
