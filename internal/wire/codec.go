package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec wraps
	"google.golang.org/grpc/mem"
)

// Encoded is a message in its wire form. Sending it through Codec transfers its
// buffers, so it must not be sent twice. Receiving into it through Codec keeps the
// message's bytes unchanged.
type Encoded struct {
	Buffers mem.BufferSlice
}

// Codec is the proto codec, except that it passes on Encoded messages unchanged. Use it
// with grpc.ForceServerCodecV2.
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
		data.Ref() // the caller releases its own references
		e.Buffers = data
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

// Name implements encoding.CodecV2: on the wire, this is plain proto.
func (c Codec) Name() string { return "proto" }
