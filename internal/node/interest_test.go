package node_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// mapTraffic counts what a client receives on streams of the shard map.
type mapTraffic struct{ streams, messages, bytes atomic.Int64 }

type mapStream struct{}

func (c *mapTraffic) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if !strings.HasSuffix(info.FullMethodName, "/WatchShardMap") {
		return ctx
	}
	c.streams.Add(1)
	return context.WithValue(ctx, mapStream{}, true)
}

func (c *mapTraffic) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok && ctx.Value(mapStream{}) != nil {
		c.messages.Add(1)
		c.bytes.Add(int64(in.WireLength))
	}
}

func (*mapTraffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*mapTraffic) HandleConn(context.Context, stats.ConnStats)                       {}

func (c *mapTraffic) String() string {
	return fmt.Sprintf("%d streams, %d messages, %d bytes", c.streams.Load(), c.messages.Load(), c.bytes.Load())
}

// lines are a client's connections, which the test may break.
type lines struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (l *lines) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// interested is a client that counts the received messages and bytes of the map.
type interested struct {
	*client.Client
	mapTraffic
	lines
}

func (c *cluster) interested() *interested {
	c.t.Helper()
	out := new(interested)
	out.Client = c.connect(client.Config{
		Silence: patience, Dialer: out.dial, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(&out.mapTraffic)},
	}, nil)
	return out
}

// A client that watches one key receives no changes of other shards of a large map, and a
// client without watches receives no shards. A watch of another range, also one whose shard
// has been split or merged meanwhile, is served by the node that has the shard.
func TestAClientFollowsTheShardsOfItsWatches(t *testing.T) {
	t.Parallel()
	const many = 160
	c := startCluster(t, 2, 1, shards(1, 1))
	c.put("/000", "/100")
	c.ready()
	m := c.settled(1, 1)
	o := operator{t, c.client()}
	agreed := func(change admin.PlacementChange) {
		t.Helper()
		run, err := admin.New(o.c).ChangePlacement(within(t), change, admin.ChangeOptions{Force: true})
		if err != nil {
			t.Fatal(err)
		}
		run.Close()
	}
	var cuts []string
	for i := 1; i < many; i++ {
		cuts = append(cuts, fmt.Sprintf("/%03d", i))
	}
	agreed(admin.SplitShard{Shard: uint64(m.Shards[0].ID), At: cuts})
	at := func(key string) admin.Shard {
		t.Helper()
		for _, s := range o.status().Map.Shards {
			if s.Range.Contains(key) {
				return s
			}
		}
		t.Fatalf("no shard covers %s", key)
		return admin.Shard{}
	}
	moved := func(key, to string) {
		t.Helper()
		agreed(admin.MoveShard{Shard: at(key).ID, To: []string{to}})
		testkit.Succeeds(t, "the shard has moved", func() error {
			if s := at(key); !slices.Equal(s.Replicas, []string{to}) {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	// Two shards that the test watches, at different nodes.
	moved("/100", "node-1")
	moved("/050", "node-2")

	one, none := c.interested(), c.interested()
	served := func(key, by string) *client.Watcher {
		t.Helper()
		w := one.Watch(t.Context(), client.Key(key))
		select {
		case <-w.Started():
		case <-within(t).Done():
			t.Fatalf("the watch of %s does not start: %+v", key, w.Stats())
		}
		testkit.Succeeds(t, "the node that has the shard serves the watch", func() error {
			if st := w.Stats(); !st.Attached || st.Node != by {
				return fmt.Errorf("%s: %+v", key, st)
			}
			return nil
		})
		return w
	}
	arrives := func(w *client.Watcher, key string) {
		t.Helper()
		want := c.put(key)
		for {
			u, err := w.Next(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if u.Revision >= want {
				return
			}
		}
	}
	w := served("/100/key", "node-1")
	if _, err := admin.New(none.Client).Members(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := one.bytes.Load(); got > 4<<10 {
		t.Errorf("for one of %d shards the client received %v", many, &one.mapTraffic)
	}
	messages, bytes := one.messages.Load(), one.bytes.Load()
	idle := none.bytes.Load()
	const changes = 10
	for i := range changes {
		key := fmt.Sprintf("/%03d", 10+i)
		agreed(admin.SplitShard{Shard: at(key).ID, At: []string{key + "m"}})
	}
	arrives(w, "/100/key")
	if one.messages.Load() != messages || one.bytes.Load() != bytes {
		t.Errorf("after %d changes in other shards: %v, before them %d messages, %d bytes", changes, &one.mapTraffic, messages, bytes)
	}
	if got := none.bytes.Load(); got != idle {
		t.Errorf("a client without watches received %v for %d changes, %d bytes before", &none.mapTraffic, changes, idle)
	}
	testkit.Succeeds(t, "the client requests all shards if the program does", func() error {
		all, err := admin.New(one.Client).ShardMap(within(t))
		if err != nil || len(all.Shards) != many+changes {
			return fmt.Errorf("%d shards, %w", len(all.Shards), err)
		}
		return nil
	})

	// One of the client's shards is split, and the new part moves; then they are merged.
	shard := at("/100/key")
	messages = one.messages.Load()
	agreed(admin.SplitShard{Shard: shard.ID, At: []string{"/100/m"}})
	moved("/100/z", "node-2")
	testkit.Succeeds(t, "the client receives the change of its shard", func() error {
		if one.messages.Load() == messages {
			return fmt.Errorf("%v", &one.mapTraffic)
		}
		return nil
	})
	arrives(w, "/100/key")
	served("/100/z", "node-2")
	served("/050/key", "node-2")
	agreed(admin.MergeShards{Shard: at("/100/key").ID, With: at("/100/z").ID})
	testkit.Succeeds(t, "the shards are merged", func() error {
		if s := at("/100/key"); !s.Range.Contains("/100/z") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	arrives(w, "/100/key")
	served("/100/x", at("/100/x").Owner())
	served("/150", at("/150").Owner())

	// After broken connections, shards that the client has are not sent again.
	testkit.Succeeds(t, "the client receives no more changes", func() error {
		before := one.messages.Load()
		if _, err := admin.New(one.Client).Members(within(t)); err != nil || one.messages.Load() != before {
			return fmt.Errorf("%v, %w", &one.mapTraffic, err)
		}
		return nil
	})
	bytes, streams := one.bytes.Load(), one.streams.Load()
	one.cut()
	arrives(w, "/100/key")
	testkit.Succeeds(t, "the client follows the map again", func() error {
		if one.streams.Load() == streams || one.bytes.Load() == bytes {
			return fmt.Errorf("%v", &one.mapTraffic)
		}
		return nil
	})
	if got := one.bytes.Load() - bytes; got > 2<<10 {
		t.Errorf("after the reconnect the client received %d bytes", got)
	}
	fresh := one.Watch(t.Context(), client.Key("/140/key"))
	<-fresh.Started()
	arrives(fresh, "/140/key")
}
