// Package shard is the shard map as a value: how the key space is cut, which
// nodes serve each part, how a change of the map is made and checked, and how
// the next change is planned.
//
// Read [Map] first. Everything here is data and pure functions: no clock, no
// goroutine, no lock. A Map that others hold is never changed; every change
// returns a new one.
package shard
