// Package authz applies a policy to the callers at the client port: their identities,
// rights and limits.
//
// Read [Authorizer] and [Caller] first.
//
//	handshake ─▶ presence: the connection, and the names in its certificate
//	call      ─▶ Caller: the names in its token, else those in the certificate
//	policy    ─▶ what these names may do; Reload reads it again
//
// A Caller is resolved once for each connection and token. Rights are checked when a call or a watch starts,
// not for each event. A nil [*Authorizer] and a nil [*Caller] belong to a node without a policy and grant all
// rights. [Audit] records refused requests and the actions of administrators.
//
// All types are safe for concurrent use.
package authz
