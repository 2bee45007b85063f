package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec stands in front of
	"google.golang.org/grpc/mem"
)

// Encoded is a message in its wire form. Sending it through Codec hands its
// buffers over; it must not be sent twice. Receiving into it through Codec
// keeps the message's bytes as they are.
type Encoded struct {
	Buffers mem.BufferSlice
}

// Codec is the proto codec, but for Encoded messages, which it passes on as
// they are. Give it to grpc.ForceServerCodecV2.
type Codec struct {
	proto encoding.CodecV2
}

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{proto: encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*Encoded); ok {
		b := e.Buffers
		e.Buffers = nil
		return b, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if e, ok := v.(*Encoded); ok {
		data.Ref() // the caller gives its own references back
		e.Buffers = data
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

// Name implements encoding.CodecV2: on the wire, this is plain proto.
func (c Codec) Name() string { return "proto" }
