package etcd

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Field numbers of etcdserverpb.WatchResponse and ResponseHeader. They are
// written here a second time because the generated code allocates each event
// five times; a test holds the two against each other.
const (
	fieldHeader          = 1
	fieldWatchID         = 2
	fieldCreated         = 3
	fieldCanceled        = 4
	fieldCompactRevision = 5
	fieldCancelReason    = 6
	fieldFragment        = 7
	fieldEvents          = 11

	fieldHeaderRevision = 3
)

// watchResponse is the decoded form of an etcdserverpb.WatchResponse.
type watchResponse struct {
	watch                       int64
	revision                    kv.Revision // the header's
	created, canceled, fragment bool
	compacted                   kv.Revision
	reason                      string
	events                      []kv.Event // the next response is decoded into them

	// keep is how many bytes of events are decoded; 0: all. The response is cut after the
	// revision that reaches it.
	keep int
	cut  bool
}

// decode reads the wire form. It keeps nothing of b: the bytes of each event are
// copied, alone, since b belongs to gRPC and holds many of which one may live for
// years.
func (r *watchResponse) decode(b []byte) error {
	events := r.events
	if clear(events); cap(events) > reused {
		events = nil
	}
	*r = watchResponse{events: events[:0], keep: r.keep}
	size := 0
	err := wire.EachField(b, func(num protowire.Number, v []byte, i uint64) error {
		switch num {
		case fieldHeader:
			return wire.EachField(v, func(num protowire.Number, _ []byte, i uint64) error {
				if num == fieldHeaderRevision {
					r.revision = kv.Revision(i) //nolint:gosec // proto's int64
				}
				return nil
			})
		case fieldWatchID:
			r.watch = int64(i) //nolint:gosec // proto's int64
		case fieldCreated:
			r.created = i != 0
		case fieldCanceled:
			r.canceled = i != 0
		case fieldCompactRevision:
			r.compacted = kv.Revision(i) //nolint:gosec // proto's int64
		case fieldCancelReason:
			r.reason = string(v)
		case fieldFragment:
			r.fragment = i != 0
		case fieldEvents:
			if r.keep > 0 && size >= r.keep && r.cutBefore(v) {
				return nil
			}
			size += len(v)
			e, err := kv.DecodeEvent(bytes.Clone(v))
			if err != nil {
				return err //nolint:wrapcheck // below
			}
			r.events = append(r.events, e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}

// cutBefore cuts the response before an event of another revision than that of the last one. It
// reports whether the response is cut.
func (r *watchResponse) cutBefore(event []byte) bool {
	if !r.cut {
		e, err := kv.DecodeEvent(event)
		r.cut = err == nil && e.KV.ModRevision() != r.events[len(r.events)-1].KV.ModRevision()
	}
	return r.cut
}

// watchStream is a stream of watches. One goroutine sends, another receives.
type watchStream struct {
	etcdserverpb.Watch_WatchClient
	token string        // which it was opened with
	last  watchResponse // owned by receive
}

// openWatch opens a stream of watches.
func (c *Client) openWatch(ctx context.Context, on etcdserverpb.WatchClient, options ...grpc.CallOption) (*watchStream, error) {
	token, err := c.Token(ctx)
	if err != nil {
		return nil, etcdconn.Broken("log in", err)
	}
	s, err := on.Watch(etcdconn.WithLeader(etcdconn.WithToken(ctx, token)), append(options, grpc.ForceCodecV2(wire.NewCodec()))...)
	if err != nil {
		return nil, etcdconn.Broken("open the stream", err)
	}
	return &watchStream{Watch_WatchClient: s, token: token}, nil
}

// receive returns the next response, which is good until the next call.
func (s *watchStream) receive() (*watchResponse, error) {
	var m wire.Encoded
	if err := s.RecvMsg(&m); err != nil {
		return nil, err //nolint:wrapcheck // the caller sorts it
	}
	defer m.Buffers.Free()
	b := m.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	if err := s.last.decode(b.ReadOnlyData()); err != nil {
		return nil, err
	}
	return &s.last, nil
}
