package etcdapi

import (
	"context"
	"errors"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// streamedRange serves RangeStream.
func (d *Door) streamedRange() method {
	return method{stream: func(_ any, s grpc.ServerStream) error {
		r := new(etcdserverpb.RangeRequest)
		if err := s.RecvMsg(r); err != nil {
			return err
		}
		return d.RangeStream(r, s)
	}}
}

// RangeStream implements etcd's KV.RangeStream: Range in chunks. What a client
// has not read yet stays unencoded, by gRPC's flow control.
func (d *Door) RangeStream(r *etcdserverpb.RangeRequest, gs grpc.ServerStream) error {
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
		// etcd sorts each of its chunks by the target, and goes on behind the
		// last one's last key: whatever that means, it is etcd's to say.
		return d.forwardStream(ctx, r, gs)
	}
	if err := d.mayRead(ctx, rng); err != nil {
		return err
	}
	out := &chunkSender{d: d, out: gs, list: d.reads.chunks.list(how.form())}
	reading, now, err := d.read(ctx, r, rng)
	if err == nil {
		if err = out.send(ctx, how, reading, now); err == nil {
			return nil
		}
	}
	if err := d.refusal(ctx, err); err != nil {
		return err
	}
	if out.sent {
		return rpctypes.ErrGRPCTimeoutDueToConnectionLost // a node has failed in the middle
	}
	leave, err := d.detour(ctx, rng, err)
	if err != nil {
		return err
	}
	defer leave()
	return d.forwardStream(ctx, r, gs)
}

// chunkSender sends a reading in chunks.
type chunkSender struct {
	d    *Door
	out  grpc.ServerStream
	list *list
	sent bool // something
}

// send sends all of the reading. Header, more and count come last, as etcd has
// them.
func (s *chunkSender) send(ctx context.Context, how selection, reading *router.Reading, now kv.Revision) error {
	count, more, err := how.scan(ctx, reading, s.add)
	if err == nil {
		err = s.list.finish()
	}
	if err != nil {
		s.list.buffers.Free()
		return err
	}
	if now == 0 {
		now = reading.Revision
	}
	h := s.d.wireHeader(now)
	return s.flush(&wire.RangeAnswer{Header: &h, Items: s.list.items, More: more, Count: count})
}

// add adds an item, and sends what there is when it is enough.
func (s *chunkSender) add(item *kv.KeyValue) error {
	if err := s.list.add(item); err != nil {
		return err
	}
	if s.list.own < int64(s.d.cfg.MaxMessageBytes/2) {
		return nil
	}
	return s.flush(&wire.RangeAnswer{})
}

// flush sends an answer with the chunks that are complete. It blocks while the
// client does not read.
func (s *chunkSender) flush(a *wire.RangeAnswer) error {
	a.Encoded, a.Form = s.list.buffers, s.list.form
	s.list.buffers, s.list.own = nil, 0
	s.sent = true
	if err := s.out.SendMsg(a.EncodeChunk()); err != nil {
		return final{err}
	}
	return nil
}

// forwardStream has etcd answer.
func (d *Door) forwardStream(ctx context.Context, r *etcdserverpb.RangeRequest, out grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := d.cfg.Etcd.Passage().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, etcdserverpb.KV_RangeStream_FullMethodName)
	if err == nil {
		err = in.SendMsg(r)
	}
	if err == nil {
		err = in.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: receiving says why
		return err
	}
	return answers(in, out)
}
