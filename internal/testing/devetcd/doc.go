// Package devetcd runs an etcd of one member inside this process, for
// `cachenode dev` and for tests. Do not use it for production data.
//
// Read [Run] first: it serves until its context ends, and has stopped etcd when
// it returns.
package devetcd
