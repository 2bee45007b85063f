package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// suspicions counts the log lines that report one.
type suspicions struct{ lines atomic.Int64 }

// Enabled implements slog.Handler.
func (*suspicions) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (s *suspicions) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "member is suspect" {
		s.lines.Add(1)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (s *suspicions) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *suspicions) WithGroup(string) slog.Handler { return s }

// reportGossip runs the gossip of some nodes in memory, on real time, and prints
// what a node sends and what CPU time it takes, at rest and while the version of the
// map changes once a second. On a machine without enough CPU time nodes answer probes
// late and suspect each other. Gossip about that is not rest, so it is printed, too.
func reportGossip(conf config, out io.Writer) error {
	nodes, suspected := conf.gossip, &suspicions{}
	network := membership.NewNetwork(1)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	address := func(i int) string { return fmt.Sprintf("10.0.%d.%d:7946", i/250, 1+i%250) }
	var all []*membership.Membership
	for i := range nodes {
		c := membership.Defaults()
		c.Self = shard.Member{
			Name: shard.NodeID(fmt.Sprintf("shardwatch-%04d", i)), UUID: fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i), Zone: "zone-1", Version: "v1.0.0",
			ClientAddress: ":7400", PeerAddress: ":7401", RaftAddress: ":7402", HTTPAddress: ":7480", BootstrapExpect: 3,
		}
		c.Transport, c.Join = network.Transport(address(i)), []string{address(0)}
		c.Logger = slog.New(suspected)
		m, err := membership.New(c)
		if err != nil {
			return err
		}
		all = append(all, m)
		running.Go(func() { _ = m.Run(ctx) })
		<-m.Ready()
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		least := nodes
		for _, m := range all {
			least = min(least, len(m.Members()))
		}
		if least == nodes {
			break
		}
		if time.Now().After(deadline) {
			return errors.New("the nodes have not found each other within five minutes")
		}
	}
	time.Sleep(conf.gossipFor) // until the joins are gossiped
	seconds := int(conf.gossipFor / time.Second)
	fmt.Fprintf(out, "\nGossip of %d nodes, in memory, per node:\n\n| | bytes sent a second | of a core | suspicions seen |\n|---|---:|---:|---:|\n", nodes)
	for _, state := range []string{"at rest", "the map changes once a second"} {
		began, before, doubts := cpu(), network.Bytes(), suspected.lines.Load()
		for i := range seconds {
			if state != "at rest" {
				all[i%3].SetMapVersion(uint64(i + 1))
			}
			time.Sleep(time.Second)
		}
		fmt.Fprintf(out, "| %s | %d | %.3f %% | %.2f |\n", state, (network.Bytes()-before)/int64(seconds*nodes),
			100*(cpu()-began).Seconds()/float64(seconds*nodes), float64(suspected.lines.Load()-doubts)/float64(nodes))
	}
	return nil
}
