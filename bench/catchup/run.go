package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// prefix is the prefix of all keys.
const prefix = "/registry/pods/"

func keyName(i int) string { return fmt.Sprintf("%sns-%02d/pod-%07d", prefix, i%20, i) }

// row is the cost of one way.
type row struct {
	way     way
	clients int
	bytes   int64
	cpu     time.Duration // of the servers that clients are connected to
	behind  time.Duration // of the etcd that the cache nodes read
	wall    time.Duration
}

// bench has the running processes and the expected result.
type bench struct {
	cfg  config
	etcd *etcdtest.Process
	tier *nodetest.Cluster
	cli  *clientv3.Client

	left int64 // the revision of the clients when they left
	now  int64
	want map[string]int64 // the changes since: the revision, or 0 if the key is deleted
}

// run measures every way.
func run(ctx context.Context, cfg config) (rows []row, err error) {
	b := &bench{cfg: cfg}
	data := filepath.Join(cfg.dir, "etcd")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if b.cfg.cachenode == "" {
		if b.cfg.cachenode, err = nodetest.Build(ctx, cfg.dir); err != nil {
			return nil, err
		}
	}
	if b.etcd, err = etcdtest.NewProcess(ctx, etcdtest.ProcessConfig{Dir: data, Args: []string{
		"--quota-backend-bytes=8589934592", "--snapshot-count=10000",
	}}); err != nil {
		return nil, err
	}
	if err := b.etcd.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.etcd.Kill()) }()
	if b.cli, err = clientv3.New(clientv3.Config{Endpoints: []string{b.etcd.Endpoint()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}); err != nil {
		return nil, err
	}
	defer b.cli.Close()
	if err := b.fill(ctx); err != nil {
		return nil, err
	}
	cfg.say("starting three cache nodes")
	// A small window, so that the clients are below it: after ten minutes they would be anyway.
	if b.tier, err = nodetest.Start(ctx, nodetest.Config{
		Binary: b.cfg.cachenode, Dir: cfg.dir, Etcd: b.etcd.Endpoint(), Args: []string{"--window-bytes", "1MiB"},
	}); err != nil {
		return nil, err
	}
	defer b.tier.Stop()
	if err := b.change(ctx); err != nil {
		return nil, err
	}
	for _, n := range cfg.clients {
		for _, w := range ways() {
			r, err := b.measure(ctx, w, n)
			if err != nil {
				return nil, fmt.Errorf("%s, %d clients: %w", w.name, n, err)
			}
			cfg.say("%s, %d clients: %s, %v of CPU", w.name, n, size(r.bytes), r.cpu)
			rows = append(rows, r)
		}
	}
	r, err := b.restart(ctx)
	return append(rows, r), err
}

// restart kills all cache nodes and starts them again. A client that left before must catch up by
// the changes, as without the restart.
func (b *bench) restart(ctx context.Context) (row, error) {
	out := row{way: way{name: "cache nodes: all killed, ready again", tier: true}, clients: 1}
	for _, n := range b.tier.Nodes {
		n.Kill()
	}
	began := time.Now()
	behind, err := proc.CPU([]int{b.etcd.PID()})
	if err != nil {
		return out, err
	}
	for _, n := range b.tier.Nodes {
		if err := n.Start(); err != nil {
			return out, err
		}
	}
	if err := b.tier.WaitReady(ctx); err != nil {
		return out, err
	}
	out.wall = time.Since(began)
	var err1, err2 error
	out.behind, err1 = proc.CPU([]int{b.etcd.PID()})
	out.behind -= behind
	out.cpu, err2 = proc.CPU(b.pids())
	if err := errors.Join(err1, err2); err != nil {
		return out, err
	}
	b.cfg.say("%s after %v", out.way.name, out.wall)
	for _, w := range ways() {
		if w.tier && w.exact {
			_, err = b.measure(ctx, w, 1)
		}
	}
	return out, err
}

// pids returns the process IDs of the cache nodes.
func (b *bench) pids() []int {
	var out []int
	for _, node := range b.tier.Nodes {
		out = append(out, node.PID())
	}
	return out
}

// fill writes the keys.
func (b *bench) fill(ctx context.Context) error {
	b.cfg.say("writing %d keys", b.cfg.keys)
	const batch = 100
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for at := 0; at < b.cfg.keys; at += batch {
		g.Go(func() error {
			var ops []clientv3.Op
			for i := at; i < min(at+batch, b.cfg.keys); i++ {
				ops = append(ops, clientv3.OpPut(keyName(i), string(make([]byte, b.cfg.valueSize))))
			}
			_, err := b.cli.Txn(ctx).Then(ops...).Commit()
			return err
		})
	}
	return g.Wait()
}

// change writes while the clients are away, and records the changes.
func (b *bench) change(ctx context.Context) error {
	b.cfg.say("writing %d revisions", b.cfg.revisions)
	r, err := b.cli.Get(ctx, "x")
	if err != nil {
		return err
	}
	b.left, b.want = r.Header.GetRevision(), make(map[string]int64)
	step := b.cfg.keys / b.cfg.changed
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range b.cfg.revisions {
		key, last := keyName(i%b.cfg.changed*step), i >= b.cfg.revisions-b.cfg.changed
		g.Go(func() error {
			if last && i%100 == 0 {
				_, err := b.cli.Delete(gctx, key)
				mu.Lock()
				defer mu.Unlock()
				b.want[key] = 0
				return err
			}
			r, err := b.cli.Put(gctx, key, string(make([]byte, b.cfg.valueSize)))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if was, is := b.want[key]; !is || was > 0 {
				b.want[key] = max(was, r.Header.GetRevision())
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if r, err = b.cli.Get(ctx, "x"); err != nil {
		return err
	}
	b.now = r.Header.GetRevision()
	return b.settle(ctx)
}

// settle waits until every node has all revisions.
func (b *bench) settle(ctx context.Context) error {
	for _, endpoint := range b.tier.Endpoints() {
		cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		_, err = cli.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err = errors.Join(err, cli.Close()); err != nil {
			return err
		}
	}
	return nil
}

// measure lets n clients return by a way.
func (b *bench) measure(ctx context.Context, w way, n int) (row, error) {
	out := row{way: w, clients: n}
	servers, behind := []int{b.etcd.PID()}, []int(nil)
	endpoints := []string{b.etcd.Endpoint()}
	if w.tier {
		endpoints = b.tier.Endpoints()
		servers, behind = b.pids(), []int{b.etcd.PID()}
	}
	cpu, err1 := proc.CPU(servers)
	back, err2 := proc.CPU(behind)
	if err := errors.Join(err1, err2); err != nil {
		return out, err
	}
	began := time.Now()
	var bytes atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			conn, err := dial(endpoints[i%len(endpoints)], &bytes)
			if err != nil {
				return err
			}
			defer conn.Close()
			got, err := w.come(gctx, b, conn)
			if err != nil {
				return err
			}
			return b.check(got, w)
		})
	}
	if err := g.Wait(); err != nil {
		return out, err
	}
	out.wall, out.bytes = time.Since(began), bytes.Load()
	out.cpu, err1 = proc.CPU(servers)
	out.behind, err2 = proc.CPU(behind)
	out.cpu, out.behind = out.cpu-cpu, out.behind-back
	return out, errors.Join(err1, err2)
}

// check compares the changes that a client received with the expected ones.
func (b *bench) check(got map[string]int64, w way) error {
	if w.exact && len(got) != len(b.want) {
		return fmt.Errorf("%d keys have changed, the client received %d", len(b.want), len(got))
	}
	for key, revision := range maps.All(b.want) {
		has, told := got[key]
		if !w.exact && revision == 0 && !told { // a list does not include it
			continue
		}
		if !told || has != revision {
			return fmt.Errorf("%s was changed at revision %d (0: deleted), the client received %d", key, revision, has)
		}
	}
	return nil
}
