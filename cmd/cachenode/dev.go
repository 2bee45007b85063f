//go:build !nodev

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/testing/devetcd"
)

// runDev runs etcd and the nodes of cfg with their data under cfg.DataDir until
// ctx ends, and prints their addresses on out. cfg is valid and has a DataDir.
func runDev(ctx context.Context, cfg config.Dev, out io.Writer, log *slog.Logger) error {
	began := time.Now()
	// etcd outlives the nodes: they drain while it still answers.
	etcdCtx, stopEtcd := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEtcd()
	g, gctx := errgroup.WithContext(ctx)
	etcdEnded := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		etcdEnded <- devetcd.Run(etcdCtx, devetcd.Config{
			Dir: filepath.Join(cfg.DataDir, "etcd"), ClientAddr: strings.TrimPrefix(cfg.EtcdEndpoint(), "http://"),
			Ready: func(string) { close(ready) }, Logger: log,
		})
	}()
	select {
	case err := <-etcdEnded:
		return fmt.Errorf("embedded etcd: %w", err)
	case <-ready:
	case <-ctx.Done():
		stopEtcd()
		return <-etcdEnded
	}
	var endpoints, probes []string
	for i := range cfg.Nodes {
		nc := cfg.Node(i, cfg.DataDir)
		endpoints = append(endpoints, nc.Listen.Client)
		probes = append(probes, "http://"+nc.Listen.HTTP+"/readyz")
		g.Go(func() error { return serve(gctx, nc, log, nil, quicker) })
	}
	g.Go(func() error {
		if !awaitReady(gctx, probes) {
			return nil // ctx has ended, or a node has failed and returns its error
		}
		banner(out, cfg, endpoints, probes, time.Since(began))
		if cfg.Demo {
			return demo(gctx, endpoints, log)
		}
		return nil
	})
	err := g.Wait()
	stopEtcd()
	if stopped := <-etcdEnded; err == nil && stopped != nil {
		err = fmt.Errorf("embedded etcd: %w", stopped)
	}
	return err
}

// awaitReady waits until every node reports that it is ready. It returns false if
// ctx ends first.
func awaitReady(ctx context.Context, probes []string) bool {
	for _, url := range probes {
		for !answersOK(ctx, url) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}

func answersOK(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode == http.StatusOK
}

// banner prints all addresses and an example command.
func banner(out io.Writer, cfg config.Dev, endpoints, probes []string, took time.Duration) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nShardwatch is ready (%v): %d nodes in front of one etcd.\n\n", took.Round(100*time.Millisecond), cfg.Nodes)
	fmt.Fprintf(&b, "  etcd      %s\n", strings.TrimPrefix(cfg.EtcdEndpoint(), "http://"))
	for i, e := range endpoints {
		fmt.Fprintf(&b, "  node-%-4d %s   %s\n", i+1, e, strings.TrimSuffix(probes[i], "readyz"))
	}
	fmt.Fprintf(&b, "  data      %s\n\n", cfg.DataDir)
	prefix := ""
	if endpoints[0] != "127.0.0.1:7400" {
		prefix = "CACHECTL_ENDPOINTS=" + endpoints[0] + " "
	}
	what := "watch --prefix /"
	if cfg.Demo {
		what = "watch --prefix /demo/"
		b.WriteString("A small workload runs under /demo/.\n")
	}
	fmt.Fprintf(&b, "Try in another terminal:\n\n  %sgo run ./cmd/cachectl %s\n\nCtrl-C stops the cluster.\n", prefix, what)
	_, _ = io.WriteString(out, b.String()) // there is no other output for an error
}

// quicker shortens timings, which a cluster on one machine does not need as long
// as a cluster on a network.
func quicker(nc *node.Config) {
	nc.TunePlacement = func(c *placement.Config) {
		c.Heartbeat, c.Election = 300*time.Millisecond, 300*time.Millisecond
		c.Settle, c.SplitCheck = 300*time.Millisecond, 2*time.Second
	}
	nc.TuneMembership = func(c *membership.Config) { c.RetryInterval = 200 * time.Millisecond }
}
