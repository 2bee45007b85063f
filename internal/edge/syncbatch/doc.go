// Package syncbatch builds the batches that bring a watch of the native API up to date
// when the window of its shards has evicted its position: a delta with the changed keys,
// or the whole state.
//
// Read [Queue] first. Watches join it with the [Key] of their batch, are woken when the [Batch] is
// ready, take its parts one by one, and leave. Watches that need the same batch share it. All
// methods may be called from any goroutine.
package syncbatch
