// Package membership tracks the nodes of the cluster: which are alive, suspect, dead
// or have left, and the metadata that each announces. It is the only importer of
// hashicorp/memberlist; other packages see [shard.Member] values.
//
// Read [Membership] first. Signal and data are separate: [Membership.Changes]
// signals a change, [Membership.Members] returns the data at any time without
// waiting. All methods may be called concurrently.
//
// Gossip is a hint. Two nodes may see different members for a while, and a live
// node may be reported as suspect, or even as dead. Correctness must never depend
// on gossip.
//
// The parts:
//
//	Config ─▶ Membership.Run ─▶ memberlist ◀─▶ other nodes (Transport)
//	             │  │  │            ▲
//	             │  │  └ announce ──┤  our metadata again, leave
//	             │  └─── join ──────┤  addresses, repeatedly
//	             └────── watch ─────┘  observer asks for the view,
//	                        ▼          roster finds the changes
//	                     Members, Changes, the log
//
// memberlist's Node.State is not kept up to date, and its events do not tell a
// suspect node from a live one, nor a dead one from one that left. Only the list that
// a node sends to a joining node has the states. So the observer, a second memberlist
// that is never part of any cluster, asks ours for that list over an in-memory pipe.
// That costs CPU time in proportion to the members, so it asks when memberlist has a
// change, see quiet, and seldom otherwise.
package membership
