package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/files/reload"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/version"
)

// runNode runs one node until ctx ends, then drains it, and returns nil if this
// succeeds. cfg is valid.
func runNode(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	useAllProcessors()
	limitMemory(log, memlimit.FromCgroup)
	if cfg.Zone == "" && cfg.Kube.Listen == "" {
		log.Info("no failure domain is set: replicas and voters are not spread for this node; see --zone")
	}
	floor := allocateFloor()
	defer runtime.KeepAlive(floor)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	running, stop := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { adaptProcessors(running, cpuTime) })
	beside.Go(func() { returnMemory(running) })
	defer beside.Wait()
	defer stop()
	if cfg.Kube.Listen != "" {
		return serveKube(ctx, cfg, log, hangups)
	}
	return serve(ctx, cfg, log, hangups, nil)
}

// serve runs one node. Each hangup makes it reload its files. tune may change the
// timings of the configuration.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger, hangups <-chan os.Signal, tune func(*node.Config)) error {
	m, err := loadMaterial(cfg)
	if err != nil {
		return err
	}
	store, err := dialEtcd(cfg, m.etcd, log)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	nc, err := nodeConfig(cfg, store, log)
	if err != nil {
		return err
	}
	if err := m.secure(cfg, &nc); err != nil {
		return err
	}
	if tune != nil {
		tune(&nc)
	}
	if cfg.AuditLog != "" {
		file, err := openAudit(cfg.AuditLog)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		nc.Audit = newLogger(file, slog.LevelInfo, config.FormatJSON).With("node", cfg.Name)
	}
	if nc.Listeners, err = listen(ctx, cfg.Listen); err != nil {
		return err
	}
	nc.Listeners = m.listeners(nc.Listeners)
	tel, err := telemetry.New(telemetry.Config{
		ServiceName: "cachenode", Version: version.String(), Node: cfg.Name,
		Endpoint: cfg.OTLPEndpoint, Getenv: os.Getenv, Logger: log, Pprof: cfg.Pprof,
	})
	if err != nil {
		return err
	}
	defer func() {
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), telemetryLast)
		defer stop()
		if err := tel.Shutdown(last); err != nil {
			log.Warn("the collector did not accept the last data", "error", err)
		}
	}()
	nc.Meter, nc.Spans = tel.Meter("node"), tel.Spans()
	n, err := node.New(nc)
	if err != nil {
		return err
	}
	n.SetHTTP(tel.Handler(n.NotReady, n.Stuck))
	log.Info("starting", "node", cfg.Name, "version", version.String(), "clients", nc.Self.ClientAddress, "etcd", cfg.Etcd.Endpoints)
	files := reload.New(reload.Every, log, m.parts(cfg, n)...)
	if err := files.Register(tel.Meter("config")); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return files.Run(running, hangups) })
	g.Go(func() error {
		defer stop()
		return n.Run(ctx)
	})
	return g.Wait()
}

// telemetryLast bounds how long a stopping node waits for the telemetry collector.
const telemetryLast = 2 * time.Second

// openAudit opens the audit log for appending, so that log rotation may truncate it.
func openAudit(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	return file, nil
}

// dialEtcd creates the client of etcd, which need not be reachable yet.
func dialEtcd(cfg config.Config, material *tlsconf.Material, log *slog.Logger) (*etcd.Client, error) {
	ec := etcd.Defaults()
	ec.Endpoints, ec.Username, ec.Logger = cfg.Etcd.Endpoints, cfg.Etcd.User, log
	if cfg.Etcd.PasswordFile != "" {
		text, err := os.ReadFile(cfg.Etcd.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-password-file: %w", err)
		}
		ec.Password = strings.TrimRight(string(text), "\r\n")
	}
	if material != nil {
		ec.TLS = func() *tls.Config { return material.Client(tls.VersionTLS12) }
	}
	return etcd.New(ec)
}

// elastic sets the leader's rules from the settings.
func elastic(e config.Elastic, nc *node.Config) {
	b := &nc.Balance
	b.SplitBytes, b.SplitEvents, b.SplitWatches = int64(e.SplitBytes), float64(e.SplitEvents), e.SplitWatches
	b.Split, b.Merge, b.Owners, b.MaxShards = e.AutoSplit, e.AutoMerge, e.AutoOwners, e.MaxShards
	// MinAge: shards that an operator has split must not be merged as soon as they are idle.
	b.Patience, b.MergePatience, b.MinAge = e.SplitAfter, e.MergeAfter, 2*e.MergeAfter
	b.ReplicaWatches, b.MaxExtraReplicas = e.ReplicaWatches, e.MaxExtraReplicas
	nc.MaxMoves, nc.MaxNodeMoves, nc.ReplaceVoterAfter = e.MaxMoves, e.MaxNodeMoves, e.ReplaceVoterAfter
}

// anyAge stands for "no bound": longer than any node runs.
const anyAge = time.Duration(math.MaxInt64)

func nodeConfig(cfg config.Config, store *etcd.Client, log *slog.Logger) (node.Config, error) {
	at, err := cfg.Advertised(config.LocalAddresses)
	if err != nil {
		return node.Config{}, err
	}
	nc := node.Defaults()
	nc.Self = shard.Member{
		Name: shard.NodeID(cfg.Name), Zone: cfg.Zone, Weight: cfg.Weight, Version: version.String(), BootstrapExpect: cfg.BootstrapExpect,
		ClientAddress: at.Client, PeerAddress: at.Peer, RaftAddress: at.Raft, GossipAddress: at.Gossip, HTTPAddress: at.HTTP,
	}
	nc.DataDir, nc.Etcd, nc.Logger = cfg.DataDir, store, log
	nc.GossipBind, nc.Join = cfg.Listen.Gossip, cfg.Joins()
	nc.Spec = shard.Spec{Shards: cfg.FoundingShards(), Replicas: cfg.Replicas, Owners: cfg.Elastic.FoundingOwners()}
	if slices.Contains(cfg.Named, "replicas") {
		nc.Asked.Replicas = cfg.Replicas
	}
	elastic(cfg.Elastic, &nc)
	for _, p := range slices.Sorted(slices.Values(cfg.Prefixes)) {
		nc.Spec.Ranges = append(nc.Spec.Ranges, kv.Prefix(p))
	}
	nc.Asked.Ranges = nc.Spec.Ranges // none: all keys, the default, which no flag names
	if len(nc.Spec.Ranges) == 0 {
		nc.Spec.Ranges = []kv.Range{{}}
	}
	nc.Cache.WindowBytes, nc.Cache.WindowTime = int64(cfg.WindowBytes), cfg.WindowTime
	nc.MaxEtcdLists, nc.HistoryBytes = cfg.MaxEtcdLists, int64(cfg.HistoryBytes)
	nc.VerifyInterval, nc.VerifyEtcdInterval = cfg.VerifyInterval, cfg.VerifyEtcdInterval
	nc.Cache.TombstoneBytes, nc.Cache.TombstoneTime = int64(cfg.TombstoneBytes), cfg.TombstoneTime
	nc.MaxConnections, nc.MaxClientBytes, nc.MaxWatchBytes = cfg.Limits.Connections, int64(cfg.Limits.ClientBytes), int64(cfg.Limits.WatchBytes)
	nc.MaxConnectionsPerAddress, nc.AddressRate = cfg.Limits.ConnectionsPerAddress, int64(cfg.Limits.AddressRate)
	nc.AddressHandshakes = cfg.Limits.AddressHandshakes
	nc.Server.JSONHosts = cfg.JSONHosts
	nc.Server.MaxWatchesPerStream = cfg.Limits.WatchesPerStream
	nc.Server.MaxConnectionAge = cfg.Limits.ConnectionAge
	nc.Server.MaxStreamsPerConnection = cfg.Limits.StreamsPerConnection
	nc.Server.MaxMessageBytes = int(cfg.Limits.MessageBytes)
	nc.Server.GRPCGo = cfg.ClientServer == config.ServerGRPCGo
	nc.Server.MaxResyncs, nc.Server.ResyncRate = cfg.Limits.Resyncs, int64(cfg.Limits.ResyncRate)
	nc.EtcdAPI.MaxWatchesPerStream = cfg.Limits.WatchesPerStream
	nc.EtcdAPI.MaxMessageBytes = int(cfg.Limits.MessageBytes)
	nc.EtcdAPI.ProgressNotifyInterval = cfg.WatchProgressNotifyInterval
	if nc.MaxStaleness = cfg.MaxStaleness; nc.MaxStaleness == 0 {
		nc.MaxStaleness = anyAge
	}
	nc.DrainTimeout, nc.StatusPage = cfg.DrainTimeout, node.StatusPage(cfg.StatusPage)
	nc.Policy = cfg.Policy
	if nc.GossipKeys, err = cfg.GossipKeys(); err != nil {
		return node.Config{}, err
	}
	return nc, nil
}

// listen opens the ports. Its error names the flag of an unavailable port.
func listen(ctx context.Context, at config.Listen) (l node.Listeners, err error) {
	var errs []error
	open := func(flag, address string, listen func(context.Context, string) (net.Listener, error)) net.Listener {
		one, err := listen(ctx, address)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s %s: %w", flag, address, err))
			return nil
		}
		return one
	}
	l.Client = open("listen", at.Client, netlimit.Listen)
	l.Peer = open("peer-listen", at.Peer, listenTCP)
	l.Raft = open("raft-listen", at.Raft, listenTCP)
	l.HTTP = open("http-listen", at.HTTP, listenTCP)
	if err = errors.Join(errs...); err != nil {
		closeAll(l)
	}
	return l, err
}

func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

func closeAll(l node.Listeners) {
	for _, one := range []net.Listener{l.Client, l.Peer, l.Raft, l.HTTP} {
		if one != nil {
			_ = one.Close()
		}
	}
}
