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

// Announcer is a grpc.ServerTransportStream of Messages that announce when they block. Without it, each SendMsg
// may block, so that another pump must replace the caller beforehand: a goroutine for each message.
type Announcer interface {
	// Announce sets the function that each later SendMsg calls before it waits for the client to
	// read; nil: none. The goroutine that calls SendMsg calls Announce.
	Announce(wait func())
}

// Transport is a grpc.ServerTransportStream that takes bytes. A gRPC stream is a sequence
// of bytes in which a length precedes each message
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md), so messages need not
// be handed over one by one. One goroutine at a time uses it.
type Transport interface {
	// SendFramed sends whole messages, each with its head, at the next Flush or before. It
	// does not retain the bytes, and calls wait before it waits for the client to read.
	SendFramed(wait func(), parts ...[]byte) error
	// Flush writes the bytes that the connection's streams have sent. It does not block.
	Flush()
	// Attach returns the value that is attached to the stream's connection. The first call
	// attaches the result of create.
	Attach(create func() any) any
}

const (
	// handOver bounds the messages that are copied into one buffer before they are handed over, in
	// bytes: the content of a frame.
	handOver = 16 << 10
	// copied is the largest message, in bytes, that is copied: larger messages are handed over as
	// they are, because a second copy is not cheaper.
	copied = 4 << 10
	// messageHead is the size of the head of a message: the compression flag and
	// the length.
	messageHead = 1 + 4
)

// output carries messages from the tasks of a stream to its client. The pump that serves the stream owns it.
type output struct {
	own   *Scratch  // of the pump that serves the stream
	to    Transport // nil: messages go to plain
	err   error     // of the first failed send
	says  Announcer // of plain; nil: SendMsg does not announce when it waits
	plain Messages
}

// Send sends a *wire.Encoded or a proto message, at the end of the turn at the latest. It
// may block while the client does not read, and fails after the stream has ended. Only the
// tasks of the stream may call it.
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

// SendShared is Send of one message to several watches of its API, given by ID.
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

// SendTo is Send of a shared message to one recipient.
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

// send sends a message of size bytes.
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

// flush hands the messages in the buffer over to the transport.
func (o *output) flush() {
	if own := o.own; len(own.buf) > 0 {
		own.parts = append(own.parts[:0], own.buf)
		o.handOver()
	}
}

// handOver hands the pump's parts over to the transport. The first part is its buffer.
func (o *output) handOver() {
	own := o.own
	if o.err == nil {
		o.err = o.to.SendFramed(own.wait, own.parts...)
	}
	clear(own.parts)
	own.buf = own.buf[:0]
}
