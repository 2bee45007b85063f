// Package membership knows the nodes of the cluster: which are alive, suspect, dead
// or has left, and what each says about itself. It is the only importer of
// hashicorp/memberlist; other packages see [shard.Member] values.
//
// Read [Membership] first. Signal and data are apart: [Membership.Changes]
// gives a signal that something is different, [Membership.Members] the data,
// at any time and without waiting. All methods may be called concurrently.
//
// Gossip is a hint. Two nodes may see different members for a while, a live
// one may be called suspect, and even dead. Nothing that must be right may
// depend on it.
//
// How the parts lie:
//
//	Config ─▶ Membership.Run ─▶ memberlist ◀─▶ other nodes (Transport)
//	             │  │  │            ▲
//	             │  │  └ announce ──┤  our metadata again, leave
//	             │  └─── join ──────┤  addresses, again and again
//	             └────── watch ─────┘  observer asks for the view,
//	                        ▼          roster works out what changed
//	                     Members, Changes, the log
//
// memberlist's Node.State is not kept up to date, and its events do not tell a
// suspect node from a live one, nor a dead one from one that left. What does
// carry the states is the list that one node gives another that joins. So the
// observer, a second memberlist that is never part of any cluster, asks ours
// for that list over an in-memory pipe. That costs CPU time in proportion to the
// members, so it asks when memberlist has changed something, see quiet, and seldom
// otherwise.
package membership
