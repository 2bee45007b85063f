package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/bench/internal/proc"
	"github.com/shardwatch/shardwatch/internal/etcdtest"
	"github.com/shardwatch/shardwatch/internal/nodetest"
)

// side is one of the two that are compared: etcd, or the tier and the etcd
// behind it. Each has an etcd of its own, with the same keys.
type side struct {
	name      string // "etcd" or "tier"
	cachenode string // the program
	dir       string
	etcd      *etcdtest.Process
	tier      *nodetest.Cluster // nil: etcd alone, or not running
	logs      int
}

const (
	sideEtcd = "etcd"
	sideTier = "tier"
)

// newSide describes a side and starts nothing.
func newSide(ctx context.Context, name, cachenode, dir string) (*side, error) {
	data := filepath.Join(dir, name+"-etcd")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("make etcd's directory: %w", err)
	}
	e, err := etcdtest.NewProcess(ctx, etcdtest.ProcessConfig{Dir: data, Args: []string{
		"--quota-backend-bytes=8589934592", "--snapshot-count=10000",
	}})
	if err != nil {
		return nil, err
	}
	return &side{name: name, cachenode: cachenode, dir: dir, etcd: e}, nil
}

// start runs fresh processes on the data that is there.
func (s *side) start(ctx context.Context) error {
	if err := s.etcd.Start(ctx); err != nil {
		return err
	}
	if s.name == sideEtcd {
		return nil
	}
	s.logs++
	dir := filepath.Join(s.dir, fmt.Sprintf("tier-%d", s.logs))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		s.tier, err = nodetest.Start(ctx, nodetest.Config{Binary: s.cachenode, Dir: dir, Etcd: s.etcd.Endpoint()})
	}
	return err
}

func (s *side) stop() error {
	if s.tier != nil {
		s.tier.Stop()
		s.tier = nil
	}
	return s.etcd.Kill()
}

// endpoints are where clients connect.
func (s *side) endpoints() []string {
	if s.tier != nil {
		return s.tier.Endpoints()
	}
	return []string{s.etcd.Endpoint()}
}

// servers are the processes that clients are connected to.
func (s *side) servers() []int {
	if s.tier == nil {
		return []int{s.etcd.PID()}
	}
	var pids []int
	for _, n := range s.tier.Nodes {
		pids = append(pids, n.PID())
	}
	return pids
}

// behind is the etcd that the servers read from, if any.
func (s *side) behind() []int {
	if s.tier == nil {
		return nil
	}
	return []int{s.etcd.PID()}
}

// writer returns a client of the side's etcd, for writes: they are etcd's work
// on both sides.
func (s *side) writer() (*clientv3.Client, error) {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.etcd.Endpoint()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return cli, nil
}

// dial connects to one endpoint.
func dial(endpoint string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(1<<31-1)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return conn, nil
}

// keyPrefix is that of all keys that are listed.
const keyPrefix = "/registry/pods/"

func keyName(i int) string { return fmt.Sprintf("%sns-%02d/pod-%07d", keyPrefix, i%20, i) }

// fill writes keys with values of so many bytes.
func (s *side) fill(ctx context.Context, keys, size int) error {
	cli, err := s.writer()
	if err != nil {
		return err
	}
	defer cli.Close()
	const batch = 100
	for at := 0; at < keys; at += batch {
		var ops []clientv3.Op
		for i := at; i < min(at+batch, keys); i++ {
			ops = append(ops, clientv3.OpPut(keyName(i), value(i, size)))
		}
		if _, err := cli.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("write keys: %w", err)
		}
	}
	return nil
}

// value is text of so many bytes, another one for each i.
func value(i, size int) string {
	var b strings.Builder
	for n := uint32(i)*2654435761 + 1; b.Len() < size; n = n*1664525 + 1013904223 {
		fmt.Fprintf(&b, "%08x", n)
	}
	return b.String()[:size]
}

// measured is what a load cost a side.
type measured struct {
	CPU    time.Duration `json:"cpu_ns"`        // of the servers
	Behind time.Duration `json:"behind_cpu_ns"` // of the etcd behind the tier
	Wall   time.Duration `json:"wall_ns"`
	Peaks  []int64       `json:"peaks_bytes"` // of each server
}

// peak is the memory of all servers together, each at its own peak.
func (m measured) peak() int64 {
	var sum int64
	for _, p := range m.Peaks {
		sum += p
	}
	return sum
}

// measure runs a load.
func (s *side) measure(load func() error) (m measured, err error) {
	if err := proc.ResetPeaks(s.servers()); err != nil {
		return m, err
	}
	servers, err1 := proc.CPU(s.servers())
	behind, err2 := proc.CPU(s.behind())
	if err := errors.Join(err1, err2); err != nil {
		return m, err
	}
	began := time.Now()
	if err := load(); err != nil {
		return m, err
	}
	m.Wall = time.Since(began)
	m.CPU, err1 = proc.CPU(s.servers())
	m.Behind, err2 = proc.CPU(s.behind())
	m.CPU, m.Behind = m.CPU-servers, m.Behind-behind
	var err3 error
	m.Peaks, err3 = proc.Peaks(s.servers())
	return m, errors.Join(err1, err2, err3)
}
