// Package devetcd runs an etcd of one member inside this process, for
// `cachenode dev` and for tests. It is not for data that matters.
//
// Read [Run]: it works until its context ends, and has stopped etcd when it
// returns.
package devetcd
