package etcd

import (
	"context"
	"net"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Writes reach etcd with their caller's identity, not with ours, and return etcd's own response.
func TestProxyConn(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.Username, cfg.Password = "root", "secret"
	c := newClient(t, cfg)
	w := etcdserverpb.NewKVClient(c.ProxyConn())
	put := &etcdserverpb.PutRequest{Key: []byte("/w/a"), Value: []byte("1")}
	r, err := w.Put(t.Context(), put)
	if err != nil || r.Header.Revision != 2 {
		t.Fatal(r, err)
	}
	if _, err := w.Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: 3}); !etcdconn.Is(err, rpctypes.ErrGRPCFutureRev) {
		t.Errorf("a compaction of a future revision: %v", err)
	}
	withAuth(t, s.Client())
	if _, err := c.Revision(t.Context()); err != nil { // logs this client in
		t.Fatal(err)
	}
	if _, err := w.Put(t.Context(), put); !etcdconn.Is(err, rpctypes.ErrGRPCUserEmpty) {
		t.Errorf("a caller without a token: %v", err)
	}
	token, err := c.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"token", "authorization"} {
		caller := metadata.NewIncomingContext(t.Context(), metadata.Pairs(key, token, "other", "thing"))
		if _, err := w.Put(caller, put); err != nil {
			t.Errorf("a caller with root's token as %q: %v", key, err)
		}
	}
}

// The client remembers a compaction that it has forwarded, so that later checks need no read of etcd.
func TestProxyConnRemembersCompactions(t *testing.T) {
	s := etcdtest.Start(t)
	grow(t, s.Client(), 19)
	c := newClient(t, testConfig(s.Endpoint()))
	raw := func(m proto.Message) *wire.Encoded {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}}
	}
	want := func(want string) {
		t.Helper()
		if got := says(c.CheckRevision(t.Context(), 4)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want("now 20")
	if _, err := etcdserverpb.NewKVClient(c.ProxyConn()).Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: 5}); err != nil {
		t.Fatal(err)
	}
	want("4: compacted to 5")
	if err := c.ProxyConn().Invoke(t.Context(), etcdserverpb.KV_Compact_FullMethodName, raw(&etcdserverpb.CompactionRequest{Revision: 7}), new(wire.Encoded)); err != nil {
		t.Fatal(err)
	}
	want("4: compacted to 7")
	// etcd refuses to compact a revision that it has not reached: everything stays readable.
	if _, err := etcdserverpb.NewKVClient(c.ProxyConn()).Compact(t.Context(), &etcdserverpb.CompactionRequest{Revision: 1000}); err == nil {
		t.Error("etcd compacted a future revision")
	}
	want("4: compacted to 7")
	if n := c.Stats(); n.Watches != 0 || n.ClockReads != 1 {
		t.Errorf("want no read of etcd after the compactions: %+v", n)
	}
}

// A forwarded call carries the metadata that etcd uses, in every spelling, and no other.
func TestProxyConnCarriesTheCaller(t *testing.T) {
	seen := make(chan metadata.MD, 1)
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		seen <- md
		return status.Error(codes.DataLoss, "enough")
	}))
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	cfg := testConfig("one:1")
	cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	c := newClient(t, cfg)
	caller := metadata.NewIncomingContext(t.Context(), metadata.Pairs(
		"token", "t1", "authorization", "t2", "hasleader", "true", "client-api-version", "3.7", "other", "thing"))
	call := map[string]func(context.Context) error{
		"unary": func(ctx context.Context) error {
			_, err := etcdserverpb.NewLeaseClient(c.ProxyConn()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{})
			return err
		},
		"stream": func(ctx context.Context) error {
			s, err := etcdserverpb.NewLeaseClient(c.ProxyConn()).LeaseKeepAlive(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	for name, do := range call {
		if err := do(caller); status.Code(err) != codes.DataLoss {
			t.Errorf("%s: %v", name, err)
		}
		md := <-seen
		for key, want := range map[string][]string{
			"token": {"t1"}, "authorization": {"t2"}, "hasleader": {"true"}, "client-api-version": {"3.7"}, "other": nil,
		} {
			if got := md.Get(key); !slices.Equal(got, want) {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
		if err := do(t.Context()); status.Code(err) != codes.DataLoss {
			t.Errorf("%s: %v", name, err)
		}
		// Without a token, etcd could take the name in our certificate for the caller's name.
		if md := <-seen; len(md.Get("token")) != 1 || len(md.Get("authorization")) != 0 {
			t.Errorf("%s: a caller without a token has %q", name, md.Get("token"))
		}
	}
}

// While etcd is away, a forwarded call fails soon, with the code unavailable.
func TestProxyConnWithoutEtcd(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	s.Stop()
	_, err := etcdserverpb.NewKVClient(c.ProxyConn()).Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("a")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}
