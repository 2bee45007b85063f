// Package netlimit bounds the connections of a port.
//
// Read [Limit] first. A connection is pending until its server clears its
// deadline, as servers do after the handshake of a connection, and
// settled from then on. The two are bounded apart: half-open
// connections take no place of others, and when there are too many of them, the
// oldest of the address that has the most ends: a client that floods the port
// pushes out its own.
//
// [Turns] bound the CPU of handshakes, and Config.HandshakesPerSecond those of one address.
//
// All methods may be called concurrently.
package netlimit
