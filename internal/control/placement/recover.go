package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// generationStep is the least difference between a new generation and the version of
// the map that it begins with; a random number below it is added. No group makes so
// many changes, so the maps of a newer generation have greater versions, and two
// groups that begin at the same time differ.
const generationStep = 1 << 32

var (
	// ErrNeverVotes reports that a node cannot be a voter.
	ErrNeverVotes = fmt.Errorf("%w: the node was started without --bootstrap-expect and never votes", shard.ErrRefused)
	// ErrLed reports that the voters need no recovery.
	ErrLed = fmt.Errorf("%w: the voters have a leader", shard.ErrRefused)
)

// Recover makes this node the only voter, with the map that it has, and returns the
// version of the map that the new raft group begins with. It is for voters that have lost
// their majority permanently, which the caller must have checked. It fails with a
// [shard.StaleError] when the map has another version than ifVersion.
//
// The new group has a new generation, which the map carries to all nodes
// ([shard.Map.Recover]). A node that receives it sets its raft log aside and waits until
// the new leader adds it. Voters of different generations do not talk to each other, so
// lost voters that return can neither join the new group with their logs nor continue
// beside it once they reach any of its nodes. If two parts of a network each begin a
// group, the group with the greater generation survives.
//
// The recovery is complete once the new log is on the disk, even if the node then crashes.
func (p *Placement) Recover(ifVersion uint64) (version uint64, err error) {
	p.recovering.Lock()
	defer p.recovering.Unlock()
	m := p.Map()
	switch {
	case p.cfg.BootstrapExpect == 0:
		return 0, ErrNeverVotes
	case m == nil:
		return 0, shard.ErrNotFounded
	case m.Version != ifVersion:
		return 0, &shard.StaleError{IfVersion: ifVersion, Current: m.Version}
	}
	if _, led := p.Leader(); led {
		return 0, ErrLed
	}
	next := m.Recover(m.Version + generationStep + rand.Uint64N(generationStep))
	err = p.logs.create(next.Generation, newRaftLogger(p.log), func(s *storage) error { return p.beginLog(s, next) })
	if err != nil {
		return 0, fmt.Errorf("recover the voters: %w", err)
	}
	p.log.Warn("voters recovered: this node is the only voter, and adds others", "generation", next.Generation, "from_version", m.Version)
	return next.Version, p.maps.show(next)
}

// keyTerm is raft's key of its term.
const keyTerm = "CurrentTerm"

// beginLog fills an empty log for a group which has this node as its only voter, and
// has agreed on the map.
func (p *Placement) beginLog(s *storage, m *shard.Map) error {
	const index, term = 1, 1
	if err := errors.Join(s.setClusterID(m.ClusterID), s.stable.SetUint64([]byte(keyTerm), term)); err != nil {
		return fmt.Errorf("begin a raft log: %w", err)
	}
	self := raft.Server{ID: p.self, Address: raft.ServerAddress(p.cfg.Address)}
	_, trans := raft.NewInmemTransport(self.Address) // it encodes the address
	sink, err := s.snaps.Create(raft.SnapshotVersionMax, index, term, raft.Configuration{Servers: []raft.Server{self}}, index, trans)
	if err != nil {
		return fmt.Errorf("begin a raft log: %w", err)
	}
	return (&fsmSnapshot{m: m}).Persist(sink)
}
