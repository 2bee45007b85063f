package netlimit

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// Turns bound the CPU that handshakes of TLS take: about 1 ms each, for clients that are not
// authenticated yet. A connection computes in its turn, and gives the turn back
// while it waits for its client. Addresses take turns, and connections that have begun
// come before those that have not, so that an overload delays handshakes and fails none
// halfway. Ports may share Turns. Create them with NewTurns or TurnsOfNode.
type Turns struct {
	atATime int
	large   *fair.Turns // of all large work; nil: none

	mu           sync.Mutex
	running      int               // guarded by mu
	begun, fresh fair.Queue[*Conn] // guarded by mu; as many as are pending
}

// NewTurns returns Turns of so many connections at a time.
func NewTurns(atATime int) *Turns { return &Turns{atATime: atATime} }

// TurnsOfNode returns the Turns of all ports of a process: its handshakes get half of the
// cores. Each also takes one of the turns of large work, unless large is nil: a handshake beside a list
// that is written, on two processors of Go, would leave none that looks at the network in time. A
// handshake does not yield: 5,000 connections a second that send one byte take a turn each.
func TurnsOfNode(large *fair.Turns) *Turns {
	t := NewTurns(max(1, runtime.GOMAXPROCS(0)/2))
	t.large = large
	return t
}

// turnPause is the time between the end of a turn and the next one that waited for it. It lets an
// otherwise idle process look at the network, and goroutines that serve clients go first.
// While it is busy all the time, Go looks there every 10 ms only.
const turnPause = 100 * time.Microsecond

// turn is a connection's, guarded by Turns.mu.
type turn struct {
	stage turnStage
	begun bool
	entry *fair.Entry[*Conn] // while it waits
	ready chan struct{}      // closed when it need not wait any longer
	leave func()             // ends its turn of large work; nil: it has none
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
	needed, waited := t.takeOwn(c)
	if waited {
		time.Sleep(turnPause)
	}
	if !needed || t.large == nil {
		return
	}
	// A connection that is closed meanwhile waits all the same: at most atATime do.
	leave, err := t.large.Take(context.Background(), SourceOf(c.RemoteAddr()))
	if err != nil {
		return // it does not fail without an end of its context
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.turn.stage != hasTurn { // it was closed
		leave()
		return
	}
	c.turn.leave = leave
}

// takeOwn waits for a turn among handshakes. It reports whether the connection needed one, and
// whether it had to wait.
func (t *Turns) takeOwn(c *Conn) (needed, waited bool) {
	t.mu.Lock()
	switch {
	case c.turn.stage == needsNoTurn:
		t.mu.Unlock()
		return false, false
	case t.running < t.atATime:
		t.running++
		c.turn.stage, c.turn.begun = hasTurn, true
		t.mu.Unlock()
		return true, false
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
	return true, true
}

// give takes a connection's turn, or its place in the queue, from it. Then its stage is
// the one given.
func (t *Turns) give(c *Conn, next turnStage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c.turn.stage {
	case hasTurn:
		t.running--
		if c.turn.leave != nil {
			c.turn.leave()
		}
	case waitsForTurn:
		if !t.begun.Remove(c.turn.entry) {
			t.fresh.Remove(c.turn.entry)
		}
		close(c.turn.ready)
	case needsNoTurn:
		return
	case noTurn:
	}
	c.turn.stage, c.turn.entry, c.turn.ready, c.turn.leave = next, nil, nil, nil
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
