package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
)

// reportLive runs complete nodes in this process, on fake time: gossip, raft with three voters, the
// shard map, and clients that follow it. Fake time does not advance during computations, so a slow
// machine causes no suspicions, and the numbers of bytes and times are those of a machine with
// enough CPUs.
func reportLive(conf config, out, tell io.Writer) error {
	testing.Init()
	if err := flag.CommandLine.Parse(nil); err != nil {
		return err
	}
	// Fake time is for tests only. Main ends the process, with 1 if the cluster failed.
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "scale", F: func(t *testing.T) { live(t, conf, out, tell) },
	}}, nil, nil)
	return nil
}

// liveCluster is a cluster under measurement.
type liveCluster struct {
	*sim.Cluster
	t       *testing.T
	conf    config
	out     io.Writer
	tell    io.Writer
	clients []*follower
	profile *profiler
	rest    sim.Traffic // in restTime
	restCPU time.Duration
}

// follower is a client that follows the shards of one key.
type follower struct {
	through  string // the node of its stream
	shard    uint64
	version  atomic.Uint64 // of its map
	suspect  atomic.Bool   // its map has the flapping member as suspect
	messages *atomic.Int64
}

const (
	// restTime is the duration of the measurement at rest.
	restTime = time.Minute
	// flapping is the number of the node that flaps: it is not a voter.
	flapping = 4
)

func live(t *testing.T, conf config, out, tell io.Writer) {
	began, profile := time.Now(), newProfiler()
	defer profile.close()
	synctest.Test(t, func(t *testing.T) {
		fmt.Fprintf(tell, "starting %d nodes\n", conf.live)
		l := &liveCluster{Cluster: sim.Start(t, sim.Config{Nodes: conf.live, Shards: 1, Replicas: 1}), t: t, conf: conf, out: out, tell: tell, profile: profile}
		l.spread()
		fmt.Fprintf(out, "\n%d nodes, %d shards and %d clients in memory, on fake time.\n\n", conf.live, len(l.Map().Shards), conf.clients)
		l.idle()
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		l.follow(ctx)
		fmt.Fprint(out, "\n| event | nodes know after | clients know after | bytes between nodes | bytes to clients | messages to clients | CPU time |\n|---|---:|---:|---:|---:|---:|---:|\n")
		l.change()
		l.flap()
		fmt.Fprintf(tell, "stopping\n")
		stop()
	})
	fmt.Fprintf(tell, "took %v\n", time.Since(began).Round(time.Second))
}

// spread cuts the map into shards, and waits until they are distributed over the nodes.
func (l *liveCluster) spread() {
	into := 2 * l.conf.live
	fmt.Fprintf(l.tell, "cutting the map into %d shards\n", into)
	split := shard.Split{Shard: l.Map().Shards[0].ID}
	for i := 1; i < into; i++ {
		split.At = append(split.At, liveKey(i))
	}
	l.propose(split)
	for version := uint64(0); version != l.Map().Version; time.Sleep(time.Minute) {
		version = l.Map().Version
		fmt.Fprintf(l.tell, "waiting until the shards have spread: map version %d\n", version)
	}
	l.AwaitReady()
}

func liveKey(i int) string { return fmt.Sprintf("/%06d", i) }

func (l *liveCluster) propose(change shard.Change) uint64 {
	l.t.Helper()
	b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: l.Map().Version, Change: change})
	if err != nil {
		l.t.Fatal(err)
	}
	version, err := l.Node(l.Leader()).Propose(context.Background(), b)
	if err != nil {
		l.t.Fatal(err)
	}
	return version
}

// idle measures a minute without changes.
func (l *liveCluster) idle() {
	fmt.Fprintf(l.tell, "measuring rest\n")
	time.Sleep(restTime) // wait until the joins are gossiped
	if err := l.profile.start(); err != nil {
		l.t.Fatal(err)
	}
	version, used, before := l.Map().Version, cpu(), l.Traffic()
	time.Sleep(restTime)
	l.restCPU, l.rest = cpu()-used, l.Traffic().Since(before)
	profile := l.profile.stop()
	if l.Map().Version != version {
		l.t.Fatalf("the map has changed from version %d to %d", version, l.Map().Version)
	}
	each := func(bytes int64) int64 { return bytes / int64(l.conf.live) / int64(restTime/time.Second) }
	fmt.Fprint(l.out, "| at rest, each node | |\n|---|---:|\n")
	fmt.Fprintf(l.out, "| gossip, bytes a second | %d |\n| all else between nodes, bytes a second | %d |\n| all of it, of a core | %.3f %% |\n",
		each(l.rest.Gossip), each(l.rest.Peers), l.ofACore(l.restCPU))
	l.attribute(profile)
}

// ofACore returns CPU time as a percentage of a core for each node at rest.
func (l *liveCluster) ofACore(used time.Duration) float64 {
	return 100 * used.Seconds() / restTime.Seconds() / float64(l.conf.live)
}

// attribute prints the distribution of the CPU time at rest. The runtime and the transport work for all
// other purposes: they are added to map and members in proportion.
func (l *liveCluster) attribute(profile []byte) {
	shares, err := attributed(profile)
	if err != nil {
		l.t.Fatal(err)
	}
	var all, direct, ours time.Duration
	for _, s := range shares {
		all += s.took
		if s.name != golang && s.name != transport {
			direct += s.took
		}
		if s.name == gossiping || s.name == mapping {
			ours += s.took
		}
	}
	fmt.Fprint(l.out, "\n| of a core, each node, at rest | |\n|---|---:|\n")
	for _, s := range shares {
		fmt.Fprintf(l.out, "| %s | %.4f %% |\n", s.name, l.ofACore(l.restCPU)*s.took.Seconds()/all.Seconds())
	}
	fmt.Fprintf(l.out, "| **map and members, with their part of runtime and gRPC** | %.4f %% |\n", l.ofACore(l.restCPU)*ours.Seconds()/direct.Seconds())
}

// follow has clients follow the map, each the shard of one key, until ctx ends.
func (l *liveCluster) follow(ctx context.Context) {
	fmt.Fprintf(l.tell, "connecting %d clients\n", l.conf.clients)
	names, shards := l.Names(), l.Map().Shards
	messages := new(atomic.Int64)
	conns := make([]*grpc.ClientConn, len(names))
	for i, name := range names {
		var err error
		conns[i], err = grpc.NewClient("passthrough:///"+name+":7400", grpc.WithContextDialer(l.Net.Dialer("clients")), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			l.t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = conns[i].Close() })
	}
	for i := range l.conf.clients {
		s := &shards[i%len(shards)]
		f := &follower{through: names[i%len(names)], shard: uint64(s.ID), messages: messages}
		l.clients = append(l.clients, f)
		key, end := s.Range.Etcd()
		stream, err := pb.NewClusterServiceClient(conns[i%len(conns)]).WatchShardMap(ctx, &pb.WatchShardMapRequest{Ranges: []*pb.KeyRange{{Key: key, RangeEnd: end}}})
		if err != nil {
			l.t.Fatal(err)
		}
		go f.run(stream, names[flapping])
	}
	l.Await(time.Minute, "all clients have the map", func() bool { return l.clientsWith(func(f *follower) bool { return f.version.Load() > 0 }) })
	time.Sleep(time.Second)
}

// run handles the messages of the stream until it ends.
func (f *follower) run(stream pb.ClusterService_WatchShardMapClient, flapping string) {
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		f.messages.Add(1)
		if v := r.GetMap().GetVersion(); v > 0 {
			f.version.Store(v)
		}
		for _, m := range r.GetMembers() {
			if m.GetName() == flapping {
				f.suspect.Store(m.GetState() == pb.MemberState_MEMBER_STATE_SUSPECT)
			}
		}
	}
}

func (l *liveCluster) clientsWith(ok func(*follower) bool) bool {
	for _, f := range l.clients {
		if !ok(f) {
			return false
		}
	}
	return true
}

// measured runs a change, which returns when nodes and clients have noticed it, and prints a row
// with its cost beyond rest. The row excludes gossip: two nodes exchange their whole state about
// every two minutes, which would dominate this short period.
func (l *liveCluster) measured(what string, do func() (nodes, clients time.Duration)) {
	fmt.Fprintf(l.tell, "measuring %s\n", what)
	messages := l.clients[0].messages
	began, used, before, heard := time.Now(), cpu(), l.Traffic(), messages.Load()
	nodes, clients := do()
	time.Sleep(10 * time.Second) // until gossip has spread it
	took, sent := time.Since(began), l.Traffic().Since(before)
	share := took.Seconds() / restTime.Seconds()
	peers := sent.Peers - int64(share*float64(l.rest.Peers))
	used = cpu() - used - time.Duration(share*float64(l.restCPU))
	fmt.Fprintf(l.out, "| %s | %v | %v | %d | %d | %d | %v |\n", what, nodes.Round(time.Millisecond), clients.Round(time.Millisecond),
		max(0, peers), sent.Clients, messages.Load()-heard, max(0, used).Round(10*time.Millisecond))
}

// until returns the time until ok returns true.
func (l *liveCluster) until(began time.Time, what string, ok func() bool) time.Duration {
	for !ok() {
		if time.Since(began) > time.Minute {
			l.t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// change changes one shard of the map.
func (l *liveCluster) change() {
	l.measured("one shard is split", func() (nodes, clients time.Duration) {
		began := time.Now()
		s := l.Map().Shards[5]
		version := l.propose(shard.Split{Shard: s.ID, At: []string{liveKey(5) + "m"}})
		nodes = l.until(began, "all nodes have the map", func() bool {
			for _, name := range l.Names() {
				if l.Node(name).Map().Version < version {
					return false
				}
			}
			return true
		})
		clients = l.until(began, "the clients of the shard have the map", func() bool {
			return l.clientsWith(func(f *follower) bool { return f.shard != uint64(s.ID) || f.version.Load() >= version })
		})
		return nodes, clients
	})
}

// flap disconnects a node from the network until all others, and their clients, suspect it, and
// then reconnects it: it refutes the suspicion.
func (l *liveCluster) flap() {
	name := l.Names()[flapping]
	nodesKnow := func(state pb.MemberState) func() bool {
		return func() bool {
			for i, other := range l.Names() {
				for _, m := range l.Node(other).Members() {
					if i != flapping && m.GetName() == name && m.GetState() != state {
						return false
					}
				}
			}
			return true
		}
	}
	clientsKnow := func(suspect bool) func() bool {
		return func() bool {
			return l.clientsWith(func(f *follower) bool { return f.through == name || f.suspect.Load() == suspect })
		}
	}
	l.measured("a member is suspected, and then refutes it", func() (nodes, clients time.Duration) {
		l.Pause(name)
		began := time.Now()
		l.until(began, "all nodes know the suspicion", nodesKnow(pb.MemberState_MEMBER_STATE_SUSPECT))
		l.until(began, "all clients know the suspicion", clientsKnow(true))
		l.Resume(name)
		began = time.Now()
		nodes = l.until(began, "all nodes know the refutation", nodesKnow(pb.MemberState_MEMBER_STATE_ALIVE))
		return nodes, l.until(began, "all clients know the refutation", clientsKnow(false))
	})
}
