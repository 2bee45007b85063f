package differential_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/etcdtest"
	"github.com/shardwatch/shardwatch/test/differential"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// etcds starts two etcds, with notifications of progress often.
func etcds(t testing.TB) (plain, behind *etcdtest.Server) {
	often := etcdtest.WithProgressInterval(200 * time.Millisecond)
	return etcdtest.Start(t, often), etcdtest.Start(t, often)
}

// noneBehind waits until no watch of the etcd lags.
func noneBehind(endpoint string) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			m, err := etcdtest.Scrape(ctx, endpoint)
			if err != nil {
				return err
			}
			slow := m["etcd_debugging_mvcc_slow_watcher_total"]
			if slow == nil {
				return fmt.Errorf("etcd has no metric of slow watchers any more")
			}
			if slow.GetMetric()[0].GetGauge().GetValue() == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond): // between two looks
			}
		}
	}
}

// plainSides are two etcds and no tier: they must not differ.
func plainSides(t testing.TB) differential.Sides {
	plain, behind := etcds(t)
	return differential.Sides{
		Plain: dial(t, plain.Endpoint()), Direct: dial(t, behind.Endpoint()),
		Through: []*grpc.ClientConn{dial(t, behind.Endpoint()), dial(t, behind.Endpoint())},
		Behind:  noneBehind(behind.Endpoint()), Loose: true,
	}
}

// What finds differences between etcd and etcd would find nothing else.
func TestEtcdIsEtcd(t *testing.T) {
	sides := plainSides(t)
	cfg := differential.Config{Seed: differential.NewSeed(), Steps: 1500}
	report, err := differential.Run(t.Context(), sides, cfg)
	show(t, report, err)
}

func show(t *testing.T, r differential.Report, err error) {
	t.Helper()
	t.Logf("seed %d: asked %v, %d events told, tolerated %v", r.Seed, r.Asked, r.Events, r.Tolerated)
	for _, d := range r.Differences {
		t.Error(d)
	}
	if err != nil {
		t.Error(err)
	}
}
