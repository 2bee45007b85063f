// Package etcdapi serves etcd's v3 API from the cache, so that every etcd client can
// use this node unchanged.
//
// Read [API] first. Reads (range.go) and watches (package etcdwatch) are answered from
// memory. All other requests go to etcd unchanged, with the caller's credentials
// (pass.go). Answers equal etcd's: revisions, errors and their text, IDs, counts,
// order. docs/etcd-compatibility.md describes each RPC, and the intended differences
// from etcd.
package etcdapi
