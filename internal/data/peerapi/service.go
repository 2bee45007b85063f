package peerapi

import (
	"context"
	"crypto/tls"
	"sync"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Node provides the state of the node. All methods may be called from any goroutine.
type Node interface {
	// Map returns the shard map; nil while it is not known.
	Map() *shard.Map
	// MapSince returns the shard map, and its difference from a version of that
	// cluster: nil if it is too large, or the version is unknown here.
	MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta)
	// Changes returns a channel that is closed at the next change of map or
	// members.
	Changes() <-chan struct{}
	// Replica returns this node's copy of a shard, or nil.
	Replica(id shard.ID) *cache.Cache
	// Arrival returns a channel that is closed when this node may have got a shard that
	// it does not have but that a map may assign to it soon; nil: no such map is due.
	Arrival(id shard.ID) <-chan struct{}
	// Direct reports whether the copy's events come from etcd itself, and
	// returns a channel that is closed when that may have changed.
	Direct(id shard.ID) (bool, <-chan struct{})
	// Looked returns this node's last read of etcd's revision, and false before the
	// first one.
	Looked() (replica.Look, bool)
	// Propose applies an encoded change of the map, when this node leads.
	Propose(ctx context.Context, command []byte) (version uint64, err error)
}

// EtcdAuth shares etcd's answers about users with other nodes; see internal/auth/etcdauth. All
// methods may be called from any goroutine.
type EtcdAuth interface {
	// Share receives the user of a token of etcd from another node, Identify returns it;
	// "": not known.
	Share(tokenSHA256 []byte, user string)
	Identify(tokenSHA256 []byte) (user string)
	// Rights returns the rights of users for another node. Reread reads them again from
	// etcd, because another node has seen a change.
	Rights() *peerv1.ReadRightsResponse
	Reread(ctx context.Context)
}

// Permits grants permits for large reads of etcd to other nodes.
type Permits interface {
	// Grant waits for a permit for node; purpose is for logs. release revokes the
	// permit. Grant fails only when ctx ends.
	Grant(ctx context.Context, node shard.NodeID, purpose string) (release func(), err error)
}

// Resources are the Kubernetes resources that this node follows. All methods may be called
// from any goroutine.
type Resources interface {
	// Resource returns the cache of a resource: the keys with a prefix, of objects of a
	// media type. With follow it begins to follow the resource, if this node is the one
	// to follow it at an apiserver.
	Resource(ctx context.Context, prefix, encoding string, follow bool) (Resource, error)
	// Used returns the resources that clients use here.
	Used() []*peerv1.KubeResource
}

// Resource is a followed resource of Kubernetes.
type Resource struct {
	Cache *cache.Cache
	// Direct reports whether it is followed at an apiserver, and returns a channel that
	// is closed when that may have changed.
	Direct func() (bool, <-chan struct{})
}

// Verifier compares the copies of shards.
type Verifier interface {
	// Digest digests this node's copy for another node.
	Digest(ctx context.Context, r *peerv1.DigestRequest) (*peerv1.DigestResponse, error)
	// Recheck makes this node compare its copy again soon, because another node found
	// that it differs from etcd or from another copy. It does not block.
	Recheck(id shard.ID, from shard.NodeID, etcd bool)
}

// Voting restarts the voting with one voter.
type Voting interface {
	// BeginVoting makes this node the only voter, with its map of that version, if it
	// computes the same plan as the asking node. A dry run only reports whether it
	// does.
	BeginVoting(ctx context.Context, mapVersion uint64, dryRun bool) (version uint64, err error)
}

// Config configures a Service.
type Config struct {
	Node Node
	// Guard has etcd's users and their rights; nil: etcd's authentication is not followed.
	Guard EtcdAuth
	// Permits grants permits to other nodes; nil: none.
	Permits Permits
	// Verifier compares copies; nil: not supported.
	Verifier Verifier
	// Voting recovers voters; nil: not supported.
	Voting Voting
	// Resources are the Kubernetes resources; nil: this node serves etcd.
	Resources Resources
	// Ending counts the watches of clients that would end if only the ranges in served
	// were served, which are in key order.
	Ending func(served []kv.Range) mapchange.Ending
	// Trace records sent revisions; nil: not recorded.
	Trace *revtrace.Trace
	// Speaks fails unless the other side of a connection may act as the node; nil: it may.
	Speaks func(state *tls.ConnectionState, node string) error
	// Stopping is closed when the node drains: nodes that follow shards or the map here
	// go to another one.
	Stopping <-chan struct{}
	Self     shard.NodeID
	// FragmentBytes is the approximate size at which a state is cut into several messages.
	FragmentBytes int
}

// Service serves the other nodes of the cluster. Create it with New.
type Service struct {
	peerv1.UnimplementedPeerServiceServer
	cfg        Config
	pairs      pairs
	encodedMap encodedMap

	mu        sync.Mutex
	followers map[*follower]struct{} // guarded by mu; the live streams of shards
}

// New returns a service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, followers: make(map[*follower]struct{})}
}

// HeldBack returns the number of streams to other nodes that hold events back because the
// shard is idle there, and the bytes of events that they hold back now.
func (s *Service) HeldBack() (streams int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		if n, deferred := f.watcher.Deferred(); deferred {
			streams++
			bytes += n
		}
	}
	return streams, bytes
}

// enter counts a stream until leave is called.
func (s *Service) enter(f *follower) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers, f)
	}
}

// Digest implements peerv1.PeerServiceServer.
func (s *Service) Digest(ctx context.Context, r *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	v := s.cfg.Verifier
	if v == nil {
		return nil, wire.Status(errNoVerifier)
	}
	out, err := v.Digest(ctx, r)
	return out, wire.Status(err)
}

// Recheck implements peerv1.PeerServiceServer.
func (s *Service) Recheck(_ context.Context, r *peerv1.RecheckRequest) (*peerv1.RecheckResponse, error) {
	if v := s.cfg.Verifier; v != nil {
		v.Recheck(shard.ID(r.GetShardId()), shard.NodeID(r.GetNode()), r.GetEtcd())
	}
	return &peerv1.RecheckResponse{}, nil
}

// RecoverVoters implements peerv1.PeerServiceServer.
func (s *Service) RecoverVoters(ctx context.Context, r *peerv1.RecoverVotersRequest) (*peerv1.RecoverVotersResponse, error) {
	if s.cfg.Voting == nil {
		return nil, wire.Status(&kv.UnavailableError{Why: kv.NotReady, Detail: "this node cannot recover the voters"})
	}
	version, err := s.cfg.Voting.BeginVoting(ctx, r.GetMapVersion(), r.GetDryRun())
	if err != nil {
		return nil, wire.Status(err)
	}
	return &peerv1.RecoverVotersResponse{MapVersion: version}, nil
}

// UsedResources implements peerv1.PeerServiceServer.
func (s *Service) UsedResources(context.Context, *peerv1.UsedResourcesRequest) (*peerv1.UsedResourcesResponse, error) {
	if s.cfg.Resources == nil {
		return nil, wire.Status(errNoResources)
	}
	return &peerv1.UsedResourcesResponse{Resources: s.cfg.Resources.Used()}, nil
}

var errNoResources = &kv.UnavailableError{Why: kv.NotReady, Detail: "this node does not serve Kubernetes' API"}

// CountEnding implements peerv1.PeerServiceServer.
func (s *Service) CountEnding(_ context.Context, r *peerv1.CountEndingRequest) (*peerv1.CountEndingResponse, error) {
	var served []kv.Range
	for _, one := range r.GetServed() {
		next, err := kv.RangeFromEtcd(one.GetKey(), one.GetRangeEnd())
		if err != nil {
			return nil, wire.Status(&kv.InvalidError{Field: "served", Reason: err.Error()})
		}
		served = append(served, next)
	}
	e := s.cfg.Ending(served)
	return &peerv1.CountEndingResponse{Native: e.Native, Etcd: e.Etcd}, nil
}

var errNoVerifier = &kv.UnavailableError{Why: kv.NotReady, Detail: "this node compares no copies"}
