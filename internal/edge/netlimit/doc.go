// Package netlimit bounds the connections of a port.
//
// Read [Limit] first. A connection is pending until its server clears its
// deadline, as servers do after the handshake, and settled from then on. Pending and
// settled connections have separate bounds, so that half-open connections do not displace
// others. When too many are pending, the limit closes the oldest of the address
// with the most pending connections: a client that floods the port displaces only its own.
//
// [Turns] bound the CPU of handshakes, and Config.HandshakesPerSecond bounds the handshakes of one address.
//
// All methods may be called concurrently.
package netlimit
