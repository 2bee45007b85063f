// Package planner decides where the shards of a map are, when they move, how load changes
// the map, and which nodes vote.
//
// Read [Rules] first: how a shard comes to its nodes. The home of a shard follows from
// the map and the members alone. Rendezvous hashing of the shard's seat with the names of
// the nodes ([Plan], score.go) chooses as many nodes as the shard wants replicas, from as
// many zones as possible. Nodes of greater weight are chosen more often. Pins, which an
// operator sets, come first. Among the chosen nodes, owners are spread evenly, over as few nodes as the
// specification asks for (owners.go).
// A plan takes a shard home in steps, each of which keeps a loaded copy. [Rules.Decide]
// makes a step once the members and the reports of the nodes leave no doubt about it.
// [Balance.Decide] splits and merges shards and changes their number of replicas by load.
// [Voters.Next] and [Bootstrap.Decide] do the same for raft's voters.
//
// Everything here is data and pure functions: no clock, goroutine, logger or I/O, which
// house_test.go checks. Package placement supplies the state and carries decisions out.
package planner
