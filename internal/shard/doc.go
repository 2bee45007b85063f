// Package shard is the shard map as a value: how the key space is cut, which nodes
// serve each part, and how a change of the map is made, checked and encoded.
//
// Read [Map] first. Everything here is data and pure functions: no clock, no
// goroutine, no lock. A shared Map is never changed; every change returns a new
// Map. The planner (internal/control/planner) decides on the changes.
package shard
