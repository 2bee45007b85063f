// Package access applies a policy to the callers at the client port: their identities,
// rights and limits.
//
// Read [Access] and [Caller] first.
//
//	handshake ─▶ presence: the connection, and the names of its certificate
//	call      ─▶ Caller: the names of its token, else of the certificate
//	policy    ─▶ what those may do; read again by Reload
//
// A Caller is found once for a connection and token, and decides at the
// beginning of calls and watches: events pass none of this. A nil [*Access] and
// a nil [*Caller] are those of a node without a policy, with all rights.
// [Audit] writes down what was refused, and what administrators did.
//
// Everything here may be used from any goroutine.
package access
