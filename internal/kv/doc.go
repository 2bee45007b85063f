// Package kv defines the basic types of all other packages: revisions, ranges,
// key/values, events and batches.
//
// Read [Batch] first. All values are immutable once built and may be shared
// between goroutines without a lock. Nothing here has a clock, a goroutine or
// a logger.
//
// A [KeyValue] keeps the bytes of its wire form, etcd's mvccpb.KeyValue, and its key and value are
// slices of them: one encoding serves the state, the window and every stream of both APIs.
package kv
