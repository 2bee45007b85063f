package client

import (
	"cmp"
	"hash/fnv"
	"slices"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// member is what the client needs to know of a node.
type member struct {
	name, address, zone string
	state               pb.MemberState
	draining            bool
}

// gone reports whether the node cannot serve.
func (m member) gone() bool {
	return m.state == pb.MemberState_MEMBER_STATE_DEAD || m.state == pb.MemberState_MEMBER_STATE_LEFT
}

// shard is one range of keys and the names of the nodes that serve it; the first is the
// owner.
type shard struct {
	id       uint64
	keys     Range
	replicas []string
}

// shardMap is how the key space is cut: shards are ordered by key and disjoint.
type shardMap struct {
	clusterID string
	version   uint64
	shards    []shard
}

// topology is a map and the members at one time. It is immutable.
type topology struct {
	shards  shardMap // without shards that the client does not follow
	members []member

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
		r.KnownVersion, r.ClusterId = t.shards.version, t.shards.clusterID
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
	case m == nil || m.GetClusterId() == next.shards.clusterID && m.GetVersion() < next.shards.version:
		return next, nil
	case r.GetFromVersion() == 0:
		next.shards, next.all = shardMapFrom(m), r.GetAllShards()
	case m.GetClusterId() != next.shards.clusterID || r.GetFromVersion() != next.shards.version:
		return nil, errProtocol
	default:
		shards := changed(next.shards.shards, r)
		next.shards = shardMapFrom(m)
		next.shards.shards = shards
	}
	next.known = in.ranges
	return next, nil
}

// merged returns the members after a change, ordered by name.
func merged(members []member, r *pb.WatchShardMapResponse) []member {
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
	out := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return stale[m.name] })
	out = append(out, membersFrom(r.GetMembers())...)
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	return out
}

// changed returns the shards after a change, ordered by key.
func changed(shards []shard, r *pb.WatchShardMapResponse) []shard {
	stale := make(map[uint64]bool)
	for _, id := range r.GetRemovedShards() {
		stale[id] = true
	}
	for _, s := range r.GetMap().GetShards() {
		stale[s.GetId()] = true
	}
	out := slices.DeleteFunc(slices.Clone(shards), func(s shard) bool { return stale[s.id] })
	out = append(out, shardsFrom(r.GetMap().GetShards())...)
	slices.SortFunc(out, func(a, b shard) int { return cmp.Compare(a.keys.Start, b.keys.Start) })
	return out
}

// preference decides between nodes that could serve a client equally well.
type preference struct {
	zone string // the client's; "": not known
	seed string // gives each client an order of its own
}

// candidates returns the addresses of the members that may serve r, best
// first: those of the client's zone that have any of its shards before others, then
// those that have most of its shards, and among equals
// an order of its own for every seed, so that clients spread and each keeps to
// few nodes. Members that are suspect or drain come last; those that are gone
// not at all.
func (t *topology) candidates(r Range, p preference) []string {
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

// home returns the address of the first candidate for r; empty when that is
// suspect or drains.
func (t *topology) home(r Range, p preference) string {
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
func (t *topology) rank(r Range, p preference) []candidate {
	has := map[string]int{}
	for _, s := range t.shards.shards {
		if s.keys.overlaps(r) {
			for _, name := range s.replicas {
				has[name]++
			}
		}
	}
	var cs []candidate
	for _, m := range t.members {
		if m.address == "" || m.gone() {
			continue
		}
		c := candidate{addr: m.address, have: has[m.name], far: 1, score: score(p.seed, m.name)}
		if p.zone != "" && m.zone == p.zone && c.have > 0 {
			c.far = 0
		}
		if m.draining || m.state == pb.MemberState_MEMBER_STATE_SUSPECT {
			c.worse = 1
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.worse, b.worse), cmp.Compare(a.far, b.far), cmp.Compare(b.have, a.have), cmp.Compare(b.score, a.score))
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

func shardMapFrom(m *pb.ShardMap) shardMap {
	return shardMap{clusterID: m.GetClusterId(), version: m.GetVersion(), shards: shardsFrom(m.GetShards())}
}

func shardsFrom(shards []*pb.Shard) []shard {
	var out []shard
	for _, s := range shards {
		out = append(out, shard{id: s.GetId(), keys: rangeFromWire(s.GetKey(), s.GetRangeEnd()), replicas: s.GetReplicas()})
	}
	return out
}

func membersFrom(ms []*pb.Member) []member {
	out := make([]member, 0, len(ms))
	for _, m := range ms {
		out = append(out, member{name: m.GetName(), address: m.GetClientAddress(), zone: m.GetZone(), state: m.GetState(), draining: m.GetDraining()})
	}
	return out
}
