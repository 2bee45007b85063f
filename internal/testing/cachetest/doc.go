// Package cachetest supports tests of the packages above the cache: a
// [Script] that stands for etcd, too simple to be wrong, and a [Node] whose
// caches follow it as far as the test lets them. Read [Script] first. All of
// it may be used from any goroutine.
package cachetest
