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

// Passage leads to etcd for what is passed through. Answers and errors are
// etcd's own. Nothing is tried twice, because it would be unknown whether the
// first attempt was applied; while no endpoint is there, calls fail at once.
//
// A call carries the token of the incoming call of its context, never ours. A call
// without a token gets one that etcd never issues: an etcd that takes the names in
// certificates for users would else serve the caller with the rights of our own
// certificate. While its authentication is off, etcd ignores tokens.
//
// Messages may be *wire.Encoded, which are passed as they are. compacted is called with the
// revision of each successful Compact.
func (c *Conns) Passage(compacted func(kv.Revision)) grpc.ClientConnInterface {
	return passage{conn: c.passage, compacted: compacted}
}

type passage struct {
	conn      *grpc.ClientConn
	compacted func(kv.Revision)
}

// Invoke implements grpc.ClientConnInterface.
func (p passage) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	floor := compaction(method, args)
	ctx, named := asCaller(ctx, method)
	err := p.conn.Invoke(ctx, method, args, reply, asTheyAre(opts)...)
	if err == nil && floor > 0 {
		p.compacted(floor)
	}
	return judged(err, named)
}

// NewStream implements grpc.ClientConnInterface.
func (p passage) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, named := asCaller(ctx, method)
	s, err := p.conn.NewStream(ctx, desc, method, asTheyAre(opts)...)
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

// judged returns an error of etcd's as the caller would get it there: a caller without
// a token knows nothing of the one that was sent.
func judged(err error, named bool) error {
	if !named && Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		return rpctypes.ErrGRPCUserEmpty
	}
	return err
}

// asTheyAre adds the codec that knows encoded messages.
func asTheyAre(opts []grpc.CallOption) []grpc.CallOption {
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

// asCaller copies from the incoming call what etcd looks at: the token, in
// both of its spellings (auth/store.go), the wish for a leader, and the
// client's version (v3rpc/interceptor.go). It reports whether the caller has a token, or
// needs none.
func asCaller(ctx context.Context, method string) (_ context.Context, named bool) {
	in, _ := metadata.FromIncomingContext(ctx)
	named = open(method) || len(in.Get(rpctypes.TokenFieldNameGRPC)) > 0 || len(in.Get(rpctypes.TokenFieldNameSwagger)) > 0
	if !named {
		ctx = WithToken(ctx, nobody)
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

// open reports whether etcd serves a method to anyone. AuthStatus, which fails with a
// token that is none, grants nothing.
func open(method string) bool {
	return method == etcdserverpb.Auth_Authenticate_FullMethodName || method == etcdserverpb.Auth_AuthStatus_FullMethodName
}
