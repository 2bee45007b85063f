// Command follow is the example of docs/tour.md: a program that lists and follows a prefix with
// etcd's own client. It was written for etcd and contains nothing specific to Shardwatch.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: follow ENDPOINTS PREFIX, e.g. follow 127.0.0.1:7400,127.0.0.1:7410 /demo/")
	}
	if err := follow(context.Background(), strings.Split(os.Args[1], ","), os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func follow(ctx context.Context, endpoints []string, prefix string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	list, err := c.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	fmt.Printf("%d keys at revision %d\n", list.Count, list.Header.Revision)
	from := list.Header.Revision + 1
	for r := range c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithPrevKV()) {
		for _, e := range r.Events {
			before := "-"
			if e.PrevKv != nil {
				before = string(e.PrevKv.Value)
			}
			fmt.Printf("%-6s %d  %s  %s (was %s)\n", e.Type, e.Kv.ModRevision, e.Kv.Key, e.Kv.Value, before)
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", prefix, err)
		}
	}
	return nil
}
