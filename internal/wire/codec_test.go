package wire_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// A message that is received in encoded form can be forwarded unchanged, although the transport releases its
// buffers in between.
func TestEncodedPassesThrough(t *testing.T) {
	pool := mem.DefaultBufferPool()
	arrived := func(s string) mem.BufferSlice {
		b := pool.Get(4096) // large enough to be reused
		copy(*b, s)
		*b = (*b)[:len(s)]
		return mem.BufferSlice{mem.NewBuffer(b, pool)}
	}
	codec := wire.NewCodec()
	in := append(arrived("first"), arrived(" second")...)
	var e wire.Encoded
	if err := codec.Unmarshal(in, &e); err != nil {
		t.Fatal(err)
	}
	in.Free()
	arrived("others").Free() // would reuse the same buffer
	out, err := codec.Marshal(&e)
	if err != nil || !bytes.Equal(out.Materialize(), []byte("first second")) {
		t.Errorf("%q, %v", out.Materialize(), err)
	}
	out.Free()
	if again, err := codec.Marshal(&e); err != nil || again.Len() != 0 {
		t.Errorf("the second Marshal sends %q again, %v", again.Materialize(), err)
	}

	var m wrapperspb.StringValue // all other messages are plain proto
	b, err := codec.Marshal(wrapperspb.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.Unmarshal(b, &m); err != nil || m.GetValue() != "x" {
		t.Errorf("%v, %v", &m, err)
	}
}
