// Package callers checks the callers of the native and the admin API: by the policy, and
// by the rights of etcd's users. It converts etcd's errors into errors of these APIs.
//
// A Checker may be used from any goroutine.
package callers
