package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Batch sends messages of one stream of etcd's Watch, many at a time. The zero Batch
// must be given its stream with Init. One goroutine at a time may use it.
//
// A message costs gRPC several times what copying its bytes does: it is queued,
// scheduled, framed and accounted for on its own. But on the wire a stream is a
// sequence of bytes, in which every message has its length before it
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md), so any
// number of them can be handed over together. What is handed over goes to the
// transport past grpc.ServerStream, which has no such method, and hence past
// interceptors and statistics. Where the transport is not the one that we know,
// messages go one by one.
type Batch struct {
	// What was added: either one message, which may stay alone, or bytes.
	one *Shared
	id  int64   // of one's watch
	buf *[]byte // of the pool

	to    Recipient // the last one of a message alone; with a watch a stream, of all
	toID  int64
	out   interface{ SendMsg(m any) error }
	write *transport      // nil: not looked for yet
	ctx   context.Context //nolint:containedctx // leads to the transport
}

const (
	// batchBytes is the most that is handed over at a time: what one frame takes.
	batchBytes = 16 << 10
	// batchedBytes is the size of a message from which copying it is not cheaper.
	batchedBytes = 4 << 10
	// messageHead is what stands before a message: whether it is compressed, and
	// its length.
	messageHead = 1 + 4
)

// Init sets the stream; ctx is its own, of the call.
func (b *Batch) Init(ctx context.Context, out interface{ SendMsg(m any) error }) {
	b.ctx, b.out = ctx, out
}

// Add sends a message to the watch with an ID, at once or with those that follow;
// see Flush. It may block while the client does not read, and fails when the
// stream has ended.
func (b *Batch) Add(id int64, m *Shared) error {
	size := messageHead + m.Size(id)
	if size > batchedBytes || b.buf != nil && len(*b.buf)+size > batchBytes {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	switch {
	case size > batchedBytes:
		return b.out.SendMsg(m.To(NewEtcdRecipient(id)))
	case b.buf != nil:
		*b.buf = m.appendTo(*b.buf, id)
	case b.one == nil:
		b.one, b.id = m, id
	case b.open():
		b.buf = pool.Get(batchBytes)
		*b.buf = m.appendTo(b.one.appendTo((*b.buf)[:0], b.id), id)
		b.one = nil
	default:
		err := b.Flush()
		b.one, b.id = m, id
		return err
	}
	return nil
}

// Flush sends what was added. It may block while the client does not read.
func (b *Batch) Flush() error {
	switch {
	case b.one != nil:
		if b.to.id == nil || b.toID != b.id {
			b.to, b.toID = NewEtcdRecipient(b.id), b.id
		}
		m := b.one.To(b.to)
		b.one = nil
		return b.out.SendMsg(m)
	case b.buf != nil:
		data := mem.BufferSlice{mem.NewBuffer(b.buf, pool)}
		b.buf = nil
		defer data.Free()
		return b.write.send(data)
	}
	return nil
}

// appendTo appends the message as it goes on the wire.
func (m *Shared) appendTo(b []byte, id int64) []byte {
	b = append(b, 0)                                         // not compressed
	b = binary.BigEndian.AppendUint32(b, uint32(m.Size(id))) //nolint:gosec // at most batchedBytes
	b = protowire.AppendTag(b, etcdWatchID, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(id)) //nolint:gosec // proto's int64
	for _, part := range m.rest {
		b = append(b, part.ReadOnlyData()...)
	}
	return b
}

// open finds the transport. It reports whether there is one that takes bytes.
func (b *Batch) open() bool {
	if b.write == nil {
		b.write = transportOf(grpc.ServerTransportStreamFromContext(b.ctx))
	}
	return b.write.framed != nil || b.write.method.IsValid()
}

// transport is the Write method of grpc-go's server transport stream, whose
// package is internal:
//
//	Write(header []byte, data mem.BufferSlice, options *transport.WriteOptions) error
//
// Our own server's stream has a method for it.
type transport struct {
	framed framed        // nil: the stream is grpc-go's
	method reflect.Value // none: the stream is another one
	args   [3]reflect.Value
}

// framed is a stream that takes whole messages, each with its head.
type framed interface {
	SendFramed(data mem.BufferSlice) error
}

func transportOf(stream grpc.ServerTransportStream) *transport {
	none := new(transport)
	if stream == nil {
		return none
	}
	if f, ok := stream.(framed); ok {
		return &transport{framed: f}
	}
	m := reflect.ValueOf(stream).MethodByName("Write")
	if !m.IsValid() {
		return none
	}
	t := m.Type()
	if t.NumIn() != 3 || t.In(0) != reflect.TypeFor[[]byte]() || t.In(1) != reflect.TypeFor[mem.BufferSlice]() || t.In(2).Kind() != reflect.Pointer ||
		t.NumOut() != 1 || t.Out(0) != reflect.TypeFor[error]() {
		return none
	}
	return &transport{method: m, args: [3]reflect.Value{reflect.Zero(t.In(0)), {}, reflect.New(t.In(2).Elem())}}
}

// send hands data over. The caller keeps its reference to it.
func (t *transport) send(data mem.BufferSlice) error {
	if t.framed != nil {
		return t.framed.SendFramed(data)
	}
	t.args[1] = reflect.ValueOf(data)
	err := t.method.Call(t.args[:])[0]
	t.args[1] = reflect.Value{}
	if err.IsNil() {
		return nil
	}
	return fmt.Errorf("send: %w", err.Interface().(error)) // transportOf has looked
}
