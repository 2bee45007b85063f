// Package planner decides which nodes have the shards of a map, when shards move, how load changes the
// map, and which nodes vote.
//
// Read [Rules] first: the conditions for a move. The nodes on which a shard belongs follow from the map
// and the members alone. Rendezvous hashing of the shard's seat with the names of the nodes ([Plan],
// score.go) chooses as many nodes as the shard should have replicas, from as many zones as possible.
// Nodes of greater weight are chosen more often. Pins, which an operator sets, come first. Owners are
// spread evenly over the chosen nodes, or over as few of them as the specification asks for
// (owners.go). A plan moves a shard to these nodes in steps, each of which keeps a loaded copy.
// [Rules.Decide] makes a step once the members and the reports of the nodes leave no doubt about it.
// [Balance.Decide] splits and merges shards and changes their number of replicas by load. [Voters.Next]
// and [Bootstrap.Decide] do the same for raft's voters.
//
// Everything here is data and pure functions: no clock, goroutine, logger or I/O, which house_test.go
// checks. Package placement supplies the state and carries out the decisions.
package planner
