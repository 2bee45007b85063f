// Package cachetest supports tests of the packages above the cache: a
// [Script] replaces etcd, and is too simple to be wrong; a [Node] has caches
// that follow it as far as the test lets them. Read [Script] first. Everything
// may be used from any goroutine.
package cachetest
