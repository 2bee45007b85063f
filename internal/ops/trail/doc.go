// Package trail remembers the way of the newest revisions through a node: when
// each was received, applied and sent on. Operators ask for it afterwards, so it
// is always kept; it costs a batch some stores, and a turn of a connection one
// look at the clock, whatever the number of its watches. Read [Trail] first.
//
// It holds revisions, shards and times, and never a key or a value. All times are
// those of this node's clock. All methods may be called from any goroutine, but
// for those of [Turn].
package trail
