package tier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of the peer port, as on nodes that serve etcd.
const (
	maxRequest       = 2 << 20
	fragmentBytes    = 1 << 20
	flowWindow       = 1 << 20
	handshakeTime    = 10 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	keepaliveLeast   = 5 * time.Second
)

// port is the part of the peer API that nodes of a tier serve.
type port struct {
	peerv1.UnimplementedPeerServiceServer
	service *peerapi.Service
}

// Follow implements peerv1.PeerServiceServer.
func (p *port) Follow(r *peerv1.FollowRequest, out grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
	if r.GetEncoding() == "" {
		return wire.Status(&kv.InvalidError{Field: "encoding", Reason: "this node has resources of Kubernetes, and no shards"})
	}
	return p.service.Follow(r, out)
}

// Beat implements peerv1.PeerServiceServer.
func (p *port) Beat(gs grpc.BidiStreamingServer[peerv1.BeatRequest, peerv1.BeatResponse]) error {
	return p.service.Beat(gs)
}

// UsedResources implements peerv1.PeerServiceServer.
func (p *port) UsedResources(ctx context.Context, r *peerv1.UsedResourcesRequest) (*peerv1.UsedResourcesResponse, error) {
	return p.service.UsedResources(ctx, r)
}

// serve answers other nodes until ctx ends.
func (t *Tier) serve(ctx context.Context, ln net.Listener) error {
	creds := insecure.NewCredentials()
	if t.cfg.ServerTLS != nil {
		creds = credentials.NewTLS(t.cfg.ServerTLS)
	}
	service := peerapi.New(peerapi.Config{
		Node: (*view)(t), Resources: t, Speaks: t.cfg.Speaks, Stopping: t.draining, Self: t.cfg.Self.Name, FragmentBytes: fragmentBytes,
	})
	server := grpc.NewServer(append(service.Options(),
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.InitialWindowSize(flowWindow), grpc.InitialConnWindowSize(flowWindow),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
	)...)
	peerv1.RegisterPeerServiceServer(server, &port{service: service})
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve other nodes on %s: %w", ln.Addr(), err)
	}
	return nil
}

// Resource implements peerapi.Resources.
func (t *Tier) Resource(ctx context.Context, prefix, encoding string, follow bool) (peerapi.Resource, error) {
	r, ok := source.ParseResource(prefix, encoding)
	if !ok {
		return peerapi.Resource{}, &kv.InvalidError{Field: "key", Reason: "it is not the prefix of a resource"}
	}
	if t.cluster() == "" {
		return peerapi.Resource{}, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: "the cluster of this node's apiservers is not known yet"}
	}
	if nodes := rank(t.nodes(), r); len(nodes) == 0 || nodes[0] != t.cfg.Self.Name {
		follow = false // another node owns it; keep copies it here while clients use it
	}
	return t.feeds.Copy(ctx, r, follow)
}

// Used implements peerapi.Resources.
func (t *Tier) Used() (out []*peerv1.KubeResource) {
	for _, r := range t.feeds.Used() {
		out = append(out, &peerv1.KubeResource{Prefix: r.Prefix(), Encoding: r.Encoding.MediaType()})
	}
	return out
}

// view implements peerapi.Node for a node without shards.
type view Tier

// Map returns a map without shards, with the cluster's ID.
func (v *view) Map() *shard.Map {
	if id := (*Tier)(v).cluster(); id != "" {
		return &shard.Map{ClusterID: id}
	}
	return nil
}

// MapSince implements peerapi.Node.
func (v *view) MapSince(string, uint64) (*shard.Map, *shard.Delta) { return v.Map(), nil }

// Changes implements peerapi.Node: the map never changes.
func (v *view) Changes() <-chan struct{} { return nil }

// Replica implements peerapi.Node.
func (v *view) Replica(shard.ID) *cache.Cache { return nil }

// Arrival implements peerapi.Node.
func (v *view) Arrival(shard.ID) <-chan struct{} { return nil }

// Direct implements peerapi.Node.
func (v *view) Direct(shard.ID) (bool, <-chan struct{}) { return false, nil }

// Looked implements peerapi.Node: versions of different resources have no order.
func (v *view) Looked() (replica.Look, bool) { return replica.Look{}, false }

// Propose implements peerapi.Node.
func (v *view) Propose(context.Context, []byte) (uint64, error) {
	return 0, &kv.InvalidError{Field: "command", Reason: "this node has no shard map"}
}
