// Package nodes keeps the connections of a client to nodes, and the streams of watches on
// them. Many watches share a stream; a stream that breaks or falls silent hands each of
// them back, and its node is avoided for a while. The streams of other calls have no signs of
// life: their node is asked whether it is there ([Pool.Probed]).
//
// Read [Pool] first, then [Stream]. Both may be used from several goroutines. Locks are
// taken in this order: the watch's own, Pool.mu, Stream.mu.
package nodes
