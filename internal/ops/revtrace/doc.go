// Package revtrace records when a node received, applied and sent each of the newest revisions. Operators ask
// for a trace afterwards, so tracing is always on. It costs a few stores for each batch, and one clock reading
// for each turn of a connection, independent of the number of its watches. Read [Trace] first.
//
// A trace has revisions, shards and times of this node's clock, never keys or values.
// All types except [Turn] are safe for concurrent use.
package revtrace
