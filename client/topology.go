package client

import (
	"cmp"
	"hash/fnv"
	"slices"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// MemberState is what gossip thinks of a member. The values are those of the
// API.
type MemberState int

// The states of a member.
const (
	MemberAlive   MemberState = 1
	MemberSuspect MemberState = 2
	MemberDead    MemberState = 3
	MemberLeft    MemberState = 4
)

// String returns the state in small letters.
func (s MemberState) String() string {
	switch s {
	case MemberAlive:
		return "alive"
	case MemberSuspect:
		return "suspect"
	case MemberDead:
		return "dead"
	case MemberLeft:
		return "left"
	}
	return "unknown"
}

// Member is one node of the cluster.
type Member struct {
	Name, UUID string
	// ClientAddress, PeerAddress and HTTPAddress are host:port.
	ClientAddress, PeerAddress, HTTPAddress string
	State                                   MemberState
	Voter, Leader, Draining                 bool
	Zone, Version                           string
	// FeatureLevel is the newest feature level that the node's software understands;
	// 0: not known.
	FeatureLevel int
	// Weight is how many shards the node is to have beside others: with 2, twice as
	// many as with 1. 0: its software does not know weights.
	Weight int
}

// Shard is one range of keys and the nodes that serve it.
type Shard struct {
	ID    uint64
	Range Range
	Epoch uint64
	// Replicas are names of members; the first is the owner.
	Replicas []string
	// Pins are those that an operator wants to have it, in order of preference.
	Pins []string
	// WantedReplicas is how many should have it; 0: as many as ShardMap.Replicas
	// says.
	WantedReplicas int
	// Joins: it is about to become one with a neighbour.
	Joins bool
}

// Owner returns the name of the node that watches etcd for the shard; empty
// when there is none.
func (s Shard) Owner() string {
	if len(s.Replicas) == 0 {
		return ""
	}
	return s.Replicas[0]
}

// ShardMap is how the key space is cut and who serves what.
type ShardMap struct {
	Lineage, Version uint64
	ClusterID        string
	// Origin is how the lineage came about; nil for the first.
	Origin *LineageOrigin
	// Shards are ordered by key and disjoint.
	Shards []Shard
	// Replicas is how many nodes should have each shard.
	Replicas int
	// Drained are the names of nodes that an operator has drained: they are given
	// no shards.
	Drained []string
	// FeatureLevel is the one that is finalized: features of newer levels are not used
	// yet. 0: the node's software is from before levels were finalized.
	FeatureLevel int
	// Generation names the group of voters that changes the map: 0 for the one that
	// founded the cluster; else the version that the map had when the voters were
	// recovered last, after a majority of them was lost.
	Generation uint64
}

// topology is a map and the members at one time. It is immutable.
type topology struct {
	shards  ShardMap // without shards that the client does not follow
	members []Member

	// all: shards has all shards. Else it has those with keys of the known ranges, and
	// perhaps others.
	all   bool
	known []Range // ordered, disjoint

	// from is the address of the node that has sent the members, of that version.
	from           string
	membersVersion uint64
}

// request asks a node for what t does not have.
func (t *topology) request(addr string, in interest) *pb.WatchShardMapRequest {
	r := new(pb.WatchShardMapRequest)
	if t != nil {
		r.KnownVersion, r.ClusterId = t.shards.Version, t.shards.ClusterID
		if t.from == addr {
			r.KnownMembers = t.membersVersion
		}
	}
	if !in.all {
		r.OnlyRanges, r.Ranges = true, keyRanges(in.ranges)
		if r.GetKnownVersion() > 0 {
			r.NewRanges = keyRanges(in.fresh)
		}
	}
	return r
}

// with returns the topology with what the node at addr has sent of an interest. A map
// that is older than the one known is passed over: a node that was asleep may still
// have it.
func (t *topology) with(addr string, in interest, r *pb.WatchShardMapResponse) (*topology, error) {
	next := new(topology)
	if t != nil {
		*next = *t
	}
	if r.GetAllMembers() || len(r.GetMembers()) > 0 || len(r.GetRemovedMembers()) > 0 {
		if !r.GetAllMembers() && next.from != addr {
			return nil, errProtocol
		}
		next.members = merged(next.members, r)
		next.from, next.membersVersion = addr, r.GetMembersVersion()
	}
	m := r.GetMap()
	switch {
	case m == nil || m.GetClusterId() == next.shards.ClusterID && m.GetVersion() < next.shards.Version:
		return next, nil
	case r.GetFromVersion() == 0:
		next.shards, next.all = shardMapFrom(m), r.GetAllShards()
	case m.GetClusterId() != next.shards.ClusterID || r.GetFromVersion() != next.shards.Version:
		return nil, errProtocol
	default:
		shards := changed(next.shards.Shards, r)
		next.shards = shardMapFrom(m)
		next.shards.Shards = shards
	}
	next.known = in.ranges
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
	slices.SortFunc(out, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	return out
}

// candidates returns the addresses of the members that may serve r, best
// first: those that have most of its shards before others, and among equals
// an order of its own for every seed, so that clients spread and each keeps to
// few nodes. Members that are suspect or drain come last; those that are gone
// not at all.
func (t *topology) candidates(r Range, seed string) []string {
	if t == nil {
		return nil
	}
	cs := t.rank(r, seed)
	addrs := make([]string, len(cs))
	for i, c := range cs {
		addrs[i] = c.addr
	}
	return addrs
}

// home returns the address of the first candidate for r; empty when that is
// suspect or drains.
func (t *topology) home(r Range, seed string) string {
	if cs := t.rank(r, seed); len(cs) > 0 && cs[0].worse == 0 {
		return cs[0].addr
	}
	return ""
}

// candidate is a member that may serve a range.
type candidate struct {
	addr        string
	worse, have int
	score       uint64
}

// rank returns the candidates for r, best first.
func (t *topology) rank(r Range, seed string) []candidate {
	has := map[string]int{}
	for _, s := range t.shards.Shards {
		if s.Range.overlaps(r) {
			for _, name := range s.Replicas {
				has[name]++
			}
		}
	}
	var cs []candidate
	for _, m := range t.members {
		if m.ClientAddress == "" || m.State == MemberDead || m.State == MemberLeft {
			continue
		}
		c := candidate{addr: m.ClientAddress, have: has[m.Name], score: score(seed, m.Name)}
		if m.Draining || m.State == MemberSuspect {
			c.worse = 1
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.worse, b.worse), cmp.Compare(b.have, a.have), cmp.Compare(b.score, a.score))
	})
	return cs
}

// score is rendezvous hashing: the order of the names by score is random for
// every seed, and does not change when other names come or go.
func score(seed, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // FNV alone leaves similar names similar: mix as splitmix64 does
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func shardMapFrom(m *pb.ShardMap) ShardMap {
	return ShardMap{
		Lineage: m.GetLineage(), Version: m.GetVersion(), ClusterID: m.GetClusterId(), Origin: originFrom(m.GetOrigin()),
		Shards: shardsFrom(m.GetShards()), Replicas: int(m.GetReplicas()), Drained: m.GetDrained(),
		FeatureLevel: int(m.GetFeatureLevel()), Generation: m.GetGeneration(),
	}
}

func shardsFrom(shards []*pb.Shard) []Shard {
	var out []Shard
	for _, s := range shards {
		out = append(out, Shard{
			ID: s.GetId(), Range: rangeFromWire(s.GetKey(), s.GetRangeEnd()), Epoch: s.GetEpoch(), Replicas: s.GetReplicas(),
			Pins: s.GetPins(), WantedReplicas: int(s.GetWantedReplicas()), Joins: s.GetJoins(),
		})
	}
	return out
}

func membersFrom(ms []*pb.Member) []Member {
	out := make([]Member, 0, len(ms))
	for _, m := range ms {
		out = append(out, memberFrom(m))
	}
	return out
}

func memberFrom(m *pb.Member) Member {
	return Member{
		Name: m.GetName(), UUID: m.GetUuid(),
		ClientAddress: m.GetClientAddress(), PeerAddress: m.GetPeerAddress(), HTTPAddress: m.GetHttpAddress(),
		State: MemberState(m.GetState()),
		Voter: m.GetVoter(), Leader: m.GetLeader(), Draining: m.GetDraining(),
		Zone: m.GetZone(), Version: m.GetVersion(), FeatureLevel: int(m.GetFeatureLevel()), Weight: int(m.GetWeight()),
	}
}
