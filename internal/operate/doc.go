// Package operate is what an operator asks of the shard map, as values: whether
// it makes sense, what it comes to, and how far it has come.
//
// Read [Order] and [Judge] first. A [Request] becomes a change of the map that the
// voters agree on, and a [Plan]: the planner's own way from the map as it is to
// one where nothing is left to do. So what a dry run shows is what happens, as long
// as nothing else does.
//
// Everything here is data and pure functions.
package operate
