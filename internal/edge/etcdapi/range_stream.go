package etcdapi

import (
	"context"
	"errors"
	"io"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// streamedRange serves RangeStream.
func (a *API) streamedRange() method {
	return method{stream: func(_ any, s grpc.ServerStream) error {
		r := new(etcdserverpb.RangeRequest)
		if err := s.RecvMsg(r); err != nil {
			return err
		}
		return a.RangeStream(r, s)
	}}
}

// RangeStream implements etcd's KV.RangeStream: Range in chunks.
//
// Between two chunks only the next key is kept: a client that does not
// read holds one chunk, by gRPC's flow control, and no old state. If the
// revision is no longer kept when it reads again, etcd sends the rest.
func (a *API) RangeStream(r *etcdserverpb.RangeRequest, gs grpc.ServerStream) error {
	if err := checkRange(r); err != nil {
		return err
	}
	how := selectionOf(r)
	switch {
	case !how.inOrder():
		return wire.Unimplemented("RangeStream does not support custom sort orders")
	case how.filtered():
		return wire.Unimplemented("RangeStream does not support revision filters")
	}
	ctx := gs.Context()
	rng, ok := rangeOf(r)
	if !ok || r.GetSortTarget() != etcdserverpb.RangeRequest_KEY && !r.GetCountOnly() {
		// etcd sorts each of its chunks by the target, and continues after the last
		// key of the last chunk: only etcd can define the result.
		return a.forwardStream(ctx, r, gs, func() {})
	}
	if err := a.mayRead(ctx, rng); err != nil {
		return err
	}
	out := &chunkSender{api: a, out: gs, r: r, form: how.form(), left: rng}
	err := out.run(ctx)
	if err == nil {
		return nil
	}
	if err := a.refusal(ctx, err); err != nil {
		return err
	}
	leave, err := a.detour(ctx, rng, err)
	if err != nil {
		return err
	}
	// Hold the turn only until etcd's first message: the client may read it late.
	leave = sync.OnceFunc(leave)
	defer leave()
	if out.sent == 0 {
		return a.forwardStream(ctx, r, gs, leave)
	}
	return out.finishAtEtcd(ctx, leave)
}

// chunkSender sends a range in chunks.
type chunkSender struct {
	api  *API
	out  grpc.ServerStream
	r    *etcdserverpb.RangeRequest
	form wire.ItemForm

	revision kv.Revision // the revision of the read
	header   wire.Header
	count    int64    // keys of the whole range
	total    int64    // keys to send: count or the limit
	sent     int64    // keys
	left     kv.Range // not sent yet
}

// errChunk reports that a chunk is complete, and that there may be more.
var errChunk = errors.New("the chunk is complete")

// errMiscounted reports that there are fewer keys than counted.
var errMiscounted = errors.New("keys are missing that were counted")

// run sends all of the range.
func (s *chunkSender) run(ctx context.Context) error {
	reading, now, err := s.api.read(ctx, s.r, s.left)
	if err != nil {
		return err
	}
	// Count now, because the count is sent at the end, as etcd does.
	if s.count, err = reading.Count(ctx); err != nil {
		return err
	}
	s.revision = reading.Revision
	tellAge(s.r, reading, s.out.SetHeader)
	if now == 0 {
		now = s.revision
	}
	s.header = s.api.view.WireHeader(now)
	if s.r.GetCountOnly() {
		return s.send(&wire.RangeAnswer{Header: &s.header, Count: s.count})
	}
	if s.total = s.count; s.r.GetLimit() > 0 {
		s.total = min(s.total, s.r.GetLimit())
	}
	for {
		chunk, err := s.chunk(ctx, reading)
		if err != nil {
			return err
		}
		// The reading is not used again, so that a client that does not read holds no
		// old state.
		if err := s.send(chunk); err != nil || s.sent == s.total {
			return err
		}
		reading, err = s.api.cfg.Router.Read(ctx, router.ReadRequest{Range: s.left, Revision: s.revision, Exists: true})
		if err != nil {
			return err
		}
	}
}

// remoteKeys bounds the keys of a chunk from another node: the chunk may end earlier,
// and the keys after its end are sent in excess.
const remoteKeys = 2000

// chunk returns the next chunk. If it fails, the sender is unchanged.
func (s *chunkSender) chunk(ctx context.Context, reading *router.Reading) (*wire.RangeAnswer, error) {
	var (
		l    = s.api.reads.chunks.list(s.form, s.api.holder(ctx))
		n    int64
		last *kv.KeyValue
	)
	if s.sent < s.total {
		o := router.ScanOptions{Limit: s.total - s.sent, KeysOnly: s.form == wire.KeyItem}
		if !reading.Here() {
			o.Limit = min(o.Limit, remoteKeys)
		}
		_, err := reading.Scan(ctx, o, func(item *kv.KeyValue) error {
			n++
			last = item
			if err := l.add(item); err != nil {
				return err
			}
			if l.own >= int64(s.api.cfg.MaxMessageBytes/2) {
				return errChunk
			}
			return nil
		})
		if err == nil {
			err = l.finish()
		}
		if n == 0 && err == nil {
			err = errMiscounted
		}
		if err != nil && !errors.Is(err, errChunk) {
			l.buffers.Free()
			return nil, err
		}
		s.sent += n
		s.left.Start = string(last.Key()) + "\x00"
	}
	a := &wire.RangeAnswer{Encoded: l.buffers, Items: l.items, Form: s.form}
	if s.sent == s.total {
		a.Header, a.More, a.Count = &s.header, s.count > s.total, s.count
	}
	return a, nil
}

// send sends a chunk. It blocks while the client does not read.
func (s *chunkSender) send(a *wire.RangeAnswer) error {
	if err := s.out.SendMsg(a.EncodeChunk()); err != nil {
		return final{err}
	}
	return nil
}

// finishAtEtcd forwards the remaining keys from etcd, at the same revision. It calls begun at etcd's first message.
func (s *chunkSender) finishAtEtcd(ctx context.Context, begun func()) error {
	ctx, cancel := context.WithCancel(s.api.cfg.Access.Forward(ctx))
	defer cancel()
	key, end := s.left.Etcd()
	rest, err := etcdserverpb.NewKVClient(s.api.cfg.Etcd.ProxyConn()).RangeStream(ctx, &etcdserverpb.RangeRequest{
		Key: key, RangeEnd: end, Revision: int64(s.revision), Limit: s.total - s.sent, KeysOnly: s.r.GetKeysOnly(), Serializable: s.r.GetSerializable(),
	})
	holder := s.api.holder(s.out.Context())
	for err == nil {
		var m *etcdserverpb.RangeStreamResponse
		if m, err = rest.Recv(); err != nil {
			break
		}
		begun()
		if chunk := m.GetRangeResponse(); chunk.GetHeader() != nil { // the last one
			chunk.Header = s.api.view.Header(s.header.Revision)
			chunk.More, chunk.Count = s.count > s.total, s.count
		}
		err = s.api.sendHeld(holder, s.out, m, proto.Size(m))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// forwardStream forwards the request to etcd. It calls begun at etcd's first message.
func (a *API) forwardStream(ctx context.Context, r *etcdserverpb.RangeRequest, out grpc.ServerStream, begun func()) error {
	caller, err := a.view.Caller(ctx)
	if err == nil {
		err = a.judge(ctx, caller, etcdserverpb.KV_RangeStream_FullMethodName, r)
	}
	if err == nil {
		ctx = a.cfg.Access.Forward(ctx)
		err = a.Nameless(ctx, etcdserverpb.KV_RangeStream_FullMethodName)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := a.cfg.Etcd.ProxyConn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, etcdserverpb.KV_RangeStream_FullMethodName)
	if err != nil {
		return err
	}
	if err := in.SendMsg(r); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg returns the reason
		return err
	}
	if err := in.CloseSend(); err != nil {
		return err
	}
	return a.answers(out, func() (*wire.Encoded, error) {
		m := new(wire.Encoded)
		err := in.RecvMsg(m)
		begun()
		return m, err
	})
}
