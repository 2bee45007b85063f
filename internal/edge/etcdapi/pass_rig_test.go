package etcdapi_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/etcd"
)

// passRig is an API without a cache in front of an etcd, for tests of forwarded calls.
type passRig struct {
	up   *etcd.Client
	addr string
	conn *grpc.ClientConn // of a client
}

// startPass runs an API in front of the etcd at endpoint until the test ends.
func startPass(tb testing.TB, endpoint string, tune ...func(*etcdapi.Config)) *passRig {
	tb.Helper()
	ec := etcd.Defaults()
	ec.Endpoints, ec.Logger = []string{endpoint}, slog.New(slog.DiscardHandler)
	return startPassOf(tb, ec, tune...)
}

func startPassOf(tb testing.TB, ec etcd.Config, tune ...func(*etcdapi.Config)) *passRig {
	tb.Helper()
	up, err := etcd.New(ec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = up.Close() })
	cfg := etcdapi.Defaults()
	cfg.Etcd, cfg.Self = up, "here"
	for _, t := range tune {
		t(&cfg)
	}
	api, err := etcdapi.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(2<<20))
	api.Register(s, new(pump.Pumps))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	tb.Cleanup(func() { s.Stop(); <-ended })
	return &passRig{up: up, addr: l.Addr().String(), conn: dialPlain(tb, l.Addr().String())}
}

func dialPlain(tb testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	c, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// dialFrom is dialPlain from a local address: another client, for the budget.
func dialFrom(tb testing.TB, from, address string) *grpc.ClientConn {
	tb.Helper()
	return dialPlain(tb, address, grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return d.DialContext(ctx, "tcp", to)
	}))
}

// within returns a context with the timeout of the tests.
func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	tb.Cleanup(cancel)
	return ctx
}
