// Package lineage restricts the served data to one history of etcd, and begins the next
// lineage after a restore.
//
// Read [Keeper] first, and docs/adr/0012-lineage.md. All its methods may be called from
// any goroutine.
package lineage
