package fair

import (
	"context"
	"sync"
	"time"
)

// Gate bounds the concurrent operations of clients. Waiting clients take turns. Create it with NewGate. All
// methods may be called from any goroutine.
type Gate struct {
	atATime, maxWaiting int

	mu      sync.Mutex
	running int                // guarded by mu
	waiting Queue[func() bool] // guarded by mu
	usually time.Duration      // guarded by mu; the recent duration of an operation
}

// Bounds of the retry delay.
const (
	minComeAgain = time.Second
	maxComeAgain = 30 * time.Second
)

// NewGate returns a Gate that admits atATime operations at a time and queues maxWaiting.
func NewGate(atATime, maxWaiting int) *Gate { return &Gate{atATime: atATime, maxWaiting: maxWaiting} }

// Enter calls begin, now or in the client's turn. begin must not block nor use the Gate; it reports whether it
// has begun an operation, which must end with Leave. If the queue is full, begin is not called, ok is false,
// and comeAgain is the approximate time until the queue is empty.
func (g *Gate) Enter(client string, begin func() bool) (comeAgain time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.running < g.atATime:
		if begin() {
			g.running++
		}
	case g.waiting.Len() >= g.maxWaiting:
		return min(max(time.Duration(g.waiting.Len()/g.atATime)*g.usually, minComeAgain), maxComeAgain), false
	default:
		g.waiting.Push(client, begin)
	}
	return 0, true
}

// Wait is Enter for a goroutine: it returns in the client's turn, and leave ends the operation. It fails if ctx
// ends first. It ignores maxWaiting.
func (g *Gate) Wait(ctx context.Context, client string) (leave func(), err error) {
	in := make(chan time.Time, 1)
	begin := func() bool {
		in <- time.Now()
		return true
	}
	var entry *Entry[func() bool]
	g.mu.Lock()
	if g.running < g.atATime {
		g.running++
		begin()
	} else {
		entry = g.waiting.Push(client, begin)
	}
	g.mu.Unlock()
	select {
	case began := <-in:
		return func() { g.Leave(time.Since(began)) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	gone := entry != nil && g.waiting.Remove(entry)
	g.mu.Unlock()
	if !gone { // its turn has come meanwhile
		g.Leave(time.Since(<-in))
	}
	return nil, context.Cause(ctx)
}

// Leave ends an operation; took is its duration.
func (g *Gate) Leave(took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.usually += (took - g.usually) / 16
	for g.running < g.atATime {
		begin, ok := g.waiting.Pop()
		if !ok {
			return
		}
		if begin() {
			g.running++
		}
	}
}

// Figures returns how many operations run and how many wait.
func (g *Gate) Figures() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, g.waiting.Len()
}
