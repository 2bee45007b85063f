package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"

	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// Node is one cache node, in a separate process.
type Node struct {
	Name string
	// Client, HTTP and the others are host:port.
	Client, peer, raft, gossip, HTTP string

	proc *process
	data string
	host *host // nil: without a network
}

// Cluster is the cache nodes of a run. It belongs to one goroutine.
type Cluster struct {
	Nodes []*Node
	// Spares are nodes that only a fault starts and stops. Clients do not have their addresses.
	Spares []*Node
}

// spares is their number.
const spares = 2

// newCluster describes the nodes of a run and starts none. Every node, spares included, has the
// settings of the shipped manifests, plus flags. If there are hosts, each node gets one.
func newCluster(cfg Config, bin string, flags, etcdEndpoints []string, hosts []*host) (*Cluster, error) {
	const each = 5
	n := cfg.Nodes + spares
	addrs, err := freeport.Take(n * each)
	if err != nil {
		return nil, err
	}
	shipped, err := nodetest.ReadShipped(context.Background())
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	for i := range n {
		a := addrs[i*each:]
		node := &Node{Name: "shardwatch-" + strconv.Itoa(i)} // as a StatefulSet names its pods
		if hosts != nil {
			node.host = hosts[i]
			a = nil
			for p := range each {
				a = append(a, node.host.ip+":"+strconv.Itoa(7400+p))
			}
		}
		node.Client, node.peer, node.raft, node.gossip, node.HTTP = a[0], a[1], a[2], a[3], a[4]
		node.data = filepath.Join(cfg.Dir, node.Name)
		if i < cfg.Nodes {
			c.Nodes = append(c.Nodes, node)
		} else {
			c.Spares = append(c.Spares, node)
		}
	}
	for _, node := range slices.Concat(c.Nodes, c.Spares) {
		args := []string{
			"run", "--name", node.Name, "--data-dir", node.data, "--etcd", strings.Join(etcdEndpoints, ","),
			"--listen", node.Client, "--peer-listen", node.peer, "--raft-listen", node.raft,
			"--gossip-listen", node.gossip, "--http-listen", node.HTTP,
			"--shards", strconv.Itoa(cfg.Shards), "--replicas", strconv.Itoa(cfg.Replicas),
			"--auto-owners=" + strconv.FormatBool(cfg.AutoOwners),
			"--watch-progress-notify-interval", "2s", "--max-staleness", etcdStaleness.String(),
			"--window-time", cfg.Window.String(), "--insecure", "--log-format", "text",
		}
		args = append(args, flags...)
		for _, other := range c.Nodes {
			if other != node {
				args = append(args, "--join", other.gossip)
			}
		}
		node.proc = &process{name: node.Name, bin: bin, args: args, env: shipped.Env, log: filepath.Join(cfg.Dir, node.Name+".log")}
		if node.host != nil {
			node.proc.bin, node.proc.args = node.host.run(bin, args)
		}
	}
	return c, nil
}

// Start starts the nodes that are not running.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if on, _ := n.proc.running(); !on {
			if err := n.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Start starts the node with its existing data.
func (n *Node) Start() error { return n.proc.start() }

// Kill ends the node with SIGKILL and returns once it is gone.
func (n *Node) Kill() error { return n.proc.kill() }

// Pause stops the node with SIGSTOP: its sockets stay open, but it does not answer.
func (n *Node) Pause() error { return n.proc.signal(syscall.SIGSTOP) }

// Continue wakes a paused node.
func (n *Node) Continue() error { return n.proc.signal(syscall.SIGCONT) }

// Drain drains the node with SIGTERM and returns once the process has ended.
func (n *Node) Drain() error {
	if err := n.proc.signal(syscall.SIGTERM); err != nil {
		return err
	}
	n.proc.wait()
	return nil
}

// Wipe removes the node's data directory. The node must not be running.
func (n *Node) Wipe() error { return os.RemoveAll(n.data) }

// ip returns the node's address.
func (n *Node) ip() string {
	ip, _, _ := strings.Cut(n.Client, ":")
	return ip
}

// gossipPort returns the port of its gossip, TCP and UDP.
func (n *Node) gossipPort() string {
	_, port, _ := strings.Cut(n.gossip, ":")
	return port
}

// Ready returns nil if the node reports that it is ready, and otherwise its reasons, or an
// [errHopeless] if it is not running.
func (n *Node) Ready(ctx context.Context) error {
	if on, err := n.proc.running(); !on {
		return fmt.Errorf("%w: %s is not running: %v", errHopeless, n.Name, err) //nolint:errorlint // how it ended, for people
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s is not ready: %s", n.Name, strings.TrimSpace(string(why)))
	}
	return nil
}

// WaitReady waits until all nodes are ready.
func (c *Cluster) WaitReady(ctx context.Context, within time.Duration) error {
	return poll(ctx, within, "all nodes to be ready", func() error {
		for _, n := range c.Nodes {
			if err := n.Ready(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// targets returns the nodes as clients see them.
func (c *Cluster) targets() []target {
	var out []target
	for _, n := range c.Nodes {
		out = append(out, target{n.Name, n.Client})
	}
	return out
}

// shardMap reads the map from the first node that answers.
func (c *Cluster) shardMap(ctx context.Context) (*pb.ShardMap, error) {
	var errs []error
	for _, n := range c.Nodes {
		m, err := n.shardMap(ctx)
		if err == nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("read the shard map: %w", errors.Join(errs...))
}

func (n *Node) shardMap(ctx context.Context) (*pb.ShardMap, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := pb.NewClusterServiceClient(conn).WatchShardMap(ctx, &pb.WatchShardMapRequest{})
	if err != nil {
		return nil, err
	}
	r, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	return r.GetMap(), nil
}

// dial connects to this node only.
func (n *Node) dial() (*grpc.ClientConn, error) {
	return dial(n.Client)
}

func dial(addr string) (*grpc.ClientConn, error) {
	again := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: silence}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

// leader returns the node that leads raft.
func (c *Cluster) leader(ctx context.Context) (*Node, error) {
	var errs []error
	for _, n := range c.Nodes {
		members, err := n.members(ctx)
		errs = append(errs, err)
		for _, m := range members {
			if i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.Name == m.GetName() }); m.GetLeader() && i >= 0 {
				return c.Nodes[i], nil
			}
		}
	}
	return nil, fmt.Errorf("find raft's leader: no node knows one: %w", errors.Join(errs...))
}

func (n *Node) members(ctx context.Context) ([]*pb.Member, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := pb.NewClusterServiceClient(conn).ListMembers(ctx, &pb.ListMembersRequest{})
	return r.GetMembers(), err
}

// Owned returns how many shards each node owns, by name.
func (c *Cluster) Owned(ctx context.Context) (map[string]int, error) {
	m, err := c.shardMap(ctx)
	if err != nil {
		return nil, err
	}
	owned := map[string]int{}
	for _, s := range m.GetShards() {
		if r := s.GetReplicas(); len(r) > 0 {
			owned[r[0]]++
		}
	}
	return owned, nil
}

// stop kills all nodes.
func (c *Cluster) stop() {
	for _, n := range slices.Concat(c.Nodes, c.Spares) {
		_ = n.Kill()
	}
}

// logs returns the end of every node's log, for a report of a failure.
func (c *Cluster) logs(bytes int64) string {
	var b strings.Builder
	for _, n := range slices.Concat(c.Nodes, c.Spares) {
		fmt.Fprintf(&b, "--- %s (%s)\n%s\n", n.Name, n.proc.log, n.proc.tail(bytes))
	}
	return b.String()
}

// progress returns the newest revision up to which the node has all events of any shard.
func (n *Node) progress(ctx context.Context) (newest int64, err error) {
	replicas, err := n.replicas(ctx)
	for _, r := range replicas {
		newest = max(newest, r.GetProgress())
	}
	return newest, err
}

// replicas returns the node's report of its copies of shards.
func (n *Node) replicas(ctx context.Context) ([]*pb.ReplicaStatus, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
	return r.GetReplicas(), err
}
