// Package placement agrees on the shard map. It is the only package that imports raft.
//
// Read [Placement] first. Some nodes are voters (see Config.BootstrapExpect):
// they keep a raft log of [shard.Command]s and the map that comes of it. All
// others take the map from any node's stream ([Placement.Observe]).
//
//	gossip ──▶ bootstrap ─▶ raft ─▶ fsm ─▶ maps ──▶ Map, Watch
//	   │                     ▲               ▲  └──▶ map file
//	   └─▶ leader: found, move, split      Observe, map file (at start)
//
// Every node starts from the last map it knew, kept in a file of its own. So
// raft without a quorum stops changes of the map and never the data.
//
// All exported methods may be called at any time from any goroutine, also
// before Run and after it.
package placement
