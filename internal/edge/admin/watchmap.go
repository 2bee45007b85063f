package admin

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of WatchShardMap.
const (
	// mapPace is the minimum time between two messages on a stream: changes in between are sent as one.
	mapPace = 200 * time.Millisecond
	// wholeMap is the largest number of shards of a map that is always sent whole: it takes some 20 KB.
	wholeMap = 128
	// maxGoneMembers bounds the remembered removals of members.
	maxGoneMembers = 1024
)

// memberFeed numbers the changes of the members, so that each stream is sent only changes new to it.
type memberFeed struct {
	mu      sync.Mutex
	seen    <-chan struct{}        // of Node.Changes at the last take; guarded by mu
	version uint64                 // guarded by mu
	floor   uint64                 // removals up to it are forgotten; guarded by mu
	members []*shardwatchv1.Member // guarded by mu; each is never changed
	at      map[string]uint64      // version of the last change, by name; guarded by mu
	gone    map[string]uint64      // guarded by mu
}

// take updates the feed, once for each change.
func (f *memberFeed) take(changed <-chan struct{}, members func() []*shardwatchv1.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at != nil && f.seen == changed {
		return
	}
	f.seen = changed
	if f.at == nil {
		// Other processes, also earlier ones of this node, begin with other versions.
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

// since adds the changes after a version to r, and reports whether there are any.
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

// mapParts has the newest map and its delta from the previous map, encoded once for all streams.
type mapParts struct {
	mu    sync.Mutex
	of    *shard.Map             // guarded by mu
	whole *shardwatchv1.ShardMap // guarded by mu; never changed
	since *shard.Delta           // guarded by mu
	part  *shardwatchv1.ShardMap // guarded by mu; never changed
}

// get returns the map, or with a delta the changed shards and their neighbours: whether a shard is about to be
// merged depends on its neighbours.
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
	srv     *Service
	only    bool
	ranges  keyRanges // if only: the ranges of the shards to send
	fresh   keyRanges // ranges whose shards the client does not have yet
	cluster string
	version uint64                 // of the client's map
	seen    uint64                 // no change for the client between version and seen
	head    *shardwatchv1.ShardMap // the client's map without its shards; nil: not known
	members uint64
}

func newMapFollower(s *Service, r *shardwatchv1.WatchShardMapRequest) (*mapFollower, error) {
	f := &mapFollower{
		srv: s, only: r.GetOnlyRanges() || len(r.GetRanges()) > 0,
		cluster: r.GetClusterId(), version: r.GetKnownVersion(), seen: r.GetKnownVersion(), members: r.GetKnownMembers(),
	}
	var err error
	if f.ranges, err = newKeyRanges("ranges", r.GetRanges()); err == nil {
		f.fresh, err = newKeyRanges("new_ranges", r.GetNewRanges())
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// next returns the changes that are new to the client; nil: none.
func (f *mapFollower) next(changed <-chan struct{}) *shardwatchv1.WatchShardMapResponse {
	f.srv.memberFeed.take(changed, f.srv.cfg.Node.Members)
	out := new(shardwatchv1.WatchShardMapResponse)
	some := f.srv.memberFeed.since(f.members, out)
	if some {
		f.members = out.GetMembersVersion()
	}
	if f.nextMap(out) || some {
		return out
	}
	return nil
}

// nextMap adds the map's changes that are new to the client to out, and reports whether there are any. It
// ignores changes of shards that the client does not follow.
func (f *mapFollower) nextMap(out *shardwatchv1.WatchShardMapResponse) bool {
	m, d := f.srv.cfg.Node.MapSince(f.cluster, f.seen)
	if m == nil {
		return false
	}
	if m.ClusterID == f.cluster && (m.Version < f.seen || m.Version == f.seen && len(f.fresh) == 0) {
		return false
	}
	head := wire.MapHeader(m)
	switch {
	case m.ClusterID == f.cluster && m.Version == f.seen:
		out.FromVersion, out.Map = f.version, head
		f.addFresh(m, head)
	case d == nil:
		out.AllShards = !f.only || len(m.Shards) <= wholeMap
		f.only = !out.GetAllShards()
		if out.Map = head; f.only {
			head.Shards = wire.MapPart(m, f.ranges.in(m)).GetShards()
		} else {
			out.Map = f.srv.mapParts.get(m, nil)
		}
	case !f.only:
		out.FromVersion, out.Map = f.version, f.srv.mapParts.get(m, d)
		for i := range d.Removed {
			out.RemovedShards = append(out.RemovedShards, uint64(d.Removed[i].ID))
		}
	default:
		shards, removed := f.changed(m, d)
		if len(shards)+len(removed)+len(f.fresh) == 0 && sameHead(f.head, head) {
			f.seen = m.Version
			return false
		}
		head.Shards = shards
		f.addFresh(m, head)
		out.FromVersion, out.Map, out.RemovedShards = f.version, head, removed
	}
	f.cluster, f.version, f.seen, f.fresh, f.head = m.ClusterID, m.Version, m.Version, nil, head
	return true
}

// changed returns the part of a delta to m for the shards that the client follows.
func (f *mapFollower) changed(m *shard.Map, d *shard.Delta) (shards []*shardwatchv1.Shard, removed []uint64) {
	for _, s := range f.srv.mapParts.get(m, d).GetShards() {
		if r, err := kv.RangeFromEtcd(s.GetKey(), s.GetRangeEnd()); err == nil && f.ranges.want(r) {
			shards = append(shards, s)
		}
	}
	for i := range d.Removed {
		if f.ranges.want(d.Removed[i].Range) {
			removed = append(removed, uint64(d.Removed[i].ID))
		}
	}
	return shards, removed
}

// addFresh adds the shards of m in fresh ranges to a message, except those that it has.
func (f *mapFollower) addFresh(m *shard.Map, to *shardwatchv1.ShardMap) {
	has := make(map[uint64]bool, len(to.GetShards()))
	for _, s := range to.GetShards() {
		has[s.GetId()] = true
	}
	wanted := f.fresh.in(m)
	to.Shards = append(to.Shards, wire.MapPart(m, func(i int) bool { return wanted(i) && !has[uint64(m.Shards[i].ID)] }).GetShards()...)
}

// sameHead reports whether two maps differ at most in their shards and versions.
func sameHead(a, b *shardwatchv1.ShardMap) bool {
	return a != nil && a.GetLineage() == b.GetLineage() && a.GetReplicas() == b.GetReplicas() &&
		slices.Equal(a.GetDrained(), b.GetDrained()) && proto.Equal(a.GetOrigin(), b.GetOrigin())
}

// WatchShardMap implements shardwatchv1.ClusterServiceServer.
func (s *clusterService) WatchShardMap(r *shardwatchv1.WatchShardMapRequest, out grpc.ServerStreamingServer[shardwatchv1.WatchShardMapResponse]) error {
	caller, err := s.callers.Access.Caller(out.Context())
	user := ""
	if err == nil && s.callers.Guard != nil {
		user, err = s.callers.MayLook(out.Context(), caller)
	}
	if err != nil {
		return wire.Status(err)
	}
	f, err := newMapFollower(s.srv, r)
	if err != nil {
		return wire.Status(err)
	}
	goOn := s.srv.cfg.GoOn()
	for first := true; ; first = false {
		changed, policyChanged := s.srv.cfg.Node.Changes(), s.callers.Access.Changed() // first, to miss no change
		if err := caller.Known(out.Context()); err != nil {
			return wire.Status(err)
		}
		rightsChanged, err := s.looksOn(caller, user)
		if err != nil {
			return wire.Status(err)
		}
		var pace <-chan time.Time
		m := f.next(changed)
		if m == nil && first {
			m = new(shardwatchv1.WatchShardMapResponse) // confirms that the client's map is current
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
		case <-rightsChanged:
		case <-s.srv.cfg.Left: // a watching client needs the map to find another node
			return wire.Status(kv.ShuttingDown())
		case <-goOn:
			return wire.Status(kv.SentOn())
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

// looksOn fails if the caller, which follows the map as an etcd user, may not read it any more. changed is
// closed when that may have changed; nil: it cannot change.
func (s *clusterService) looksOn(caller *authz.Caller, user string) (changed <-chan struct{}, err error) {
	if s.callers.Guard == nil || caller.Named() {
		return changed, nil
	}
	changed = s.callers.Guard.Changed() // before asking the guard, to miss no change
	if err = s.callers.Guard.MayLook(user); wire.IsUnavailable(err) {
		err = nil
	}
	return changed, callers.Error(err)
}
