package netlimit

import (
	"runtime"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// Turns bound the CPU that handshakes of TLS take: about 1 ms each, for clients that
// have shown nothing yet. A connection computes in its turn, and gives the turn back
// while it waits for its client. Addresses take turns, and connections that have begun
// come before those that have not, so that an overload delays handshakes and fails none
// halfway. Ports may share Turns. Create them with NewTurns.
type Turns struct {
	atATime int

	mu           sync.Mutex
	running      int               // guarded by mu
	begun, fresh fair.Queue[*Conn] // guarded by mu; as many as are pending
}

// NewTurns returns Turns of so many connections at a time.
func NewTurns(atATime int) *Turns { return &Turns{atATime: atATime} }

// TurnsOfNode returns the Turns of all ports of a process: its handshakes get half of the
// cores.
func TurnsOfNode() *Turns { return NewTurns(max(1, runtime.GOMAXPROCS(0)/2)) }

// turnPause is the time between the end of a turn and the next one that waited for it. It
// lets a process with nothing else to do look at the network, and goroutines that serve
// clients go first. While it is busy all the time, Go looks there every 10 ms only.
const turnPause = 100 * time.Microsecond

// turn is a connection's, guarded by Turns.mu.
type turn struct {
	stage turnStage
	begun bool
	entry *fair.Entry[*Conn] // while it waits
	ready chan struct{}      // closed when it need not wait any longer
}

type turnStage uint8

const (
	noTurn turnStage = iota
	waitsForTurn
	hasTurn
	needsNoTurn // its handshake is over
)

// take waits for a turn.
func (t *Turns) take(c *Conn) {
	t.mu.Lock()
	switch {
	case c.turn.stage == needsNoTurn:
		t.mu.Unlock()
		return
	case t.running < t.atATime:
		t.running++
		c.turn.stage, c.turn.begun = hasTurn, true
		t.mu.Unlock()
		return
	}
	queue := &t.fresh
	if c.turn.begun {
		queue = &t.begun
	}
	ready := make(chan struct{})
	c.turn.stage, c.turn.entry, c.turn.ready = waitsForTurn, queue.Push(SourceOf(c.RemoteAddr()), c), ready
	t.mu.Unlock()
	c.limit.waits.Add(1)
	<-ready
	time.Sleep(turnPause)
}

// give takes a connection's turn, or its place in the queue, from it. Then its stage is
// the one given.
func (t *Turns) give(c *Conn, next turnStage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c.turn.stage {
	case hasTurn:
		t.running--
	case waitsForTurn:
		if !t.begun.Remove(c.turn.entry) {
			t.fresh.Remove(c.turn.entry)
		}
		close(c.turn.ready)
	case needsNoTurn:
		return
	case noTurn:
	}
	c.turn.stage, c.turn.entry, c.turn.ready = next, nil, nil
	for t.running < t.atATime {
		other, ok := t.begun.Pop()
		if !ok {
			if other, ok = t.fresh.Pop(); !ok {
				return
			}
		}
		t.running++
		close(other.turn.ready)
		other.turn = turn{stage: hasTurn, begun: true}
	}
}
