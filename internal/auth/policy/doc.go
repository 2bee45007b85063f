// Package policy is an authorization policy as a value, parsed from an operator's file.
//
// Read [Parse] and [Policy.Identity] first. A caller has proven names ([Names]: those of a certificate, or the
// subject of a token). The entries of the policy that match any of them give roles, and the rules of roles
// allow verbs on keys. Everything else is denied.
//
//	names ─ identities ─▶ roles ─▶ rules: verbs × keys
//
// The package has only data and pure functions; a [Policy], an [Identity] and [Keys] never change and may be
// used from any goroutine.
package policy
