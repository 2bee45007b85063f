package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// store is the etcd of a run, with keys under /data/ that attackers may list.
type store struct {
	etcd   *etcdtest.Process
	client *clientv3.Client
	// forNodes is its address and flags for nodes; user is a user with all rights, if it has
	// authentication on.
	forNodes string
	flags    []string
	user     string
}

// perTxn is the number of keys per transaction, valueSize the bytes of each value.
const (
	perTxn    = 100
	valueSize = 1 << 10
)

// newStore starts etcd at an address, any if it is empty, and writes the given number of keys.
func newStore(ctx context.Context, dir string, keys int, addr string, args ...string) (_ *store, err error) {
	s := &store{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if s.etcd, err = etcdtest.NewProcess(ctx, etcdtest.ProcessConfig{
		Dir: filepath.Join(dir, "data"), ClientAddr: addr, Args: append([]string{"--quota-backend-bytes=8589934592"}, args...),
	}); err != nil {
		return nil, err
	}
	if err := s.etcd.Start(ctx); err != nil {
		return nil, err
	}
	s.forNodes = s.etcd.Endpoint()
	if s.client, err = s.connect(ctx); err != nil {
		return nil, err
	}
	value := strings.Repeat("v", valueSize)
	for at := 0; at < keys; {
		var ops []clientv3.Op
		for ; at < keys && len(ops) < perTxn; at++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/data/%08d", at), value))
		}
		if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return nil, fmt.Errorf("write keys: %w", err)
		}
	}
	if _, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: 36_000, ID: crowdLease}); err != nil {
		return nil, fmt.Errorf("grant a lease: %w", err)
	}
	if _, err := s.client.Put(ctx, "/crowd/leased", "", clientv3.WithLease(crowdLease)); err != nil {
		return nil, fmt.Errorf("write a key with a lease: %w", err)
	}
	return s, nil
}

// connect connects to etcd as its user.
func (s *store) connect(ctx context.Context) (*clientv3.Client, error) {
	cfg := clientv3.Config{Context: context.WithoutCancel(ctx), Endpoints: []string{s.etcd.Endpoint()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}
	if s.user != "" {
		cfg.Username, cfg.Password = s.user, password
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return c, nil
}

func (s *store) stop() {
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.etcd != nil {
		_ = s.etcd.Kill() // its data is not needed
	}
}

// site is one node with the addresses and certificates for its clients.
type site struct {
	node  *nodetest.Node
	nodes *nodetest.Cluster
	etcd  string
	pki   pki // empty: without TLS
	limit limit
	// memory is the limit in bytes, dir the directory of the node's data and log.
	memory int64
	dir    string
}

// newSite starts a node without data, with the settings and the memory limit of the shipped
// manifests.
func newSite(ctx context.Context, cfg *Config, s *store, around scene, mode, dir string) (_ *site, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	shipped := cfg.shipped
	t := &site{etcd: s.etcd.Endpoint(), memory: shipped.Memory, dir: dir}
	nodes := nodetest.Config{Binary: cfg.Cachenode, Dir: dir, Etcd: s.forNodes, Nodes: 1, HTTPS: mode == secure, Args: s.flags}
	if around == bereft || around == joined {
		nodes.Nodes, nodes.Args = 3, apart()
	}
	for _, v := range shipped.Env {
		if !strings.HasPrefix(v, "CACHENODE_JOIN=") { // it has no other nodes
			nodes.Env = append(nodes.Env, v)
		}
	}
	if mode == secure {
		if t.pki, err = newPKI(filepath.Join(dir, "pki")); err != nil {
			return nil, fmt.Errorf("make certificates: %w", err)
		}
		nodes.Args = append(nodes.Args, t.pki.flags()...)
	}
	var without error
	if t.limit, without = newLimit(shipped.Memory); without != nil {
		cfg.Say("the node runs without a cgroup, and counts as ended above %s: %v", mib(shipped.Memory), without)
		nodes.Env = append(nodes.Env, "GOMEMLIMIT="+strconv.FormatInt(shipped.Memory/10*9, 10)) // as cachenode sets it on its own
	}
	nodes.Under = append(t.limit.command(), cfg.under...)
	if t.nodes, err = nodetest.Start(ctx, nodes); err != nil {
		t.limit.remove()
		return nil, err
	}
	t.node = t.nodes.Nodes[0]
	if around == bereft {
		if err := t.leave(ctx); err != nil {
			t.stop()
			return nil, err
		}
	}
	return t, nil
}

// order returns the order for an attacker.
func (t *site) order(a *Attack) order {
	return order{Attack: a.Name, Client: t.node.Client, Peer: t.node.Peer, HTTP: t.node.HTTP, Etcd: t.etcd, PKI: t.pki}
}

func (t *site) stop() {
	t.nodes.Stop()
	t.limit.remove()
}

// tls returns the TLS configuration of a client with a right; nil: without TLS.
func (t *site) tls(r right) (*tls.Config, error) {
	if t.pki == "" {
		return nil, nil //nolint:nilnil // no TLS is a configuration
	}
	return t.pki.client(r)
}

func creds(cfg *tls.Config) credentials.TransportCredentials {
	if cfg == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(cfg)
}

// peak returns the node's maximum memory since resetPeak.
func (t *site) peak() (int64, error) {
	pid := t.node.PID()
	if pid == 0 {
		return 0, errEnded
	}
	peaks, err := proc.Peaks([]int{pid})
	if err != nil {
		return 0, err
	}
	return peaks[0], nil
}

func (t *site) resetPeak() error { return proc.ResetPeaks([]int{t.node.PID()}) }

// errEnded reports that the node has ended.
var errEnded = errors.New("the node has ended")

// disk returns the size of the node's log in bytes.
func (t *site) disk() int64 {
	info, err := os.Stat(t.node.LogFile())
	if err != nil {
		return 0
	}
	return info.Size()
}

// mib formats bytes.
func mib(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }
