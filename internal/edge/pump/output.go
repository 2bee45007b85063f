package pump

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// Messages is a stream that takes messages one by one. SendMsg may block while the client
// does not read; one goroutine at a time calls it.
type Messages interface {
	// SendMsg sends a *wire.Encoded or a proto message.
	SendMsg(m any) error
}

// Announcer is a grpc.ServerTransportStream of Messages that announce when they wait. Others may wait
// in each SendMsg, so that a pump leaves its place to another one before it: a goroutine for each message.
type Announcer interface {
	// Announce has each SendMsg from now on call wait before it waits for the client to read. The
	// goroutine that calls SendMsg calls it. nil: none wants to know.
	Announce(wait func())
}

// Transport is a grpc.ServerTransportStream that takes bytes. To gRPC a stream is a sequence
// of bytes in which each message has its length before it
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md), so messages need not
// be handed over one by one. One goroutine at a time uses it.
type Transport interface {
	// SendFramed sends whole messages, each with its head, at the next Flush or before. It
	// keeps none of the bytes, and calls wait before it waits for the client to read.
	SendFramed(wait func(), parts ...[]byte) error
	// Flush writes the bytes that the connection's streams have sent. It does not wait.
	Flush()
	// Attach returns the value that is attached to the stream's connection. The first call
	// attaches the result of create.
	Attach(create func() any) any
}

const (
	// handOver is the most that is copied together before it is handed over, in bytes:
	// the content of a frame.
	handOver = 16 << 10
	// copied is the size, in bytes, from which a message is handed over uncopied: copying
	// it twice is not cheaper.
	copied = 4 << 10
	// messageHead is the size of a message's head: whether it is compressed, and
	// its length.
	messageHead = 1 + 4
)

// output leads from a stream's tasks to its client. The pump that is at the stream owns it.
type output struct {
	own   *Scratch  // of the pump that is at the stream
	to    Transport // nil: messages go to plain
	err   error     // of the first send that has failed
	says  Announcer // of plain; nil: it does not announce when it waits
	plain Messages
}

// Send sends a *wire.Encoded or a proto message, at the end of the turn at the latest. It
// may block while the client does not read, and fails when the stream has ended. Only the
// stream's tasks may call it.
func (s *Stream) Send(m any) error {
	o := &s.out
	switch {
	case o.err != nil:
	case o.to == nil:
		o.err = o.plain.SendMsg(m)
	default:
		data, err := o.own.codec.Marshal(m)
		if err != nil {
			return err
		}
		o.send(data.Len(), nil, data)
		data.Free()
	}
	return o.err
}

// SendShared is Send of a message to each of several watches of its API, by their IDs.
func (s *Stream) SendShared(m *wire.Shared, ids ...int64) error {
	o := &s.out
	for _, id := range ids {
		switch {
		case o.err != nil:
			return o.err
		case o.to == nil:
			o.err = o.plain.SendMsg(m.To(m.Recipient(id)))
		default:
			var head [wire.MaxRecipient]byte
			begin := m.AppendRecipient(head[:0], id)
			o.send(len(begin)+m.Size(), begin, m.Rest())
		}
	}
	return o.err
}

// SendTo is Send of a message to a recipient.
func (s *Stream) SendTo(to wire.Recipient, m *wire.Shared) error {
	o := &s.out
	switch {
	case o.err != nil:
	case o.to == nil:
		o.err = o.plain.SendMsg(m.To(to))
	default:
		o.send(m.SizeTo(to), to.Bytes(), m.Rest())
	}
	return o.err
}

// send sends a message of so many bytes.
func (o *output) send(size int, begin []byte, rest mem.BufferSlice) {
	own := o.own
	own.sent += size
	room := messageHead + size
	if size > copied {
		room = messageHead + len(begin)
	}
	if len(own.buf)+room > handOver {
		o.flush()
	}
	if own.buf == nil {
		own.buf = make([]byte, 0, handOver)
	}
	own.buf = binary.BigEndian.AppendUint32(append(own.buf, 0), uint32(size)) //nolint:gosec // a revision, at most
	own.buf = append(own.buf, begin...)
	if size <= copied {
		for _, part := range rest {
			own.buf = append(own.buf, part.ReadOnlyData()...)
		}
		return
	}
	own.parts = append(own.parts[:0], own.buf)
	for _, part := range rest {
		own.parts = append(own.parts, part.ReadOnlyData())
	}
	o.handOver()
}

// flush hands over the messages that were sent.
func (o *output) flush() {
	if own := o.own; len(own.buf) > 0 {
		own.parts = append(own.parts[:0], own.buf)
		o.handOver()
	}
}

// handOver hands over the pump's parts, of which its buffer is the first.
func (o *output) handOver() {
	own := o.own
	if o.err == nil {
		o.err = o.to.SendFramed(own.wait, own.parts...)
	}
	clear(own.parts)
	own.buf = own.buf[:0]
}
