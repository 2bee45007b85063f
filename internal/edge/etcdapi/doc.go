// Package etcdapi is etcd's own v3 API, served from the cache: the second door
// to the same house, so that every etcd client is a client.
//
// Read [Door] first. Reads (range.go) and watches (package etcdwatch) are
// answered from memory, everything else (pass.go) goes to etcd as it came, with
// the caller's credentials. Where it answers, it is exactly etcd: revisions,
// errors and their text, IDs, counts, orders. docs/etcd-compatibility.md says
// what each RPC does and where it differs on purpose.
package etcdapi
