package etcdapi

import (
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// The bytes of an answer return to the budget as soon as gRPC has sent it, not only when the garbage
// collector finds it.
func TestTheBytesOfASentAnswerAreReleasedAtOnce(t *testing.T) {
	const size = 1 << 20
	b := budget.New(256 << 20)
	answer := &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(make([]byte, size))}}
	held := &heldAnswer{budget: b}
	if err := held.resize(size); err != nil {
		t.Fatal(err)
	}
	if held.attach(answer); b.Held(budget.Lists) != size {
		t.Fatalf("%d bytes are held for an unsent answer, want %d", b.Held(budget.Lists), size)
	}
	if answer.Buffers.Free(); b.Held(budget.Lists) != 0 {
		t.Errorf("%d bytes are held for a sent answer", b.Held(budget.Lists))
	}
}
