package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

const rangeMethod = "/etcdserverpb.KV/Range"

// mode is a way to read.
type mode string

const (
	serializable mode = "serializable"
	linearizable mode = "linearizable"
	paged        mode = "paged" // linearizable, in pages that are pinned to the first one's revision
)

// crowd is clients that read at the same time, each with connections of its
// own.
type crowd struct {
	conns [][]*grpc.ClientConn // by client and endpoint
}

func newCrowd(clients int, endpoints []string) (*crowd, error) {
	c := &crowd{}
	for range clients {
		var conns []*grpc.ClientConn
		for _, e := range endpoints {
			conn, err := dial(e)
			if err != nil {
				return nil, err
			}
			conns = append(conns, conn)
		}
		c.conns = append(c.conns, conns)
	}
	return c, nil
}

func (c *crowd) close() {
	for _, conns := range c.conns {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// each calls f so often for each client, one after the other, and all clients
// at the same time. The endpoints take turns.
func (c *crowd) each(ctx context.Context, times int, f func(ctx context.Context, conn *grpc.ClientConn, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for client, conns := range c.conns {
		g.Go(func() error {
			for i := range times {
				if err := f(ctx, conns[(client+i)%len(conns)], client*times+i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// list reads all keys, and fails when an answer has others than that.
func list(ctx context.Context, conn *grpc.ClientConn, m mode, keys, limit int) error {
	req := &etcdserverpb.RangeRequest{Key: []byte(keyPrefix), RangeEnd: []byte("/registry/pods0"), Serializable: m == serializable}
	if m != paged {
		limit = 0
	}
	req.Limit = int64(limit)
	var r ranged
	for got := 0; ; {
		if err := conn.Invoke(ctx, rangeMethod, req, &r); err != nil {
			return fmt.Errorf("list (%s): %w", m, err)
		}
		want := keys - got
		if int(r.count) != want {
			return fmt.Errorf("list (%s): count %d, want %d", m, r.count, want)
		}
		if limit > 0 {
			want = min(want, limit)
		}
		got += r.keys
		if r.keys != want || r.more != (got < keys) {
			return fmt.Errorf("list (%s): %d keys, want %d; more is %v", m, r.keys, want, r.more)
		}
		if !r.more {
			return nil
		}
		if req.Revision == 0 {
			req.Revision = r.revision
		}
		req.Key = append(append([]byte{}, r.last...), 0)
	}
}

// get reads one key.
func get(ctx context.Context, conn *grpc.ClientConn, m mode, key string) error {
	var r ranged
	req := &etcdserverpb.RangeRequest{Key: []byte(key), Serializable: m == serializable}
	if err := conn.Invoke(ctx, rangeMethod, req, &r); err != nil {
		return fmt.Errorf("get (%s): %w", m, err)
	}
	if r.keys != 1 || string(r.last) != key {
		return fmt.Errorf("get (%s) of %s: %d keys, %s", m, key, r.keys, r.last)
	}
	return nil
}
