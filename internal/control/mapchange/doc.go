// Package mapchange checks and plans the changes of the shard map that operators
// request: splits, merges, moves, drains, settings, feature levels, and a recovery of
// the voters.
//
// Read [Order] and [NewPlan] first. A [Request] becomes a change of the map that the
// voters agree on, and a [Plan]: the steps that the planner takes from the current map
// until no work is left. A dry run therefore shows the real steps, as long as no other
// change intervenes.
//
// Everything here is data and pure functions; house_test.go checks the imports.
package mapchange
