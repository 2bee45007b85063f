package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

const rangeMethod = "/etcdserverpb.KV/Range"

// mode is a kind of read.
type mode string

const (
	serializable mode = "serializable"
	linearizable mode = "linearizable"
	paged        mode = "paged" // linearizable, in pages pinned to the revision of the first
)

// listLoads are lists of all keys by increasing numbers of clients, and gets of single keys.
func listLoads(c *config) (out []load) {
	for i, keys := range c.keys {
		as := setup{keys: keys, size: c.valueSize, key: keyName}
		for _, m := range []mode{serializable, linearizable, paged} {
			sides := etcdSides()
			if m != paged { // a list of the native API comes in chunks anyway
				sides = append(sides, sideNative)
			}
			out = append(out, load{
				name: fmt.Sprintf("list/%d/%s", keys, m), sides: sides, standard: i == 0 && m == linearizable, whole: true,
				setup: as, run: func(ctx context.Context, t *trial) error { return lists(ctx, t, m, keys) },
			})
		}
	}
	as := setup{keys: c.keys[0], size: c.valueSize, key: keyName}
	for _, m := range []mode{serializable, linearizable} {
		out = append(out, load{
			name: "get/" + string(m), sides: etcdSides(), standard: m == linearizable, whole: true,
			setup: as, run: func(ctx context.Context, t *trial) error { return gets(ctx, t, m, as.keys) },
		})
	}
	return append(out, load{
		name: "get/busy/" + string(linearizable), sides: etcdSides(), standard: true, whole: true,
		setup: as, run: func(ctx context.Context, t *trial) error { return getsAmongWrites(ctx, t, linearizable, as.keys) },
	})
}

// lists has increasing numbers of clients list all keys, each on a separate connection, with the
// endpoints in turn, and finally all at one endpoint.
func lists(ctx context.Context, t *trial, m mode, keys int) error {
	c, err := newCrowd(t.side, 1, t.side.ends)
	if err != nil {
		return err
	}
	err = c.each(ctx, len(t.side.ends), func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
		return t.list(ctx, conn, linearizable, keys, 0) // read everything once, at any cost
	})
	if c.close(); err != nil {
		return err
	}
	idle, err := proc.Memory(t.side.servers())
	if err != nil {
		return err
	}
	t.note("memory before", unitBytes, float64(idle))
	one := func(label string, clients int, ends []string) error {
		times := max(2, (t.listed+keys*clients-1)/(keys*clients))
		return reads(ctx, t, label, clients, times, ends, keys, func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
			return t.list(ctx, conn, m, keys, t.page)
		})
	}
	for _, n := range t.clients {
		if err := one(fmt.Sprintf("%d at a time", n), n, t.side.ends); err != nil {
			return err
		}
	}
	most := slices.Max(t.clients)
	return one(fmt.Sprintf("%d at a time at one node", most), most, t.side.ends[:1])
}

// getsEach is the number of keys that each of n clients gets. Several clients need a fraction of
// the time per get: five times as many gets then still take some seconds.
func (t *trial) getsEach(n int) int { return (t.gets*min(n, 5) + n - 1) / n }

// gets has increasing numbers of clients get single keys.
func gets(ctx context.Context, t *trial, m mode, keys int) error {
	for _, n := range t.clients {
		if err := reads(ctx, t, fmt.Sprintf("%d at a time", n), n, t.getsEach(n), t.side.ends, 1, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
			return get(ctx, conn, m, keyName(i*7919%keys))
		}); err != nil {
			return err
		}
	}
	return nil
}

// backgroundWrites is the number of keys written per second during reads.
const backgroundWrites = 200

// getsAmongWrites is gets while other keys are written. It reports the cost of the writes alone
// separately.
func getsAmongWrites(ctx context.Context, t *trial, m mode, keys int) error {
	sh := shape{what: whatPrefix, watches: 1, size: t.sizes[0]}
	alone := max(1, int(t.deliver.Seconds()/2*backgroundWrites))
	quiet, _, err := t.unwatched(ctx, sh, alone, backgroundWrites)
	if err != nil {
		return err
	}
	for _, n := range t.clients {
		wctx, stop := context.WithCancel(ctx)
		written := make(chan error, 1)
		var writes int64
		go func() {
			var failed error
			writes, failed = t.writeUntil(wctx, sh, backgroundWrites)
			written <- failed
		}()
		label, times := fmt.Sprintf("%d at a time", n), t.getsEach(n)
		spent, err := t.spentOn(ctx, n, times, t.side.ends, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
			return get(ctx, conn, m, keyName(i*7919%keys))
		})
		stop()
		if err = errors.Join(err, <-written); err != nil {
			return err
		}
		base := time.Duration(float64(quiet.all) * float64(writes) / float64(alone))
		t.noteTime("CPU per key, "+label, spent.all, int64(n*times))
		t.noteTime("… above the same writes alone, "+label, spent.all-base, int64(n*times))
	}
	return nil
}

// reads calls f for each client the given number of times, and records the cost per key and the
// peak memory.
func reads(ctx context.Context, t *trial, label string, clients, times int, ends []string, keys int, f func(ctx context.Context, conn *grpc.ClientConn, i int) error) error {
	if err := proc.ResetPeaks(t.side.servers()); err != nil {
		return err
	}
	spent, err := t.spentOn(ctx, clients, times, ends, f)
	if err != nil {
		return err
	}
	peaks, err := proc.Peaks(t.side.servers())
	if err != nil {
		return err
	}
	var peak int64
	for _, p := range peaks {
		peak += p
	}
	t.noteTime("CPU per key, "+label, spent.all, int64(clients*times*keys))
	t.note("peak memory, "+label, unitBytes, float64(peak))
	return nil
}

// spentOn calls f for each client the given number of times and returns the cost to the side.
func (t *trial) spentOn(ctx context.Context, clients, times int, ends []string, f func(ctx context.Context, conn *grpc.ClientConn, i int) error) (used, error) {
	c, err := newCrowd(t.side, clients, ends)
	if err != nil {
		return used{}, err
	}
	defer c.close()
	before, err := t.side.used()
	if err != nil {
		return used{}, err
	}
	if err := c.each(ctx, times, f); err != nil {
		return used{}, err
	}
	return t.side.since(before)
}

// crowd is concurrent readers, each with its own connections.
type crowd struct {
	conns [][]*grpc.ClientConn // by client and endpoint
}

func newCrowd(s *side, clients int, ends []string) (*crowd, error) {
	c := &crowd{}
	for range clients {
		var conns []*grpc.ClientConn
		for _, end := range ends {
			conn, err := s.dial(end)
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

// each calls f for each client the given number of times, in sequence, and for all clients
// concurrently. The endpoints take turns.
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

// list reads all keys, and fails if an answer has other keys.
func (t *trial) list(ctx context.Context, conn *grpc.ClientConn, m mode, keys, limit int) error {
	if t.side.kind == sideNative {
		return listNative(ctx, conn, m, keys)
	}
	return list(ctx, conn, m, keys, limit)
}

// keysEnd is the end of the range of all listed keys.
const keysEnd = "/registry/pods0"

const nativeListMethod = "/shardwatch.v1.CacheService/List"

// listNative reads all keys through the native API: in chunks of one revision.
func listNative(ctx context.Context, conn *grpc.ClientConn, m mode, keys int) error {
	fresh := shardwatchv1.Consistency_CONSISTENCY_LINEARIZABLE
	if m == serializable {
		fresh = shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, nativeListMethod)
	if err == nil {
		err = stream.SendMsg(&shardwatchv1.ListRequest{Key: []byte(keyPrefix), RangeEnd: []byte(keysEnd), Consistency: fresh, Count: true})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	var revision, count int64
	for got := 0; err == nil; {
		var r listed
		if err = stream.RecvMsg(&r); errors.Is(err, io.EOF) {
			if got != keys || count != int64(keys) {
				return fmt.Errorf("native list (%s): %d keys, count %d, want %d", m, got, count, keys)
			}
			return nil
		}
		if revision != 0 && err == nil && r.revision != revision {
			err = fmt.Errorf("chunks of revisions %d and %d", revision, r.revision)
		}
		got, revision, count = got+r.keys, r.revision, max(count, r.count)
	}
	return fmt.Errorf("native list (%s): %w", m, err)
}

// list reads all keys through etcd's API.
func list(ctx context.Context, conn *grpc.ClientConn, m mode, keys, limit int) error {
	req := &etcdserverpb.RangeRequest{Key: []byte(keyPrefix), RangeEnd: []byte(keysEnd), Serializable: m == serializable}
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
