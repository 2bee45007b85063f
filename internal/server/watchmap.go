package server

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of WatchShardMap.
const (
	// mapPace is the least time between two messages on a stream: changes that come
	// in between are sent as one.
	mapPace = 200 * time.Millisecond
	// maxMapRanges bounds the ranges of a request.
	maxMapRanges = 1024
	// wholeMap is how many shards a map may have to be sent whole, whatever the
	// ranges: it takes some 20 KB.
	wholeMap = 128
	// maxGoneMembers is how many members that are gone are remembered.
	maxGoneMembers = 1024
)

// memberFeed numbers the changes of the members, so that each stream is sent those
// that it has not seen.
type memberFeed struct {
	mu      sync.Mutex
	seen    <-chan struct{}        // of Node.Changes, when looked at last; guarded by mu
	version uint64                 // guarded by mu
	floor   uint64                 // removals up to it are forgotten; guarded by mu
	members []*shardwatchv1.Member // guarded by mu; each is never changed
	at      map[string]uint64      // version of the last change, by name; guarded by mu
	gone    map[string]uint64      // guarded by mu
}

// take brings the feed up to date, once for each change.
func (f *memberFeed) take(changed <-chan struct{}, members func() []*shardwatchv1.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at != nil && f.seen == changed {
		return
	}
	f.seen = changed
	if f.at == nil {
		// Another process, also one of this node, begins elsewhere.
		f.version, f.at, f.gone = uint64(time.Now().UnixNano()), make(map[string]uint64), make(map[string]uint64)
		f.floor = f.version
	}
	next := members()
	before := make(map[string]*shardwatchv1.Member, len(f.members))
	for _, m := range f.members {
		before[m.GetName()] = m
	}
	version := f.version + 1
	for i, m := range next {
		old := before[m.GetName()]
		delete(before, m.GetName())
		if old != nil && proto.Equal(old, m) {
			next[i] = old
			continue
		}
		f.version = version
		f.at[m.GetName()] = version
		delete(f.gone, m.GetName())
	}
	for name := range before {
		f.version = version
		f.gone[name] = version
		delete(f.at, name)
	}
	if len(f.gone) > maxGoneMembers {
		f.floor = f.version
		clear(f.gone)
	}
	f.members = next
}

// since puts what has changed after a version into r, and reports whether anything
// has.
func (f *memberFeed) since(version uint64, r *shardwatchv1.WatchShardMapResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if version == f.version {
		return false
	}
	r.MembersVersion = f.version
	if version < f.floor || version > f.version {
		r.AllMembers, r.Members = true, f.members
		return true
	}
	for _, m := range f.members {
		if f.at[m.GetName()] > version {
			r.Members = append(r.Members, m)
		}
	}
	for name, at := range f.gone {
		if at > version {
			r.RemovedMembers = append(r.RemovedMembers, name)
		}
	}
	slices.Sort(r.GetRemovedMembers())
	return true
}

// mapParts has the newest map, and what it differs in from the one before, as
// clients are sent them: made once, for all streams.
type mapParts struct {
	mu    sync.Mutex
	of    *shard.Map             // guarded by mu
	whole *shardwatchv1.ShardMap // guarded by mu; never changed
	since *shard.Delta           // guarded by mu
	part  *shardwatchv1.ShardMap // guarded by mu; never changed
}

// get returns the map, or with a delta what is new in it. The neighbours of what is
// new are in it: whether a shard is about to be merged depends on them.
func (p *mapParts) get(m *shard.Map, d *shard.Delta) *shardwatchv1.ShardMap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != m {
		p.of, p.whole, p.since, p.part = m, nil, nil, nil
	}
	if d == nil {
		if p.whole == nil {
			p.whole = wire.MapMessage(m)
		}
		return p.whole
	}
	if p.since != d {
		changed := make(map[shard.ID]bool, len(d.Map.Shards))
		for i := range d.Map.Shards {
			changed[d.Map.Shards[i].ID] = true
		}
		p.since = d
		p.part = wire.MapPart(m, func(i int) bool {
			return changed[m.Shards[i].ID] || i > 0 && changed[m.Shards[i-1].ID] || i+1 < len(m.Shards) && changed[m.Shards[i+1].ID]
		})
	}
	return p.part
}

// mapFollower is a client that follows the map.
type mapFollower struct {
	srv     *Server
	ranges  []kv.Range // only shards of these; with only
	only    bool
	cluster string
	version uint64 // of the map that the client has
	members uint64
}

func newMapFollower(s *Server, r *shardwatchv1.WatchShardMapRequest) (*mapFollower, error) {
	f := &mapFollower{
		srv: s, only: r.GetOnlyRanges() || len(r.GetRanges()) > 0,
		cluster: r.GetClusterId(), version: r.GetKnownVersion(), members: r.GetKnownMembers(),
	}
	if n := len(r.GetRanges()); n > maxMapRanges {
		return nil, &kv.InvalidError{Field: "ranges", Reason: fmt.Sprintf("%d ranges; at most %d, or none to follow all shards", n, maxMapRanges)}
	}
	for _, asked := range r.GetRanges() {
		one, err := kv.RangeFromEtcd(asked.GetKey(), asked.GetRangeEnd())
		if err != nil {
			return nil, err
		}
		f.ranges = append(f.ranges, one)
	}
	return f, nil
}

// wants reports whether the client follows a shard of that range.
func (f *mapFollower) wants(r kv.Range) bool {
	return !f.only || slices.ContainsFunc(f.ranges, r.Overlaps)
}

// next returns what the client does not have; nil: nothing.
func (f *mapFollower) next(changed <-chan struct{}) *shardwatchv1.WatchShardMapResponse {
	f.srv.memberFeed.take(changed, f.srv.cfg.Node.Members)
	out := new(shardwatchv1.WatchShardMapResponse)
	some := f.srv.memberFeed.since(f.members, out)
	if some {
		f.members = out.GetMembersVersion()
	}
	m, d := f.srv.cfg.Node.MapSince(f.cluster, f.version)
	if m == nil || m.ClusterID == f.cluster && m.Version <= f.version {
		if !some {
			return nil
		}
		return out
	}
	f.cluster = m.ClusterID
	all := f.srv.mapParts.get(m, d)
	if d == nil {
		f.version = m.Version
		out.AllShards = !f.only || len(m.Shards) <= wholeMap
		if out.Map = all; !out.GetAllShards() {
			out.Map = f.part(m, all)
		}
		f.only = !out.GetAllShards()
		return out
	}
	out.FromVersion, f.version = f.version, m.Version
	out.Map = f.part(m, all)
	for i := range d.Removed {
		if f.wants(d.Removed[i].Range) {
			out.RemovedShards = append(out.RemovedShards, uint64(d.Removed[i].ID))
		}
	}
	return out
}

// part returns those shards of a message about m that the client follows.
func (f *mapFollower) part(m *shard.Map, all *shardwatchv1.ShardMap) *shardwatchv1.ShardMap {
	if !f.only {
		return all
	}
	out := wire.MapPart(m, func(int) bool { return false })
	for _, s := range all.GetShards() {
		if r, err := kv.RangeFromEtcd(s.GetKey(), s.GetRangeEnd()); err == nil && f.wants(r) {
			out.Shards = append(out.Shards, s)
		}
	}
	return out
}

// WatchShardMap implements shardwatchv1.ClusterServiceServer.
func (s *clusterService) WatchShardMap(r *shardwatchv1.WatchShardMapRequest, out grpc.ServerStreamingServer[shardwatchv1.WatchShardMapResponse]) error {
	caller, err := s.access.Caller(out.Context())
	if err != nil {
		return wire.Status(err)
	}
	f, err := newMapFollower(s.srv, r)
	if err != nil {
		return wire.Status(err)
	}
	goOn := s.srv.goOn()
	for first := true; ; first = false {
		changed, policyChanged := s.srv.cfg.Node.Changes(), s.access.Changed() // before the values: nothing is missed
		if err := caller.Known(out.Context()); err != nil {
			return wire.Status(err)
		}
		var pace <-chan time.Time
		m := f.next(changed)
		if m == nil && first {
			m = new(shardwatchv1.WatchShardMapResponse) // the client has all: it must know
		}
		if m != nil {
			if err := out.Send(m); err != nil {
				return err
			}
			pace, changed = time.After(mapPace), nil
		}
		select {
		case <-pace:
		case <-changed:
		case <-policyChanged:
		case <-s.srv.left: // who watches needs the map to find where to go
			return wire.Status(s.srv.goodbye())
		case <-goOn:
			return wire.Status(s.srv.elsewhere())
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}
