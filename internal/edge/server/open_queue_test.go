package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// The queue of watches that are being opened gives each connection a turn. If too many watches
// wait, the next one is refused with a retry delay.
func TestNewWatchesTakeTurns(t *testing.T) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) }) // runs after the end of the server
	g := newWarden()
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard, c.OpenQueue = g, fair.NewGate(1, 6) }})
	g.grant(map[string]string{"ann": "a"})
	g.asked = make(chan struct{})
	t.Cleanup(func() { // pending callers would keep the server from stopping
		go func() {
			for {
				select {
				case <-g.asked:
					g.asked <- struct{}{}
				case <-ended:
					return
				}
			}
		}()
	})
	from := func(id int64) *pb.CreateWatch {
		return &pb.CreateWatch{WatchId: id, Key: []byte("a"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}}
	}
	waiting := func(n int) {
		t.Helper()
		testkit.Eventually(t, "the watches wait in the queue", func() bool { running, w := r.server.OpenQueue(); return running == 1 && w == n })
	}
	herd, one, gone := watchAs(t, "ann", r.conn), watchAs(t, "ann", dialFrom(t, "127.0.0.2", r.clients)), watchAs(t, "ann", dialFrom(t, "127.0.0.3", r.clients))
	for id := range int64(5) {
		herd.create(from(id + 1))
		waiting(int(id))
	}
	one.create(from(1))
	waiting(5)
	gone.create(from(1))
	waiting(6)
	herd.create(from(6))
	if e := herd.ended(6); e.GetReason() != pb.EndReason_END_REASON_LIMIT || e.GetRetryAfter().AsDuration() < time.Second {
		t.Errorf("a watch beyond the queue's limit: %v", e)
	}
	herd.cancel(4)
	gone.end() // its turn is skipped
	testkit.Eventually(t, "the stream is gone", func() bool { return r.server.Status().GetWatches() == 6 })
	next := func(s *stream, id int64) {
		t.Helper()
		<-g.asked
		g.asked <- struct{}{}
		s.created(id)
	}
	next(herd, 1)
	next(herd, 2)
	next(one, 1)
	next(herd, 3)
	if e := herd.ended(4); e.GetReason() != pb.EndReason_END_REASON_CANCELED {
		t.Errorf("a watch that was cancelled while it waited: %v", e)
	}
	next(herd, 5)
	testkit.Eventually(t, "nobody waits", func() bool { running, w := r.server.OpenQueue(); return running == 0 && w == 0 })
}

// dialFrom is dial from another loopback address: clients without an identity are distinguished by
// their addresses.
func dialFrom(tb testing.TB, from, address string) *grpc.ClientConn {
	tb.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
