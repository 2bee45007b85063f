package etcdapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// /health always reported "healthy" while etcd's authentication was on: the refusal of a caller without a token
// counted as the answer of a healthy node. A probe reads with the node's own account, and its read is not
// forwarded to etcd if the node cannot answer it.
func TestProbesLearnThatReadsFail(t *testing.T) {
	guarded := func(_ *cache.Config, dc *etcdapi.Config, _ *router.Config) {
		dc.Guard = &rights{allowed: "ann", changed: make(chan struct{})}
	}
	inBubble(t, guarded, func(b *bubble) {
		b.fails(b.t.Context(), one("health"), rpctypes.ErrGRPCUserEmpty) // a caller without a token may not read
		read := func(serializable bool) error {
			return etcdapi.HealthOf(b.api).Read(b.t.Context(), serializable)
		}
		expect := func(when string, linearizable, serializable error) {
			b.t.Helper()
			for local, want := range map[bool]error{false: linearizable, true: serializable} {
				if err := read(local); !errors.Is(err, want) {
					b.t.Errorf("%s: serializable %t: got %v, want %v", when, local, err, want)
				}
			}
		}
		expect("all is well", nil, nil)
		b.h.Fail(&kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "no endpoint answers"})
		expect("etcd is away", rpctypes.ErrGRPCTimeout, nil)
		time.Sleep(5*time.Second + 1)
		expect("etcd is away for long", rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCNoLeader)
		b.h.Fail(nil)
		b.observe()
		expect("etcd is back", nil, nil)

		m := cachetest.Map(2, []string{"h", "p"}, "here")
		m.Spec.Ranges = []kv.Range{{Start: "z"}}
		b.node.Use(m)
		expect("other keys are served", nil, nil)

		m = cachetest.Map(3, []string{"h", "p"}, "here")
		m.Shards[1].Replicas = []shard.NodeID{"nobody knows"}
		b.node.Use(m)
		for _, serializable := range []bool{false, true} {
			if err := read(serializable); err == nil || strings.Contains(err.Error(), "nobody") || b.passed.Load() > 0 {
				b.t.Errorf("no node has the shard, serializable %t: %v after %d reads of etcd", serializable, err, b.passed.Load())
			}
		}
	})
}

// unknown is an etcd that does not return its status, and whose error has details that probes must not reveal.
type unknown struct{ *scripted }

func (unknown) Status(context.Context) (*etcdserverpb.StatusResponse, error) {
	return nil, errors.New("log in as root at 192.0.2.1")
}

func TestProbesDoNotRevealTheAddressOfEtcd(t *testing.T) {
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Etcd = unknown{} }})
	if s, err := etcdapi.HealthOf(r.api).EtcdStatus(t.Context()); s != nil || err == nil || strings.Contains(err.Error(), "root") {
		t.Errorf("got %v, %v", s, err)
	}
}
