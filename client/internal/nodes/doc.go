// Package nodes keeps the connections of a client to nodes, and their watch streams. Many
// watches share a stream. A stream that breaks or falls silent returns each of its watches to
// the client, and its node is avoided for a while. Streams of other calls have no signs of
// life: a health check shows whether their node still answers ([Pool.Probed]).
//
// Read [Pool] first, then [Stream]. Both are safe for use by several goroutines. Locks
// are taken in this order: the watch's own, Pool.mu, Stream.mu.
package nodes
