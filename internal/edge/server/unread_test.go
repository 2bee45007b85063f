package server_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// unread returns a function that gets a key and does not read the answer.
func unread(t *testing.T, address string) func(ctx context.Context, key string) grpc.ClientStream {
	t.Helper()
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server does not count unread answers")
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(ctx context.Context, key string) grpc.ClientStream {
		t.Helper()
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.CacheService_Get_FullMethodName)
		if err == nil {
			err = s.SendMsg(&pb.GetRequest{Key: []byte(key)})
		}
		if err == nil {
			err = s.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// The answers of unary calls count against the budget while their clients do not read them, each client's up to its
// share. Further ones are refused; other clients are unaffected.
func TestUnreadAnswersOfCallsAreBounded(t *testing.T) {
	const answers, size = 10, 200_000
	b := budget.New(32 << 20) // 4 MiB of it for requests and unread answers, 2 MiB for one client
	h := cachetest.New()
	h.Commit(cachetest.Put("a", strings.Repeat("v", size)))
	r := start(t, h, options{server: func(c *server.Config) { c.Budget = b }})
	get := unread(t, r.clients)
	var open []grpc.ClientStream
	for range answers {
		open = append(open, get(t.Context(), "a"))
	}
	testkit.Eventually(t, "the unread answers count", func() bool { return b.Held(budget.Requests) > answers*size })
	late := get(t.Context(), "a")
	testkit.Eventually(t, "an answer beyond the share is refused", func() bool { return b.Status()[budget.Requests].Capped > 0 })
	wantCode(t, "an answer beyond the share", late.RecvMsg(new(pb.GetResponse)), codes.ResourceExhausted)
	if held := b.Held(budget.Requests); held > 2<<20 {
		t.Errorf("%d bytes are held", held)
	}
	other := pb.NewCacheServiceClient(dialFrom(t, "127.0.0.2", r.clients))
	_, err := other.Get(t.Context(), &pb.GetRequest{Key: []byte("a")})
	wantCode(t, "another client", err, codes.OK)
	for _, s := range open {
		wantCode(t, "an answer that is read late", s.RecvMsg(new(pb.GetResponse)), codes.OK)
	}
	testkit.Eventually(t, "the bytes of read answers are released", func() bool { return b.Held(budget.Requests) == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	get(ctx, "a")
	testkit.Eventually(t, "an unread answer counts", func() bool { return b.Held(budget.Requests) > 0 })
	cancel()
	testkit.Eventually(t, "the bytes of a cancelled call are released", func() bool { return b.Held(budget.Requests) == 0 })
}

// While a client slowly reads a list that uses all of its part of the lists, the answers of its other calls are sent.
func TestUnreadAnswersBesideALargeList(t *testing.T) {
	b := budget.New(32 << 20)
	holder := budget.Client{Name: "127.0.0.1", Max: budget.HalfOfTotal}
	if err := b.Take(holder, budget.Lists, b.Part(holder, budget.Lists), 0); err != nil {
		t.Fatal(err)
	}
	h := cachetest.New()
	h.Commit(cachetest.Put("a", strings.Repeat("v", 200_000)))
	r := start(t, h, options{server: func(c *server.Config) { c.Budget = b }})
	answer := unread(t, r.clients)(t.Context(), "a")
	testkit.Eventually(t, "the unread answer counts", func() bool { return b.Held(budget.Requests) > 200_000 })
	wantCode(t, "an answer beside a large list", answer.RecvMsg(new(pb.GetResponse)), codes.OK)
}

// A call counts as open until its answer is sent.
func TestACallIsOpenUntilItsAnswerIsSent(t *testing.T) {
	p := police(t, readers) // two calls
	p.h.Commit(cachetest.Put("a1", strings.Repeat("v", 200_000)))
	get := unread(t, p.clients)
	first, second := get(t.Context(), "a1"), get(t.Context(), "a1")
	for _, s := range []grpc.ClientStream{first, second} { // with its header, an answer has begun: its call is open
		if _, err := s.Header(); err != nil {
			t.Fatal(err)
		}
	}
	another := func() error {
		_, err := pb.NewCacheServiceClient(p.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("a2")})
		return err
	}
	testkit.Eventually(t, "a third call is refused", func() bool { return another() != nil })
	wantCode(t, "a third call", another(), codes.ResourceExhausted)
	wantCode(t, "the first answer", first.RecvMsg(new(pb.GetResponse)), codes.OK)
	testkit.Eventually(t, "a call is accepted", func() bool { return another() == nil })
	wantCode(t, "the second answer", second.RecvMsg(new(pb.GetResponse)), codes.OK)
}
