package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// Ask has the options of a read.
type Ask struct {
	// Linearizable: the read sees every write that was acknowledged before it.
	Linearizable bool
	// MaxStaleness is the greatest age of a read that is not linearizable; 0:
	// the node's own bound.
	MaxStaleness time.Duration
	// At is the exact revision; 0: any.
	At kv.Revision
}

// List reads a range at one node and returns the read for a checker, with At and
// NotBefore as requested. The node must not forward the read.
func (c *Cluster) List(ctx context.Context, node string, r kv.Range, ask Ask) (check.Read, error) {
	asked := time.Now()
	out := check.Read{Name: "list at " + node, Range: r, At: ask.At, Linearizable: ask.Linearizable}
	req := &shardwatchv1.ListRequest{Revision: int64(ask.At)}
	req.Key, req.RangeEnd = r.Etcd()
	switch {
	case ask.At > 0:
	case ask.Linearizable:
		req.Consistency = shardwatchv1.Consistency_CONSISTENCY_LINEARIZABLE
		out.NotBefore = c.Etcd.Revision()
	default:
		req.Consistency = shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE
		if ask.MaxStaleness > 0 {
			req.MaxStaleness = durationpb.New(ask.MaxStaleness)
			out.NotBefore = c.RevisionAt(asked.Add(-ask.MaxStaleness))
		}
	}
	conn, err := c.dial(node)
	if err != nil {
		return out, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := shardwatchv1.NewCacheServiceClient(conn).List(ctx, req)
	if err != nil {
		return out, fmt.Errorf("list at %s: %w", node, err)
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("list at %s: %w", node, err)
		}
		out.Revision = kv.Revision(chunk.GetRevision())
		for _, k := range chunk.GetKvs() {
			out.Items = append(out.Items, check.Item{
				Key: string(k.GetKey()), Value: check.HashValue(k.GetValue()),
				Create: kv.Revision(k.GetCreateRevision()), Mod: kv.Revision(k.GetModRevision()),
				Version: k.GetVersion(), Lease: k.GetLease(),
			})
		}
	}
}

// dial connects to a node's client port from a separate host.
func (c *Cluster) dial(node string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+c.host(node).clientAddress(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.Net.Dialer("reader")))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", node, err)
	}
	return conn, nil
}
