package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// reportGossip runs the gossip of that many nodes in memory, on real time, and prints
// what a node sends and what CPU time it takes, at rest and while the version of the
// map changes once a second.
func reportGossip(nodes int, out io.Writer) error {
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
	time.Sleep(20 * time.Second) // until the news of the joins are told
	const seconds = 30
	fmt.Fprintf(out, "\nGossip of %d nodes, in memory, per node:\n\n| | bytes sent a second | of a core |\n|---|---:|---:|\n", nodes)
	for _, state := range []string{"at rest", "the map changes once a second"} {
		began, before := cpu(), network.Bytes()
		for i := range seconds {
			if state != "at rest" {
				all[i%3].SetMapVersion(uint64(i + 1))
			}
			time.Sleep(time.Second)
		}
		fmt.Fprintf(out, "| %s | %d | %.3f %% |\n", state, (network.Bytes()-before)/seconds/int64(nodes), 100*(cpu()-began).Seconds()/seconds/float64(nodes))
	}
	return nil
}
