// Package policy is an authorization policy as a value: an operator's file read,
// checked and asked.
//
// Read [Parse] and [Policy.Identity] first. A caller has names that were proved ([Names]: those of
// a certificate, or the subject of a token); the entries of the policy that match any of them give
// roles; a role's rules let verbs be used on keys. Everything else is denied.
//
//	names ─ identities ─▶ roles ─▶ rules: verbs × keys
//
// Everything here is data and pure functions; a [Policy], an [Identity] and
// [Keys] never change and may be used from any goroutine.
package policy
