// Package shardmap has the shard map and the members as a client knows them: a value that
// applies the messages of nodes ([Topology.With]), computes the part that a client needs
// ([Topology.Need]), and ranks the nodes for a range ([Topology.Candidates]).
//
// Read [Topology] first. Values are immutable, and safe for use by several goroutines.
package shardmap

import (
	"cmp"
	"hash/fnv"
	"slices"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Member is a node of the cluster.
type Member struct {
	Name, Address, Zone string
	State               pb.MemberState
	Draining            bool
}

// Gone reports whether the node cannot serve.
func (m Member) Gone() bool {
	return m.State == pb.MemberState_MEMBER_STATE_DEAD || m.State == pb.MemberState_MEMBER_STATE_LEFT
}

// Shard is one range of keys and the names of the nodes that serve it; the first is the
// owner.
type Shard struct {
	ID       uint64
	Keys     keyrange.Range
	Replicas []string
}

// Topology is a shard map and the members at one time. It is immutable; nil: nothing is
// known yet.
type Topology struct {
	// ClusterID is the cluster of the map, Version the version of the map.
	ClusterID string
	Version   uint64
	// Shards are ordered by key and disjoint, without those that the client does not follow.
	Shards  []Shard
	Members []Member

	// all: Shards is complete. Else it has the shards with keys of the known ranges,
	// and perhaps others.
	all   bool
	known []keyrange.Range // ordered, disjoint

	// from is the address of the node that sent the members, of version membersVersion.
	from           string
	membersVersion uint64
}

// Request returns the request for the updates that t does not have.
func (t *Topology) Request(addr string, in Interest) *pb.WatchShardMapRequest {
	r := new(pb.WatchShardMapRequest)
	if t != nil {
		r.KnownVersion, r.ClusterId = t.Version, t.ClusterID
		if t.from == addr {
			r.KnownMembers = t.membersVersion
		}
	}
	if !in.All {
		r.OnlyRanges, r.Ranges = true, keyrange.Message(in.Ranges)
		if r.GetKnownVersion() > 0 {
			r.NewRanges = keyrange.Message(in.fresh)
		}
	}
	return r
}

// With returns the topology after a message from the node at addr for an interest. An
// older map than the known one is ignored: a node that was suspended may still have it.
func (t *Topology) With(addr string, in Interest, r *pb.WatchShardMapResponse) (*Topology, error) {
	next := new(Topology)
	if t != nil {
		*next = *t
	}
	if r.GetAllMembers() || len(r.GetMembers()) > 0 || len(r.GetRemovedMembers()) > 0 {
		if !r.GetAllMembers() && next.from != addr {
			return nil, outcome.ErrProtocol
		}
		next.Members = merged(next.Members, r)
		next.from, next.membersVersion = addr, r.GetMembersVersion()
	}
	m := r.GetMap()
	switch {
	case m == nil || m.GetClusterId() == next.ClusterID && m.GetVersion() < next.Version:
		return next, nil
	case r.GetFromVersion() == 0:
		next.Shards, next.all = shardsFrom(m.GetShards()), r.GetAllShards()
	case m.GetClusterId() != next.ClusterID || r.GetFromVersion() != next.Version:
		return nil, outcome.ErrProtocol
	default:
		next.Shards = changed(next.Shards, r)
	}
	next.ClusterID, next.Version = m.GetClusterId(), m.GetVersion()
	next.known = in.Ranges
	return next, nil
}

// merged returns the members after a change, ordered by name.
func merged(members []Member, r *pb.WatchShardMapResponse) []Member {
	if r.GetAllMembers() {
		return membersFrom(r.GetMembers())
	}
	stale := make(map[string]bool)
	for _, name := range r.GetRemovedMembers() {
		stale[name] = true
	}
	for _, m := range r.GetMembers() {
		stale[m.GetName()] = true
	}
	out := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return stale[m.Name] })
	out = append(out, membersFrom(r.GetMembers())...)
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// changed returns the shards after a change, ordered by key.
func changed(shards []Shard, r *pb.WatchShardMapResponse) []Shard {
	stale := make(map[uint64]bool)
	for _, id := range r.GetRemovedShards() {
		stale[id] = true
	}
	for _, s := range r.GetMap().GetShards() {
		stale[s.GetId()] = true
	}
	out := slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return stale[s.ID] })
	out = append(out, shardsFrom(r.GetMap().GetShards())...)
	slices.SortFunc(out, func(a, b Shard) int { return cmp.Compare(a.Keys.Start, b.Keys.Start) })
	return out
}

// Preference decides between nodes that could serve a client equally well.
type Preference struct {
	Zone string // the client's; "": not known
	Seed string // gives each client its own order
}

// Candidates returns the addresses of the members that may serve r, best first: those of
// the client's zone with any of its shards, then those with most of its shards, and among
// equals in an order that depends on the seed, so that clients spread and each uses few
// nodes. Members that are suspect or drain come last; those that are gone are left out.
func (t *Topology) Candidates(r keyrange.Range, p Preference) []string {
	if t == nil {
		return nil
	}
	cs := t.rank(r, p)
	addrs := make([]string, len(cs))
	for i, c := range cs {
		addrs[i] = c.addr
	}
	return addrs
}

// Home returns the address of the first candidate for r; empty if it is suspect or drains.
func (t *Topology) Home(r keyrange.Range, p Preference) string {
	if cs := t.rank(r, p); len(cs) > 0 && cs[0].worse == 0 {
		return cs[0].addr
	}
	return ""
}

// candidate is a member that may serve a range.
type candidate struct {
	addr             string
	worse, far, have int
	score            uint64
}

// rank returns the candidates for r, best first.
func (t *Topology) rank(r keyrange.Range, p Preference) []candidate {
	has := map[string]int{}
	for _, s := range t.Shards {
		if s.Keys.Overlaps(r) {
			for _, name := range s.Replicas {
				has[name]++
			}
		}
	}
	var cs []candidate
	for _, m := range t.Members {
		if m.Address == "" || m.Gone() {
			continue
		}
		c := candidate{addr: m.Address, have: has[m.Name], far: 1, score: Score(p.Seed, m.Name)}
		if p.Zone != "" && m.Zone == p.Zone && c.have > 0 {
			c.far = 0
		}
		if m.Draining || m.State == pb.MemberState_MEMBER_STATE_SUSPECT {
			c.worse = 1
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.worse, b.worse), cmp.Compare(a.far, b.far), cmp.Compare(b.have, a.have), cmp.Compare(b.score, a.score))
	})
	return cs
}

// Score is rendezvous hashing: the order of the names by score is random for every
// seed, and does not change when other names are added or removed.
func Score(seed, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // FNV alone leaves similar names similar: mix as splitmix64 does
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func shardsFrom(shards []*pb.Shard) []Shard {
	var out []Shard
	for _, s := range shards {
		start, end := keyrange.Decode(s.GetKey(), s.GetRangeEnd())
		out = append(out, Shard{ID: s.GetId(), Keys: keyrange.Range{Start: start, End: end}, Replicas: s.GetReplicas()})
	}
	return out
}

func membersFrom(ms []*pb.Member) []Member {
	out := make([]Member, 0, len(ms))
	for _, m := range ms {
		out = append(out, Member{Name: m.GetName(), Address: m.GetClientAddress(), Zone: m.GetZone(), State: m.GetState(), Draining: m.GetDraining()})
	}
	return out
}
