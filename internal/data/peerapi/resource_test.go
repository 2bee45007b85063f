package peerapi_test

import (
	"context"
	"errors"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// resources has one resource.
type resources struct {
	cache  *cache.Cache
	direct bool
	follow []bool // the follow arguments of all calls
}

func (r *resources) Resource(_ context.Context, _, _ string, follow bool) (peerapi.Resource, error) {
	r.follow = append(r.follow, follow)
	return peerapi.Resource{Cache: r.cache, Direct: func() (bool, <-chan struct{}) { return r.direct, nil }}, nil
}

func (r *resources) Used() []*peerv1.KubeResource {
	return []*peerv1.KubeResource{{Prefix: "//v1/pods/", Encoding: "application/json"}}
}

// A request to follow a resource names it by its range and encoding. The node does not serve a follower that is
// ahead of it: the versions that it lacks may be of another history.
func TestAFollowerAheadOfAResourceIsRefused(t *testing.T) {
	held := &resources{direct: true}
	r := start(t, cachetest.New(), options{service: func(c *peerapi.Config) { c.Resources = held }})
	held.cache = r.node.Replica(1)
	ahead := func(err error) bool {
		var e *kv.UnavailableError
		return errors.As(err, &e) && e.Why == kv.NotReady
	}
	for name, x := range map[string]struct {
		change   func(*peerv1.FollowRequest)
		indirect bool
		want     func(error) bool
	}{
		"the held versions":     {func(*peerv1.FollowRequest) {}, false, func(err error) bool { return err == nil }},
		"directly":              {func(f *peerv1.FollowRequest) { f.RequireDirect = true }, false, func(err error) bool { return err == nil }},
		"not directly":          {func(f *peerv1.FollowRequest) { f.RequireDirect = true }, true, ahead},
		"further than the node": {func(f *peerv1.FollowRequest) { f.FromRevision++ }, false, ahead},
		"another range": {func(f *peerv1.FollowRequest) { f.RangeEnd = []byte("g") }, false, func(err error) bool {
			return errors.As(err, new(*kv.InvalidError))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			held.direct, held.follow = !x.indirect, nil
			direct := false
			_, first, err := r.follows(t.Context(), func(f *peerv1.FollowRequest) {
				f.ShardId, f.Encoding, f.Lineage = 0, "application/json", 0
				x.change(f)
				direct = f.GetRequireDirect()
			})
			if !x.want(err) {
				t.Errorf("got %v, %v", first, err)
			}
			if len(held.follow) != 1 || held.follow[0] != direct {
				t.Errorf("the resource has to be followed directly: %v, want %v", held.follow, direct)
			}
		})
	}
	client := peerv1.NewPeerServiceClient(dial(t, r.peers))
	if used, err := client.UsedResources(t.Context(), &peerv1.UsedResourcesRequest{}); err != nil || len(used.GetResources()) != 1 {
		t.Errorf("%v, %v", used, err)
	}
}

func TestANodeOfEtcdHasNoResources(t *testing.T) {
	r := start(t, cachetest.New(), options{})
	if _, _, err := r.follows(t.Context(), func(f *peerv1.FollowRequest) { f.Encoding = "application/json" }); !errors.As(err, new(*kv.UnavailableError)) {
		t.Errorf("following a resource at a node without resources: %v, want UnavailableError", err)
	}
	client := peerv1.NewPeerServiceClient(dial(t, r.peers))
	if _, err := client.UsedResources(t.Context(), &peerv1.UsedResourcesRequest{}); !errors.As(wire.Error(err), new(*kv.UnavailableError)) {
		t.Errorf("the used resources of a node without resources: %v, want UnavailableError", err)
	}
}
