package shard

// recoveredStep is how far a recovery advances shard IDs and epochs. The lost voters
// may have agreed on changes that no survivor has; their IDs and epochs are not used
// again.
const recoveredStep = 1 << 16

// Recover returns the map that a new raft group begins with, after the voters have
// lost their majority permanently. It places every shard as m does.
//
// The generation must be greater than m.Version, and than every version that the lost
// voters may have agreed on: nodes and clients take the map with the greatest version,
// which must be that of the newest group.
func (m *Map) Recover(generation uint64) *Map {
	next := m.Clone()
	next.Generation, next.Version = generation, generation
	next.Finalized = max(next.Finalized, LevelSettings) // older software cannot read the map
	next.NextID += recoveredStep
	for i := range next.Shards {
		next.Shards[i].Epoch += recoveredStep
	}
	return next
}
