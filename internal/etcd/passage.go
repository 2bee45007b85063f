package etcd

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
// etcd's own. Nothing is tried twice, because nobody could tell whether the
// first attempt was applied; while no endpoint is there, calls fail at once.
//
// What goes with a call is the token of the incoming call of its context, and
// not ours: a caller without one has no more rights at etcd than it would have
// there, whatever ours are. (With client certificates as identities, etcd sees
// ours.)
//
// Messages may be *wire.Encoded, which are passed as they are.
func (c *Client) Passage() grpc.ClientConnInterface {
	return passage{conn: c.passage, past: &c.past}
}

type passage struct {
	conn *grpc.ClientConn
	past *past
}

// Invoke implements grpc.ClientConnInterface.
func (p passage) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	floor := compaction(method, args)
	err := p.conn.Invoke(asCaller(ctx), method, args, reply, asTheyAre(opts)...)
	if err == nil {
		p.past.compacted(floor)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (p passage) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return p.conn.NewStream(asCaller(ctx), desc, method, asTheyAre(opts)...)
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
// client's version (v3rpc/interceptor.go).
func asCaller(ctx context.Context) context.Context {
	in, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	for _, key := range []string{
		rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataClientAPIVersionKey,
	} {
		for _, value := range in.Get(key) {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	}
	return ctx
}
