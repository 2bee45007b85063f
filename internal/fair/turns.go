package fair

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/yield"
)

// Turns divide the CPU time of large work for clients: lists, large answers, compressed messages. Go's
// scheduler runs goroutines in the order in which they become ready, so hundreds of computing goroutines would
// all run before an event that other clients wait for. Clients take turns, and one of Go's processors, if there
// are several, is left to short work. Create them with NewTurns. All methods may be called from any goroutine.
type Turns struct {
	gate  *Gate
	taken atomic.Uint64
}

// yieldEvery is the number of turns between two yields: some 0.7 ms of lists, up to 5 ms of TLS handshakes.
// Yielding after each turn adds half to the CPU time of a list, since the kernel then switches between the node
// and its clients for every 64 KiB.
const yieldEvery = 16

// NewTurns returns Turns for a process.
func NewTurns() *Turns { return &Turns{gate: NewGate(max(1, runtime.GOMAXPROCS(0)-1), 0)} }

// Take returns in the client's turn, and leave ends the turn. It fails if ctx ends first. A turn takes some
// 0.05 ms, up to 0.3 ms with a TLS handshake, or calls Yield every 0.1 ms. It must not block.
func (t *Turns) Take(ctx context.Context, client string) (leave func(), err error) {
	if leave, err = t.gate.Wait(ctx, client); err == nil && t.taken.Add(1)%yieldEvery == 0 {
		t.Yield()
	}
	return leave, err
}

// Every splits work of many short steps into turns of n, at least 1. Call step before each step: before the
// first one and after each n, it takes a new turn, and fails as Take does, without a turn. end ends the last
// turn, and may be called twice. One goroutine may call them.
func (t *Turns) Every(ctx context.Context, client string, n int) (step func() error, end func()) {
	done, leave := 0, func() {}
	end = func() {
		leave()
		leave = func() {}
	}
	step = func() error {
		if done++; (done-1)%n != 0 {
			return nil
		}
		end()
		next, err := t.Take(ctx, client)
		if err != nil {
			return err
		}
		leave = next
		return nil
	}
	return step, end
}

// Yield lets other goroutines run in the middle of a turn, including those whose connections have data.
func (*Turns) Yield() { yield.Network() }

// Figures returns the numbers of turns taken and waited for.
func (t *Turns) Figures() (taken, waiting int) { return t.gate.Figures() }
