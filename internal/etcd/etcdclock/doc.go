// Package etcdclock reads etcd's clock: its revision, its compact revision, and whether
// it still has the served history.
//
// Read [Reader] first. [Reader.Clock] reads the revision, [Reader.CheckRevision] checks one, and
// [Reader.Look] compares etcd's members with the adopted lineage.
//
// A Reader may be used from any number of goroutines. Callers share reads. Each read
// runs in its own goroutine and ends with its last caller.
package etcdclock
