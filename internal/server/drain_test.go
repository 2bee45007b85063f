package server_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/server"
)

func TestDueBy(t *testing.T) {
	for _, x := range []struct {
		all           int
		elapsed, took time.Duration
		want          int
	}{
		{10, 0, time.Second, 0},
		{10, 500 * time.Millisecond, time.Second, 5},
		{10, time.Second, time.Second, 10},
		{10, time.Hour, time.Second, 10},
		{10, 0, 0, 10},
		{10, 0, -time.Second, 10},
		{0, 0, time.Second, 0},
		{100_000, time.Millisecond, 100 * time.Second, 1},
	} {
		if got := server.DueBy(x.all, x.elapsed, x.took); got != x.want {
			t.Errorf("%+v: got %d", x, got)
		}
	}
}

// A node that goes away moves its clients one after the other, through whichever
// API they came: when the first has left, others are still served, and know the
// map, while nobody new is let in.
func TestDrainIsPaced(t *testing.T) {
	r := startBoth(t)
	r.server.SetPace(1) // all of them take minutes
	const clients, each = 4, 100
	var gone sync.WaitGroup
	for client := range clients {
		conn := dial(t, r.clients)
		if client%2 == 0 {
			s := watchOn(t, conn)
			for id := range int64(each) {
				s.create(all(id+1, 100))
				s.created(id + 1)
			}
			gone.Go(func() {
				for range each {
					m, err := s.rpc.Recv()
					if err != nil || m.GetEnded().GetReason() != pb.EndReason_END_REASON_DRAINING || m.GetEnded().GetResumeRevision() != 100 {
						t.Errorf("got %v, %v", m, err)
					}
				}
			})
			continue
		}
		s, err := etcdserverpb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			if err := s.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
				CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}},
			}}); err != nil {
				t.Fatal(err)
			}
			if m, err := s.Recv(); err != nil || !m.GetCreated() {
				t.Fatal(m, err)
			}
		}
		gone.Go(func() {
			var err error
			for err == nil {
				_, err = s.Recv()
			}
		})
	}
	shards, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(t.Context(), &pb.WatchShardMapRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shards.Recv(); err != nil {
		t.Fatal(err)
	}
	knows := make(chan error, 1)
	go func() {
		_, err := shards.Recv()
		knows <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*deadline)
	defer cancel()
	drained := make(chan struct{})
	go func() { r.server.Drain(ctx); close(drained) }()
	eventually(t, "the first is gone", func() bool { return r.server.Status().GetWatches() < clients*each })
	if left := r.server.Status().GetWatches(); left < each {
		t.Errorf("%d watches are left when the first has gone", left)
	}
	select {
	case err := <-knows:
		t.Errorf("the map is not told any more: %v", err)
	case <-drained:
		t.Error("drained at once")
	default:
	}
	if _, err := r.watch().rpc.Recv(); err == nil {
		t.Error("a new stream is let in")
	}
	cancel() // no time is left: all go
	<-drained
	gone.Wait()
	if err := <-knows; err == nil {
		t.Error("the map is still told")
	}
}
