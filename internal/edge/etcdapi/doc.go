// Package etcdapi serves etcd's v3 API from the cache, so that every etcd client is
// also a client of this node.
//
// Read [API] first. Reads (range.go) and watches (package etcdwatch) are answered from
// memory. All other requests go to etcd unchanged, with the caller's credentials
// (pass.go). Answers equal etcd's: revisions, errors and their text, IDs, counts,
// orders. docs/etcd-compatibility.md lists what each RPC does and where it differs on
// purpose.
package etcdapi
