package differential

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// TierConfig configures StartTier.
type TierConfig struct {
	// Dir is the directory of data, logs and the program. Required.
	Dir string
	// Binary is cachenode's path; empty: it is built.
	Binary string
	// Shards and Replicas configure the cluster; 0: 8 shards on 2 of the three nodes, so that every
	// node has to forward some requests.
	Shards, Replicas int
	// Auth turns on authentication at both etcds.
	Auth bool
	// Args are additional arguments of every node.
	Args []string
}

// Tier is an etcd behind three cache nodes, and a separate plain etcd, all as processes.
type Tier struct {
	Sides
	Nodes *nodetest.Cluster
	// Etcd is the etcd behind the nodes.
	Etcd *etcdtest.Process

	plain *etcdtest.Process
	log   lastWords
}

// Logs returns the last log lines of the nodes and both etcds.
func (t *Tier) Logs() string {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	return fmt.Sprintf("%s--- both etcds\n%s", t.Nodes.Logs(5000), t.log.text)
}

// lastWords keeps the end of an output. Two processes may write to it.
type lastWords struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (l *lastWords) Write(p []byte) (int, error) {
	const most = 20_000
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-most):]
	return len(p), nil
}

// often is the interval of progress notifications to idle watches, from etcd and from nodes.
const often = "200ms"

// StartTier starts all processes and returns when they serve and every shard is at its target
// nodes.
func StartTier(ctx context.Context, cfg TierConfig) (t *Tier, err error) {
	if cfg.Shards == 0 {
		cfg.Shards, cfg.Replicas = 8, 2
	}
	t = &Tier{}
	defer func() {
		if err != nil {
			t.Stop()
		}
	}()
	for name, e := range map[string]**etcdtest.Process{"plain": &t.plain, "behind": &t.Etcd} {
		*e, err = etcdtest.NewProcess(ctx, etcdtest.ProcessConfig{
			Dir: filepath.Join(cfg.Dir, "etcd-"+name), Args: []string{"--watch-progress-notify-interval=" + often, "--log-level=error"},
			Log: &t.log,
		})
		if err == nil {
			err = (*e).Start(ctx)
		}
		if err != nil {
			return t, err
		}
	}
	if t.Plain, err = Dial(t.plain.Endpoint()); err != nil {
		return t, err
	}
	if t.Direct, err = Dial(t.Etcd.Endpoint()); err != nil {
		return t, err
	}
	t.Behind = NoneBehind(t.Etcd.Endpoint())
	for _, k := range firstKeys() { // the split keys of the shards
		if a := ask("KV.Put", &pb.PutRequest{Key: []byte(k)}).put(ctx, t.Direct); a.end != nil {
			return t, a.end.Err()
		}
	}
	if cfg.Binary == "" {
		if cfg.Binary, err = nodetest.Build(ctx, cfg.Dir); err != nil {
			return t, err
		}
	}
	args := append([]string{
		"--shards", strconv.Itoa(cfg.Shards), "--replicas", strconv.Itoa(cfg.Replicas),
		"--watch-progress-notify-interval", often,
	}, cfg.Args...)
	if cfg.Auth {
		if t.Root, err = EnableAuth(ctx, t.Plain, t.Direct); err != nil {
			return t, err
		}
		file := filepath.Join(cfg.Dir, "password")
		if err := os.WriteFile(file, []byte(t.Root), 0o600); err != nil {
			return t, err
		}
		args = append(args, "--etcd-user", "root", "--etcd-password-file", file)
	}
	t.Nodes, err = nodetest.Start(ctx, nodetest.Config{
		Binary: cfg.Binary, Dir: cfg.Dir, Etcd: "http://" + t.Etcd.Endpoint(), Args: args,
	})
	if err != nil {
		return t, err
	}
	if err := t.settle(ctx, cfg); err != nil {
		return t, fmt.Errorf("%w\n%s", err, t.Nodes.Logs(3000))
	}
	for _, n := range t.Nodes.Nodes {
		cc, err := Dial(n.Client)
		if err != nil {
			return t, err
		}
		t.Through, t.JSON = append(t.Through, cc), append(t.JSON, n.Client)
	}
	return t, nil
}

// EnableAuth turns on authentication at etcds, and returns the password of the user root, which has
// all rights.
func EnableAuth(ctx context.Context, etcds ...*grpc.ClientConn) (password string, err error) {
	const root = "of root"
	for _, cc := range etcds {
		for _, q := range []question{
			ask("Auth.UserAdd", &pb.AuthUserAddRequest{Name: "root", Password: root}),
			ask("Auth.UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}),
			ask("Auth.AuthEnable", &pb.AuthEnableRequest{}),
		} {
			if a := q.put(ctx, cc); a.end != nil {
				return "", fmt.Errorf("turn authentication on: %w", a.end.Err())
			}
		}
	}
	return root, nil
}

// settle waits until all shards are on their nodes, and reads their start keys.
func (t *Tier) settle(ctx context.Context, cfg TierConfig) error {
	as := client.Config{Endpoints: t.Nodes.Endpoints()}
	if t.Root != "" {
		as.Username, as.Password = "root", t.Root
	}
	c, err := client.New(as)
	if err != nil {
		return fmt.Errorf("connect to the nodes: %w", err)
	}
	defer func() { _ = c.Close() }() // the result is known
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := admin.New(c).ClusterStatus(ctx, 0)
		if err == nil {
			err = settled(status, cfg)
		}
		if err == nil {
			for _, s := range status.Map.Shards {
				if s.Range.Start != "" {
					t.Cuts = append(t.Cuts, s.Range.Start)
				}
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the shards: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// settled fails unless all shards are loaded on the nodes of the map.
func settled(status admin.ClusterStatus, cfg TierConfig) error {
	if n := len(status.Map.Shards); n != cfg.Shards {
		return fmt.Errorf("%d shards of %d", n, cfg.Shards)
	}
	loaded := map[uint64]int{}
	for _, m := range status.Members {
		if m.Status == nil {
			return fmt.Errorf("%s: %s", m.Member.Name, m.Error)
		}
		if m.Status.MapVersion != status.Map.Version {
			return fmt.Errorf("%s has map %d of %d", m.Member.Name, m.Status.MapVersion, status.Map.Version)
		}
		for _, r := range m.Status.Replicas {
			if r.Ready && !r.Relay {
				loaded[r.Shard]++
			}
		}
	}
	for _, s := range status.Map.Shards {
		if len(s.Replicas) != cfg.Replicas || loaded[s.ID] != cfg.Replicas {
			return fmt.Errorf("shard %d is on %v, %d loaded", s.ID, s.Replicas, loaded[s.ID])
		}
	}
	return nil
}

// Stop ends all processes. It may be called twice.
func (t *Tier) Stop() {
	for _, cc := range append([]*grpc.ClientConn{t.Plain, t.Direct}, t.Through...) {
		if cc != nil {
			_ = cc.Close() // it may already be closed
		}
	}
	if t.Nodes != nil {
		t.Nodes.Stop()
	}
	for _, e := range []*etcdtest.Process{t.plain, t.Etcd} {
		if e != nil {
			_ = e.Kill() // it may already have ended
		}
	}
}

// Dial connects to an etcd or a node, without a limit on the size of answers.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	cc, err := grpc.NewClient(
		"passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return cc, nil
}

// NoneBehind returns a function that waits until no watch of an etcd lags.
func NoneBehind(endpoint string) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			m, err := etcdtest.Scrape(ctx, endpoint)
			if err != nil {
				return fmt.Errorf("learn whether watches lag: %w", err)
			}
			lag := m["etcd_debugging_mvcc_slow_watcher_total"]
			if lag == nil {
				return errors.New("etcd has no metric of slow watchers any more")
			}
			if lag.GetMetric()[0].GetGauge().GetValue() == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond): // between two reads
			}
		}
	}
}
