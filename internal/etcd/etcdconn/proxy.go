package etcdconn

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// ProxyConn returns a connection that forwards calls of clients to etcd and returns etcd's
// own answers and errors. It never retries a call, because the first attempt may have been
// applied. While no endpoint is connected, calls fail at once.
//
// A call carries the token of the incoming call of its context, never the node's. A call
// without a token gets one that etcd never issues: otherwise an etcd that maps
// certificate names to users would serve the caller with the rights of the node's
// certificate. While its authentication is off, etcd ignores tokens.
//
// Messages may be *wire.Encoded, which are forwarded unchanged. compacted is called with the
// revision of each successful Compact.
func (c *Conns) ProxyConn(compacted func(kv.Revision)) grpc.ClientConnInterface {
	return proxyConn{conn: c.proxy, compacted: compacted}
}

type proxyConn struct {
	conn      *grpc.ClientConn
	compacted func(kv.Revision)
}

// Invoke implements grpc.ClientConnInterface.
func (p proxyConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	floor := compaction(method, args)
	ctx, named := asCaller(ctx, method)
	err := p.conn.Invoke(ctx, method, args, reply, withCodec(opts)...)
	if err == nil && floor > 0 {
		p.compacted(floor)
	}
	return judged(err, named)
}

// NewStream implements grpc.ClientConnInterface.
func (p proxyConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, named := asCaller(ctx, method)
	s, err := p.conn.NewStream(ctx, desc, method, withCodec(opts)...)
	if err != nil {
		return nil, judged(err, named)
	}
	if named {
		return s, nil
	}
	return nameless{s}, nil
}

// nameless is a stream of a caller without a token.
type nameless struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (s nameless) RecvMsg(m any) error { return judged(s.ClientStream.RecvMsg(m), false) }

// judged returns etcd's error as the caller would get it from etcd itself. For a caller
// without a token, the error must not mention the token that the node added.
func judged(err error, named bool) error {
	if !named && Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		return rpctypes.ErrGRPCUserEmpty
	}
	return err
}

// withCodec adds the codec for encoded messages.
func withCodec(opts []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.ForceCodecV2(wire.NewCodec()))
}

// compaction returns the revision that a call compacts to, or 0.
func compaction(method string, args any) kv.Revision {
	if method != etcdserverpb.KV_Compact_FullMethodName {
		return 0
	}
	switch m := args.(type) {
	case *etcdserverpb.CompactionRequest:
		return kv.Revision(m.GetRevision())
	case *wire.Encoded:
		var r etcdserverpb.CompactionRequest
		if proto.Unmarshal(m.Buffers.Materialize(), &r) == nil {
			return kv.Revision(r.GetRevision())
		}
	}
	return 0
}

// asCaller copies the metadata that etcd reads from the incoming call: the token, in
// both of its spellings (auth/store.go), the request for a leader, and the
// client's version (v3rpc/interceptor.go). It reports whether the caller has a token or
// needs none.
func asCaller(ctx context.Context, method string) (_ context.Context, named bool) {
	in, _ := metadata.FromIncomingContext(ctx)
	named = open(method) || len(in.Get(rpctypes.TokenFieldNameGRPC)) > 0 || len(in.Get(rpctypes.TokenFieldNameSwagger)) > 0
	if !named {
		ctx = WithToken(ctx, invalidToken)
	}
	for _, key := range []string{
		rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataClientAPIVersionKey,
	} {
		for _, value := range in.Get(key) {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	}
	return ctx, named
}

// open reports whether etcd serves a method without a token. AuthStatus fails with an
// invalid token, and reveals only whether authentication is on.
func open(method string) bool {
	return method == etcdserverpb.Auth_Authenticate_FullMethodName || method == etcdserverpb.Auth_AuthStatus_FullMethodName
}
