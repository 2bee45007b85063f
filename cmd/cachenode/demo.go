//go:build !nodev

package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/shardwatch/shardwatch/client"
)

// demo runs a small workload under /demo/ until ctx ends: a clock, a few services
// whose instances change, and a counter.
func demo(ctx context.Context, endpoints []string, log *slog.Logger) error {
	c, err := client.New(client.Config{Endpoints: endpoints, Logger: log})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = c.Close() }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := demoStep(ctx, c, n); err != nil && ctx.Err() == nil {
			log.Warn("demo: write failed, retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// demoStep makes one change.
func demoStep(ctx context.Context, c *client.Client, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	services := []string{"api", "billing", "search", "web"}
	instance := fmt.Sprintf("/demo/services/%s/%d", services[rand.N(len(services))], rand.N(3))
	var err error
	switch n % 4 {
	case 0:
		_, err = c.Put(ctx, "/demo/clock", []byte(time.Now().Format(time.TimeOnly)))
	case 1, 2:
		_, err = c.Put(ctx, instance, fmt.Appendf(nil, `{"healthy":true,"load":%d}`, rand.N(100)))
	case 3:
		if n%8 == 3 {
			_, _, err = c.Delete(ctx, client.Key(instance))
		} else {
			_, err = c.Put(ctx, "/demo/counter", fmt.Appendf(nil, "%d", n/4))
		}
	}
	return err
}
