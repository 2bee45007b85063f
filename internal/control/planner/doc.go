// Package planner decides where the shards of a map are, and how the map changes.
//
// Read [Plan] first. A shard's home follows from the map and the members alone:
// rendezvous hashing of the shard's seat with the names of the nodes chooses as many
// nodes as the shard wants replicas (score.go), one in each zone before two in any.
// Nodes of greater weight are chosen more often. Pins, which an operator sets, come
// first. Among the chosen nodes, owners are spread evenly (owners.go). A plan takes a
// shard there in steps, each of which keeps a loaded copy. [Cuts] divides the keys into
// shards; [Together] and [Merges] make one shard of neighbours.
//
// Everything here is data and pure functions: no clock, goroutine, logger or I/O, which
// house_test.go checks. A nil or zero value is that of a new leader.
package planner
