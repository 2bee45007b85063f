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
	"github.com/shardwatch/shardwatch/internal/yield"
)

// Field numbers of etcdserverpb.WatchResponse and ResponseHeader. They are repeated
// here because the generated code allocates each event five times; a test compares the
// two.
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
	events                      []kv.Event // reused for the next response

	// keep bounds the bytes of decoded events; 0: all. The response is cut after the
	// revision that reaches the bound.
	keep  int
	cut   bool
	bytes int // of the decoded events
}

// decode reads the wire form. It keeps nothing of b: it copies the bytes of each event
// separately, since b belongs to gRPC and holds many events, of which one may live for
// years.
func (r *watchResponse) decode(b []byte) error {
	r.reset()
	err := wire.EachField(b, func(num protowire.Number, v []byte, i uint64) error { return r.field(num, v, i, bytes.Clone) })
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}

// reset prepares the response for the next one.
func (r *watchResponse) reset() {
	events := r.events
	if clear(events); cap(events) > reused {
		events = nil
	}
	*r = watchResponse{events: events[:0], keep: r.keep}
}

// field decodes one field. own returns an event's bytes, which stay unchanged.
func (r *watchResponse) field(num protowire.Number, v []byte, i uint64, own func([]byte) []byte) error {
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
		if r.keep > 0 && r.bytes >= r.keep && r.cutBefore(v) {
			return nil
		}
		r.bytes += len(v)
		e, err := kv.DecodeEvent(own(v))
		if err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		r.events = append(r.events, e)
	}
	return nil
}

// largeResponse is the size, in bytes, from which a response is decoded while it is read, to avoid a
// second copy of that size. yieldBytes are decoded between two yields.
const (
	largeResponse = 1 << 20
	yieldBytes    = 64 << 10
)

// decodeLarge is decode from a reader, which frees what it has read. It skips the events after a cut.
func (r *watchResponse) decodeLarge(in *mem.Reader) error {
	r.reset()
	var steps yield.Steps
	skip := func(num protowire.Number) bool { return r.cut && num == fieldEvents }
	err := wire.ReadFields(in, skip, func(num protowire.Number, v []byte, i uint64) error {
		steps.Did(len(v), yieldBytes)
		return r.field(num, v, i, func(b []byte) []byte { return b })
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
	token string        // which the stream was opened with
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

// receive returns the next response, which is valid until the next call.
func (s *watchStream) receive() (*watchResponse, error) {
	var m wire.Encoded
	if err := s.RecvMsg(&m); err != nil {
		return nil, err //nolint:wrapcheck // the caller sorts it
	}
	if m.Buffers.Len() >= largeResponse {
		in := m.Buffers.Reader()
		m.Buffers.Free() // it has them
		defer in.Close()
		if err := s.last.decodeLarge(in); err != nil {
			return nil, err
		}
		return &s.last, nil
	}
	defer m.Buffers.Free()
	b := m.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	if err := s.last.decode(b.ReadOnlyData()); err != nil {
		return nil, err
	}
	return &s.last, nil
}
