package peerapi

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// grantor grants permits when the test allows it.
type grantor struct {
	asked func(node shard.NodeID, purpose string)
	may   chan struct{}
	out   int
}

func (g *grantor) Grant(ctx context.Context, node shard.NodeID, purpose string) (func(), error) {
	g.asked(node, purpose)
	select {
	case <-g.may:
		g.out++
		return func() { g.out-- }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// permitStream is the stream that requests and holds one permit.
type permitStream struct {
	grpc.ServerStream
	ctx          context.Context //nolint:containedctx // as gRPC has it
	header, sent int
	fails        error
}

func (s *permitStream) Context() context.Context          { return s.ctx }
func (s *permitStream) SendHeader(metadata.MD) error      { s.header++; return nil }
func (s *permitStream) Send(*peerv1.PermitResponse) error { s.sent++; return s.fails }

// A node that requests a permit learns at once that it waits. It has the permit for as long as its stream lives,
// and loses it however the stream ends.
func TestPermitIsHeldByItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []string{"used", "given up while waiting", "gone when granted"} {
			ctx, end := context.WithCancel(t.Context())
			stream := &permitStream{ctx: ctx}
			g := &grantor{may: make(chan struct{}), asked: func(node shard.NodeID, purpose string) {
				if node != "there" || purpose != "list" || stream.header != 1 {
					t.Errorf("%s: node %s requests %q after %d headers, want node there, list and one header", x, node, purpose, stream.header)
				}
			}}
			s := New(Config{Permits: g})
			ended := make(chan error, 1)
			go func() { ended <- s.Permit(&peerv1.PermitRequest{Node: "there", Purpose: "list"}, stream) }()
			synctest.Wait()
			if stream.sent != 0 || len(ended) != 0 {
				t.Errorf("%s: %d responses before the permit is granted, or the stream ended", x, stream.sent)
			}
			switch x {
			case "used":
				close(g.may)
				synctest.Wait()
				if stream.sent != 1 || g.out != 1 || len(ended) != 0 {
					t.Errorf("granted: %d responses, %d permits in use, %d streams ended", stream.sent, g.out, len(ended))
				}
				end()
			case "given up while waiting":
				end()
			default:
				stream.fails = io.EOF
				close(g.may)
			}
			if err := <-ended; (err == nil) != (x == "used") || g.out != 0 {
				t.Errorf("%s: %d permits in use after the stream, error %v", x, g.out, err)
			}
			end()
		}
	})
	var u *kv.UnavailableError
	none := New(Config{})
	if err := wire.Error(none.Permit(&peerv1.PermitRequest{}, &permitStream{ctx: t.Context()})); !errors.As(err, &u) {
		t.Errorf("a node without permits: %v, want UnavailableError", err)
	}
}
