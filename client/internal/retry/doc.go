// Package retry decides when a client tries a node again: after which backoff ([Backoff],
// [Herd]), which of several nodes first ([Penalties]), and how long a node may be silent
// while this process may stand still itself ([Pulse]).
//
// Penalties and Tried are values that their owner guards. A Pulse may be used from several
// goroutines.
package retry
