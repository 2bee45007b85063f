package grpcserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/yield"
)

// call is the handler's view of a stream: a grpc.ServerStream.
type call struct {
	*stream
	desc       *grpc.StreamDesc
	decompress encoding.Compressor // nil: messages are not compressed

	// Owned by the receiver.
	rest  []byte // received bytes after the last message
	first bool   // a message was received
}

// messageHead is the size of the head of a message: the compression flag and the length.
const messageHead = 1 + 4

// Method implements grpc.ServerTransportStream.
func (s *stream) Method() string { return s.method }

// SetHeader implements grpc.ServerTransportStream.
func (s *stream) SetHeader(md metadata.MD) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.headed || s.gone {
		return status.Error(codes.Internal, "transport: the stream is done or WriteHeader was already called") // grpc-go's text
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader implements grpc.ServerTransportStream.
func (s *stream) SendHeader(md metadata.MD) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	err := s.sendHeaderLocked(md, nil)
	c.flushLocked()
	return err
}

// SetTrailer implements grpc.ServerTransportStream.
func (s *stream) SetTrailer(md metadata.MD) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// SendFramed sends whole messages, each with its head, at the next Flush or before. It calls
// wait, with the connection locked, before it waits for the client to read. It does not retain
// the bytes.
func (s *stream) SendFramed(wait func(), parts ...[]byte) error {
	return s.send(false, &announcement{call: wait}, parts...)
}

// Flush writes the connection's output. It does not block.
func (s *stream) Flush() { s.conn.flush() }

// Attach returns the value attached to the connection. The first call attaches the
// result of create.
func (s *stream) Attach(create func() any) any {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attached == nil {
		c.attached = create()
	}
	return c.attached
}

// AtEnd calls fn when the call has ended and its answer is sent. Only the handler of a unary call may call it, once.
func (s *stream) AtEnd(fn func()) { s.over = func(error) { fn() } }

// Context implements grpc.ServerStream.
func (c *call) Context() context.Context { return c.ctx }

// SetTrailer implements grpc.ServerStream.
func (c *call) SetTrailer(md metadata.MD) { _ = c.stream.SetTrailer(md) } // never fails

// SendMsg implements grpc.ServerStream.
func (c *call) SendMsg(m any) error {
	data, err := c.conn.srv.cfg.Codec.Marshal(m)
	if err != nil {
		return c.broken(status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err))
	}
	defer data.Free()
	size := data.Len()
	if int64(size) > maxMessage {
		return c.broken(status.Errorf(codes.ResourceExhausted, "grpc: message too large (%d bytes)", size))
	}
	var head [messageHead]byte
	binary.BigEndian.PutUint32(head[1:], uint32(size)) //nolint:gosec // at most maxMessage
	parts := make([][]byte, 1, 4)
	parts[0] = head[:]
	for _, b := range data {
		parts = append(parts, b.ReadOnlyData())
	}
	if c.desc.ServerStreams {
		return c.send(true, nil, parts...)
	}
	unread := announcement{answer: m, size: size}
	err = c.send(false, &unread, parts...) // a single answer is written with its status
	if unread.release != nil {
		unread.release()
	}
	return err
}

// maxMessage is the largest message that gRPC can frame, in bytes.
const maxMessage = 1<<32 - 1

// RecvMsg implements grpc.ServerStream.
func (c *call) RecvMsg(m any) error {
	err := c.receive(m)
	switch {
	case err == nil && c.desc.ClientStreams:
		return nil
	case err == nil: // there must be no other message
		if err = c.receive(m); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
		}
	case errors.Is(err, io.EOF) && !c.first && !c.desc.ClientStreams:
		err = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, errDeaf): // the handler decides the outcome
		return err
	}
	return c.broken(err)
}

// broken ends the call, even if its handler ignores the error.
func (c *call) broken(err error) error {
	c.finish(toStatus(err))
	return err
}

// receive receives one message. It returns io.EOF after the last one.
func (c *call) receive(m any) error {
	compressed, data, err := c.message()
	if err != nil {
		return err
	}
	content := mem.BufferSlice{mem.SliceBuffer(data)}
	if compressed {
		if content, err = c.unpack(data); err != nil {
			return err
		}
	}
	defer content.Free()
	c.first = true
	if err := c.conn.srv.cfg.Codec.Unmarshal(content, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// message returns the next message as sent, which may be compressed.
func (c *call) message() (compressed bool, data []byte, err error) {
	for len(c.rest) < messageHead {
		more, err := c.take(messageHead - len(c.rest))
		if err != nil {
			if errors.Is(err, io.EOF) && len(c.rest) > 0 {
				err = status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
			}
			return false, nil, err
		}
		if len(c.rest) > 0 {
			more = append(c.rest, more...)
		}
		c.rest = more
	}
	form, size := c.rest[0], int(binary.BigEndian.Uint32(c.rest[1:messageHead]))
	if err := c.admit(form, size); err != nil {
		return false, nil, err
	}
	n := min(size, len(c.rest)-messageHead)
	data = c.rest[messageHead : messageHead+n : messageHead+n]
	c.keep(c.rest[messageHead+n:])
	if n < size {
		// Without Config.Hold: internal/edge/intake takes budget for the whole message.
		data, err = c.whole(data, size)
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
		}
		if err != nil {
			return false, nil, err
		}
	}
	return form == 1, data, nil
}

// keep keeps the bytes of the next message; it releases the array if there are none.
func (c *call) keep(rest []byte) {
	if c.rest = rest; len(rest) == 0 {
		c.rest = nil
	}
}

// admit checks the head of a message.
func (c *call) admit(form byte, size int) error {
	switch {
	case form > 1:
		return status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", form)
	case form == 1 && (c.encoding == "" || c.encoding == encoding.Identity):
		return status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	case size > c.conn.srv.cfg.MaxReceive:
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, c.conn.srv.cfg.MaxReceive)
	}
	return nil
}

// unpack decompresses a message, up to the limit. The caller frees the result.
func (c *call) unpack(data []byte) (mem.BufferSlice, error) {
	leave, err := c.conn.turn(c.ctx)
	if err != nil {
		return nil, contextStatus(c.ctx)
	}
	defer leave()
	r, err := c.decompress.Decompress(bytes.NewReader(data))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	limit := c.conn.srv.cfg.MaxReceive
	out, err := mem.ReadAll(&yield.Reader{Reader: io.LimitReader(r, int64(limit)+1), Part: yieldAfter}, mem.DefaultBufferPool())
	switch {
	case err != nil:
		out.Free()
		return nil, status.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	case out.Len() > limit:
		out.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", limit)
	}
	return out, nil
}

// yieldAfter is how many bytes are decompressed without a turn: some 0.1 ms.
const yieldAfter = 256 << 10
