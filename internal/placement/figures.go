package placement

import (
	"maps"
	"sync"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Deed is what a leader does to the shard map by itself.
type Deed string

// The deeds. Those for the load begin with "load_": a merge is decided then, and
// made once both shards are at the same nodes.
const (
	Moved            Deed = "moved"  // a shard to other nodes
	Divided          Deed = "split"  // because there are fewer than the founding asked for
	Merged           Deed = "merged" // two neighbours
	LoadSplit        Deed = "load_split"
	LoadMerge        Deed = "load_merge"
	LoadMoreReplicas Deed = "load_more_replicas"
	LoadLessReplicas Deed = "load_fewer_replicas"
	LoadUncuttable   Deed = "load_uncuttable" // nothing: it has too few keys to be split
)

// Deeds returns all there are.
func Deeds() []Deed {
	return []Deed{Moved, Divided, Merged, LoadSplit, LoadMerge, LoadMoreReplicas, LoadLessReplicas, LoadUncuttable}
}

// VoterDeeds returns what a leader does to the voters: see Figures.
func VoterDeeds() []string {
	return []string{string(learnVoter), string(addVoter), string(demoteVoter), string(removeVoter), string(stepDown)}
}

// Figures are what this node has done as the leader since it runs.
type Figures struct {
	// Deeds counts shards, by what was done with them.
	Deeds map[Deed]int64
	// Voters counts changes of the voters, by what was done.
	Voters map[string]int64
	// Waiting is what the load asks for and is not done; zero on who does not lead.
	Waiting Waiting
}

// Waiting are shards whose load asks for something that waits: for the load to
// last, or for a bound to allow it.
type Waiting struct {
	// Split, Merge and Replicas are to be cut, merged with a neighbour, and given
	// another number of replicas.
	Split, Merge, Replicas int
}

// waiting tells what of the trend is to come of a map.
func (t Trend) waiting(m *shard.Map) Waiting {
	// Neighbours are idle for ever where there are no more shards than there shall be.
	most := max(0, len(m.Shards)-max(m.Spec.Shards, 1))
	return Waiting{Split: len(t.hot), Merge: min(len(t.idle), most), Replicas: len(t.crowd)}
}

// figures counts what a leader does.
type figures struct {
	mu      sync.Mutex
	deeds   map[Deed]int64   // guarded by mu
	voters  map[string]int64 // guarded by mu
	waiting Waiting          // guarded by mu
}

func (f *figures) did(d Deed, shards int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deeds == nil {
		f.deeds = make(map[Deed]int64)
	}
	f.deeds[d] += int64(shards)
}

func (f *figures) didVoter(d voterDeed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.voters == nil {
		f.voters = make(map[string]int64)
	}
	f.voters[string(d)]++
}

func (f *figures) wait(w Waiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = w
}

// Figures returns what this node has done as the leader.
func (p *Placement) Figures() Figures {
	f := &p.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	return Figures{Deeds: maps.Clone(f.deeds), Voters: maps.Clone(f.voters), Waiting: f.waiting}
}

// rehomed counts homes that the load has changed.
func (f *figures) rehomed(m *shard.Map, homes []shard.ShardHome) {
	for _, h := range homes {
		s, _ := m.Shard(h.Shard)
		before, now := max(s.Home.Replicas, m.Spec.Replicas), max(h.Home.Replicas, m.Spec.Replicas)
		switch {
		case h.Home.Seat != s.Home.Seat:
			f.did(LoadMerge, 1)
		case now > before:
			f.did(LoadMoreReplicas, 1)
		case now < before:
			f.did(LoadLessReplicas, 1)
		}
	}
}
