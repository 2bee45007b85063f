package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// The kinds of sides.
const (
	sideEtcd   = "etcd"
	sideProxy  = "proxy"  // etcd's grpc-proxy in front of an etcd
	sideTier   = "tier"   // three cache nodes in front of an etcd, through etcd's API
	sideNative = "native" // the same nodes, through their own API
	sideBare   = "grpc"   // a bare grpc-go server with pre-encoded bytes; see bare
	sideNATS   = "nats"   // a nats-server, without etcd and without JetStream
	sideTCP    = "tcp"    // a write of the same bytes to each connection; see floor
)

func kinds() []string {
	return []string{sideEtcd, sideProxy, sideTier, sideNative, sideBare, sideNATS, sideTCP}
}

// cached reports whether a kind has cache nodes.
func cached(kind string) bool { return kind == sideTier || kind == sideNative }

// side is a system under measurement: separate processes with separate data. Its methods belong to
// one goroutine.
type side struct {
	kind  string
	etcd  *etcdtest.Process // nil: none
	nodes *nodetest.Cluster // nil: none
	front *proc.Process     // the proxy or the bare server; nil: none
	ends  []string          // addresses for clients
	began time.Time
	store string    // address for writes: they are etcd's work on every side
	tls   *identity // nil: plain text

	published atomic.Int64 // the revision of the last event of a side without etcd's API
}

// startSide runs a side in a new directory.
func startSide(ctx context.Context, cfg *config, kind, dir string, as setup) (_ *side, err error) {
	s := &side{kind: kind, tls: cfg.identity, began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the side %s: %w", kind, err), s.stop())
		}
	}()
	if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o700); err != nil {
		return nil, err
	}
	addrs, err := freeport.Take(3)
	if err != nil {
		return nil, err
	}
	plain, secure, front := addrs[0], addrs[1], addrs[2]
	if program, args := s.single(cfg, front); program != "" {
		s.ends, s.store = []string{front}, front
		if s.front, err = proc.Start(filepath.Join(dir, kind+".log"), program, args...); err != nil {
			return nil, err
		}
		return s, s.answers(ctx)
	}
	args := []string{"--quota-backend-bytes=8589934592", "--snapshot-count=10000"}
	if s.tls != nil {
		args = append(args, "--listen-client-urls=http://"+plain+",https://"+secure, "--cert-file="+s.tls.cert, "--key-file="+s.tls.key)
	}
	if s.etcd, err = etcdtest.NewProcess(ctx, etcdtest.ProcessConfig{Dir: filepath.Join(dir, "etcd"), Binary: cfg.etcd, ClientAddr: plain, Args: args}); err != nil {
		return nil, err
	}
	if err := s.etcd.Start(ctx); err != nil {
		return nil, err
	}
	s.store, s.ends = plain, []string{plain}
	if err := s.fill(ctx, as); err != nil {
		return nil, err
	}
	switch {
	case kind == sideEtcd && s.tls != nil:
		s.ends = []string{secure}
	case kind == sideProxy:
		s.ends = []string{front}
		args := []string{"grpc-proxy", "start", "--endpoints=" + plain, "--listen-addr=" + front, "--advertise-client-url=" + front, "--data-dir=" + filepath.Join(dir, "proxy")}
		if s.tls != nil {
			args = append(args, "--cert-file="+s.tls.cert, "--key-file="+s.tls.key)
		}
		if s.front, err = proc.Start(filepath.Join(dir, "proxy.log"), cfg.etcd, args...); err != nil {
			return nil, err
		}
	case cached(kind):
		nodeArgs := slices.Clone(as.nodeArgs)
		if s.tls != nil {
			nodeArgs = append(nodeArgs, "--tls-cert", s.tls.cert, "--tls-key", s.tls.key, "--address-handshakes=0") // all clients have one address
		}
		if s.nodes, err = nodetest.Start(ctx, nodetest.Config{Binary: cfg.cachenode, Dir: dir, Etcd: plain, Args: nodeArgs}); err != nil {
			return nil, err
		}
		s.ends = s.nodes.Endpoints()
	}
	return s, s.answers(ctx)
}

// single returns the command of a side that is one process without an etcd, at an address; "" for
// other sides.
func (s *side) single(cfg *config, address string) (program string, args []string) {
	switch s.kind {
	case sideBare, sideTCP:
		return cfg.self, append([]string{"serve", s.kind, address}, s.tls.files()...)
	case sideNATS:
		args = []string{"--net", "127.0.0.1", "--port", address[strings.LastIndexByte(address, ':')+1:]}
		if s.tls != nil {
			args = append(args, "--tls", "--tlscert", s.tls.cert, "--tlskey", s.tls.key)
		}
		return cfg.nats, args
	}
	return "", nil
}

// answers waits until every server with clients has answered once.
func (s *side) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.messaging() {
		return s.accepts(ctx)
	}
	for _, end := range s.ends {
		conn, err := s.dial(end)
		if err != nil {
			return err
		}
		var r ranged
		err = conn.Invoke(ctx, rangeMethod, &etcdserverpb.RangeRequest{Key: []byte("x")}, &r, grpc.WaitForReady(true))
		if err = errors.Join(err, conn.Close()); err != nil {
			return fmt.Errorf("wait for %s: %w", end, err)
		}
	}
	return nil
}

// stop ends all processes. It may be called twice.
func (s *side) stop() error {
	if s.nodes != nil {
		s.nodes.Stop()
	}
	if s.front != nil {
		s.front.Kill()
	}
	if s.etcd != nil {
		return s.etcd.Kill()
	}
	return nil
}

// servers returns the processes that clients connect to.
func (s *side) servers() (pids []int) {
	switch {
	case s.nodes != nil:
		for _, n := range s.nodes.Nodes {
			if pid := n.PID(); pid != 0 {
				pids = append(pids, pid)
			}
		}
	case s.front != nil:
		pids = append(pids, s.front.PID())
	default:
		pids = append(pids, s.etcd.PID())
	}
	return pids
}

// behind returns the etcd that the servers read from, if any.
func (s *side) behind() []int {
	if s.etcd == nil || s.kind == sideEtcd {
		return nil
	}
	return []int{s.etcd.PID()}
}

// all returns the side's processes.
func (s *side) all() []int { return slices.Concat(s.servers(), s.behind()) }

// dial connects to an endpoint.
func (s *side) dial(end string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if s.tls != nil {
		creds = credentials.NewTLS(s.tls.client())
	}
	conn, err := grpc.NewClient("passthrough:///"+end, append([]grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(1<<31-1),
	)}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", end, err)
	}
	return conn, nil
}

// owner returns the endpoint of the node that watches etcd for a range of keys, or "" if there is
// none: the range is in several shards.
func (s *side) owner(ctx context.Context, first, last string) (string, error) {
	creds := insecure.NewCredentials()
	if s.tls != nil {
		creds = credentials.NewTLS(s.tls.client())
	}
	conn, err := grpc.NewClient("passthrough:///"+s.ends[0], grpc.WithTransportCredentials(creds))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := shardwatchv1.NewClusterServiceClient(conn).WatchShardMap(ctx, &shardwatchv1.WatchShardMapRequest{})
	if err != nil {
		return "", fmt.Errorf("ask for the shard map: %w", err)
	}
	r, err := stream.Recv()
	if err != nil {
		return "", fmt.Errorf("ask for the shard map: %w", err)
	}
	for _, shard := range r.GetMap().GetShards() {
		end := string(shard.GetRangeEnd())
		if string(shard.GetKey()) > first || (end != "\x00" && end <= last) || len(shard.GetReplicas()) == 0 {
			continue
		}
		for _, m := range r.GetMembers() {
			if m.GetName() == shard.GetReplicas()[0] {
				return m.GetClientAddress(), nil
			}
		}
	}
	return "", nil
}

// keyPrefix is the prefix of all listed keys.
const keyPrefix = "/registry/pods/"

func keyName(i int) string { return fmt.Sprintf("%sns-%02d/pod-%07d", keyPrefix, i%20, i) }

// fill writes keys.
func (s *side) fill(ctx context.Context, as setup) error {
	cli, err := s.client()
	if err != nil {
		return err
	}
	defer cli.Close()
	const batch = 100
	for at := 0; at < as.keys; at += batch {
		var ops []clientv3.Op
		for i := at; i < min(at+batch, as.keys); i++ {
			ops = append(ops, clientv3.OpPut(as.key(i), value(i, as.size)))
		}
		if _, err := cli.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("write keys: %w", err)
		}
	}
	return nil
}

// value returns text of size bytes, different for each i.
func value(i, size int) string {
	var b strings.Builder
	for n := uint32(i)*2654435761 + 1; b.Len() < size; n = n*1664525 + 1013904223 {
		fmt.Fprintf(&b, "%08x", n)
	}
	return b.String()[:size]
}

// used is the CPU time and memory of the processes of a side.
type used struct {
	all, behind, wall time.Duration // CPU of all and of the etcd behind; time
}

func (s *side) used() (u used, err error) {
	var err1, err2 error
	u.all, err1 = proc.CPU(s.all())
	u.behind, err2 = proc.CPU(s.behind())
	u.wall = time.Since(s.began)
	return u, errors.Join(err1, err2)
}

// since returns the usage since then.
func (s *side) since(then used) (used, error) {
	now, err := s.used()
	return used{all: now.all - then.all, behind: now.behind - then.behind, wall: now.wall - then.wall}, err
}
