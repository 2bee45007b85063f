// Package retry decides when a client retries a node: after which backoff ([Backoff],
// [Herd]), which of several nodes first ([Penalties]), and how long a node may be silent,
// without the time in which this process does not run ([Pulse]).
//
// The owners of Penalties and Tried guard them. A Pulse is safe for use by several goroutines.
package retry
