package node_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A node that is cut off from etcd switches to another source by itself, and has
// fresh data again. If no node reaches etcd, reads that require fresher data are
// refused, with the reason and a retry time, and watches with a bound on their
// age are notified.
func TestNodeCutFromEtcd(t *testing.T) {
	t.Parallel()
	var stores []*etcd.Client
	t.Cleanup(func() { // after the nodes' end
		for _, s := range stores {
			_ = s.Close()
		}
	})
	c := newCluster(t, 3, 3, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	ways := map[*machine]*etcdtest.Proxy{}
	for _, m := range c.nodes {
		ways[m] = etcdtest.NewProxy(t, c.etcd.Endpoint())
		m.wrap = func(node.Etcd) node.Etcd {
			ec := etcd.Defaults()
			ec.Endpoints, ec.Logger = []string{"http://" + ways[m].Endpoint()}, slog.New(slog.NewTextHandler(c.log, nil)).With("node", m.name)
			store, err := etcd.New(ec)
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, store)
			return store
		}
		m.start()
	}
	all := keys(16)
	c.put(all...)
	c.ready()
	c.settled(2, 3)
	cut := c.owner(all[0])
	conn, err := grpc.NewClient(cut.clients, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := pb.NewCacheServiceClient(conn)
	get := func(bound time.Duration) (*pb.GetResponse, error) {
		r, err := api.Get(within(t), &pb.GetRequest{
			Key: []byte(all[0]), Consistency: pb.Consistency_CONSISTENCY_SERIALIZABLE, MaxStaleness: durationpb.New(bound),
		})
		return r, wire.Error(err)
	}
	ways[cut].Cut()
	revision := c.put(all[0])
	testkit.Succeeds(t, "fresh data from another node", func() error {
		r, err := get(2 * time.Second)
		switch {
		case err != nil:
			return err
		case r.GetRevision() < revision || r.GetAge() == nil || r.GetAge().AsDuration() > 3*time.Second:
			return fmt.Errorf("at revision %d of %d, %v old", r.GetRevision(), revision, r.GetAge().AsDuration())
		}
		for _, replica := range cut.node.Status().GetReplicas() {
			if replica.GetSource() != pb.ReplicaSource_REPLICA_SOURCE_PEER {
				return fmt.Errorf("shard %d comes from %v", replica.GetShardId(), replica.GetSource())
			}
		}
		return nil
	})
	watch, err := api.Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
		WatchId: 1, Key: []byte(all[0]), MaxStaleness: durationpb.New(5 * time.Second),
		Start: &pb.CreateWatch_StartRevision{StartRevision: revision + 1},
	}}}); err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		way.Cut()
	}
	testkit.Succeeds(t, "a read refused because the data is old", func() error {
		_, err := get(time.Second)
		var stale *kv.UnavailableError
		if !errors.As(err, &stale) || stale.Why != kv.Stale || stale.RetryAfter <= 0 || !strings.Contains(err.Error(), "the read allows 1s") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e := m.GetEnded(); e != nil {
			if e.GetReason() != pb.EndReason_END_REASON_STALE || e.GetResumeRevision() != revision+1 || len(e.GetEndpoints()) == 0 || !strings.Contains(e.GetMessage(), "the watch allows 5s") {
				t.Errorf("the watch ended: %v", e)
			}
			break
		}
	}
	for _, way := range ways {
		way.Heal()
	}
	testkit.Succeeds(t, "fresh again", func() error { _, err := get(2 * time.Second); return err })
}

// A node that reaches neither etcd nor any other node ends its native watches with
// their positions, so that they resume elsewhere. While it reaches another node it
// keeps them, with or without etcd.
func TestNodeCutFromEtcdAndAllNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, shards(2, 3))
	c.etcd = etcdtest.Start(t)
	c.through = etcdtest.NewProxy(t, c.etcd.Endpoint())
	for _, m := range c.nodes {
		m.start()
	}
	c.put(keys(16)...)
	c.ready()
	c.settled(2, 3)
	last := c.nodes[2]
	conn, err := grpc.NewClient(last.clients, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := pb.NewCacheServiceClient(conn).Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	position := c.put(keys(1)...)
	if err := watch.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
		WatchId: 1, Key: []byte("nobody writes this"), Start: &pb.CreateWatch_StartRevision{StartRevision: position + 1},
	}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetCreated() == nil {
		t.Fatal(m, err)
	}
	ended := make(chan *pb.Ended, 1)
	go func() {
		defer close(ended)
		for {
			m, err := watch.Recv()
			if err != nil {
				return
			}
			if m.GetEnded() != nil {
				ended <- m.GetEnded()
				return
			}
		}
	}()
	c.through.Cut()
	testkit.Succeeds(t, "looks at etcd fail", func() error {
		if age := last.node.Status().GetEtcdAge().AsDuration(); age < 3*time.Second {
			return fmt.Errorf("seen %v ago", age)
		}
		return nil
	})
	c.nodes[0].crash()
	select {
	case e := <-ended:
		t.Fatalf("the watch ended while another node was reachable: %v", e)
	default:
	}
	c.nodes[1].crash()
	select {
	case e := <-ended:
		if e.GetReason() != pb.EndReason_END_REASON_DRAINING || e.GetResumeRevision() != position+1 || !strings.Contains(e.GetMessage(), "cut off from all other nodes") {
			t.Errorf("the watch ended: %v", e)
		}
	case <-time.After(patience):
		t.Fatal("the watch stays at a node that is cut off")
	}
}

// A node that reaches etcd but no other node ends the watches that need a shard of
// other nodes, and keeps the watches of its own shards.
func TestNodeCutFromAllOtherNodes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(4, 1))
	all := keys(64)
	position := c.put(all...)
	c.ready()
	c.settled(4, 1)
	own := all[0]
	last := c.owner(own)
	conn, err := grpc.NewClient(last.clients, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := pb.NewCacheServiceClient(conn).Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	const ownKey, everything = 1, 2
	ranges := map[int64]*pb.CreateWatch{
		ownKey:     {Key: []byte(own)},
		everything: {Key: []byte{0}, RangeEnd: []byte{0}},
	}
	create := func(id int64) {
		w := ranges[id]
		w.WatchId, w.Start = id, &pb.CreateWatch_StartRevision{StartRevision: position + 1}
		if err := watch.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: w}}); err != nil {
			t.Fatal(err)
		}
	}
	create(ownKey)
	create(everything)
	for created := 0; created < len(ranges); {
		switch m, err := watch.Recv(); {
		case err != nil:
			t.Fatal(err)
		case m.GetCreated() != nil:
			created++
		case m.GetWatchId() == everything && m.GetEnded().GetRetryAfter() != nil:
			create(everything) // the other nodes are too slow to answer
		default:
			t.Fatal(m)
		}
	}
	for _, m := range c.nodes {
		if m != last {
			m.crash()
		}
	}
	written := c.put(own)
	var ended, arrived bool
	for !ended || !arrived {
		m, err := watch.Recv()
		if err != nil {
			t.Fatalf("%v; the watch of all keys ended: %v; the event of the node's own shard arrived: %v", err, ended, arrived)
		}
		if e := m.GetEnded(); e != nil {
			if m.GetWatchId() != everything || e.GetReason() != pb.EndReason_END_REASON_DRAINING || e.GetResumeRevision() != position+1 {
				t.Errorf("watch %d ended: %v", m.GetWatchId(), e)
			}
			ended = true
		}
		if m.GetEvents() != nil && m.GetWatchId() == ownKey && m.GetRevision() == written {
			arrived = true
		}
	}
}
