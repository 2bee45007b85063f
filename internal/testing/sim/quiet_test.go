package sim_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
)

// cut splits the cluster's only shard into that many, which spread over the nodes.
func cut(t *testing.T, c *sim.Cluster, into int) {
	t.Helper()
	split := shard.Split{Shard: c.Map().Shards[0].ID}
	for i := 1; i < into; i++ {
		split.At = append(split.At, fmt.Sprintf("/%03d", i))
	}
	b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: c.Map().Version, Change: split})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(c.Leader()).Propose(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	for version := uint64(0); version != c.Map().Version; time.Sleep(time.Minute) {
		version = c.Map().Version
	}
	c.AwaitReady()
}

// followers are streams of the map and the members, one from each node.
type followers struct {
	messages atomic.Int64
	running  sync.WaitGroup
	cancel   context.CancelFunc
}

func follow(t *testing.T, c *sim.Cluster) *followers {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &followers{cancel: cancel}
	for _, name := range c.Names() {
		conn, err := grpc.NewClient("passthrough:///"+name+":7400", grpc.WithContextDialer(c.Net.Dialer("client")), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		s, err := pb.NewClusterServiceClient(conn).WatchShardMap(ctx, &pb.WatchShardMapRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.running.Go(func() {
			for {
				if _, err := s.Recv(); err != nil {
					_ = conn.Close()
					return
				}
				f.messages.Add(1)
			}
		})
	}
	return f
}

func (f *followers) end() {
	f.cancel()
	f.running.Wait()
}

// A quiet cluster of many nodes and shards sends little: neither map nor members are sent
// again to nodes or clients while they do not change. The bounds include the remaining
// traffic between nodes: status, heartbeats and checks of the data.
func TestAQuietClusterOfManyNodesSendsLittle(t *testing.T) {
	const nodes, shards, quiet = 40, 200, time.Minute
	run(t, sim.Config{Nodes: nodes, Shards: 1, Replicas: 1}, func(t *testing.T, c *sim.Cluster) {
		cut(t, c, shards)
		f := follow(t, c)
		defer f.end()
		time.Sleep(time.Minute)
		version, messages, before := c.Map().Version, f.messages.Load(), c.Traffic()
		time.Sleep(quiet)
		sent := c.Traffic().Since(before)
		if got := c.Map(); got.Version != version || len(got.Shards) != shards {
			t.Fatalf("the map has changed from version %d to %d, and has %d shards", version, got.Version, len(got.Shards))
		}
		perNode := func(bytes int64) int64 { return bytes / nodes / int64(quiet/time.Second) }
		t.Logf("bytes a second of each node: gossip %d, other nodes %d, clients %d", perNode(sent.Gossip), perNode(sent.Peers), perNode(sent.Clients))
		if got := perNode(sent.Gossip + sent.Peers); got < 100 || got > 1000 {
			t.Errorf("each node sends %d bytes a second to other nodes", got)
		}
		if got := f.messages.Load() - messages; messages < nodes || got != 0 || perNode(sent.Clients) > 10 {
			t.Errorf("%d clients were sent %d messages, and %d bytes a second", nodes, got, perNode(sent.Clients))
		}
	})
}

// Idle nodes read little from etcd: one of them reads its revision twice a second for all, each of the others
// every two seconds, and each node reads the users' rights every two seconds.
func TestNodesAtRestReadLittleAtEtcd(t *testing.T) {
	for _, shards := range []int{1, 3} { // one node owns all shards, or each node owns one
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			run(t, sim.Config{Shards: shards}, func(t *testing.T, c *sim.Cluster) {
				const quiet = time.Minute
				time.Sleep(10 * time.Second)
				before, oldest := c.Etcd.Counts().Ranges, time.Duration(0)
				for range int(quiet / (100 * time.Millisecond)) {
					time.Sleep(100 * time.Millisecond)
					for _, name := range c.Names() {
						for _, r := range c.Node(name).Status().GetReplicas() {
							oldest = max(oldest, r.GetAge().AsDuration())
						}
					}
				}
				reads := c.Etcd.Counts().Ranges - before
				t.Logf("%d reads in %v, data up to %v old", reads, quiet, oldest)
				if least := int(quiet / time.Second); reads < least || reads > 5*least {
					t.Errorf("%d reads of etcd in %v", reads, quiet)
				}
				if oldest == 0 || oldest > time.Second {
					t.Errorf("the data was up to %v old", oldest)
				}
			})
		})
	}
}

// An additional shard costs little traffic: at rest, and for each write to another shard.
// docs/scaling.md has the figures.
func TestAFurtherShardSendsLittle(t *testing.T) {
	const few, many, quiet, writes = 3, 19, 20 * time.Second, 200
	traffic := func(shards int) (atRest, perWrite float64) {
		run(t, sim.Config{Shards: 1}, func(t *testing.T, c *sim.Cluster) {
			cut(t, c, shards)
			sent := func(f func()) int64 {
				before := c.Traffic()
				f()
				after := c.Traffic().Since(before)
				return after.Peers
			}
			rest := sent(func() { time.Sleep(quiet) })
			busy := sent(func() {
				for i := range writes {
					c.Put("/d0/k0", fmt.Sprint(i))
					time.Sleep(quiet / writes)
				}
			})
			if got := len(c.Map().Shards); got != shards {
				t.Fatalf("%d shards, want %d", got, shards)
			}
			atRest, perWrite = float64(rest)/quiet.Seconds(), float64(busy-rest)/writes
		})
		return atRest, perWrite
	}
	rest, write := traffic(few)
	restMany, writeMany := traffic(many)
	rest, write = (restMany-rest)/(many-few), (writeMany-write)/(many-few)
	t.Logf("each further shard: %.1f bytes a second at rest, %.1f bytes for each write elsewhere, between three nodes", rest, write)
	if rest > 300 || write > 50 {
		t.Error("an additional shard costs too much traffic")
	}
}
