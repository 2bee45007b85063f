// Package callers checks the callers of the native and the admin API: by the policy, and
// by the rights that etcd gives its users. Errors of etcd's become those of our own API.
//
// A Checker may be used from any goroutine.
package callers
