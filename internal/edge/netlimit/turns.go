package netlimit

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// Turns bound the CPU of TLS handshakes: about 1 ms each, for clients that are not
// authenticated yet. A connection computes during its turn, and releases the turn
// while it waits for its client. Turns rotate among addresses. Handshakes that have begun
// take precedence over new ones, so that an overload delays handshakes but does not fail
// them halfway. Ports may share Turns. Create them with NewTurns or TurnsOfNode.
type Turns struct {
	atATime int
	large   *fair.Turns // shared with all large work; nil: none

	mu           sync.Mutex
	running      int               // guarded by mu
	begun, fresh fair.Queue[*Conn] // guarded by mu; bounded by the pending connections
}

// NewTurns returns Turns that let atATime connections compute at a time.
func NewTurns(atATime int) *Turns { return &Turns{atATime: atATime} }

// TurnsOfNode returns the Turns of all ports of a process: its handshakes get half of the
// cores. Each handshake also takes a turn of large work, unless large is nil: with GOMAXPROCS=2, a
// handshake and a list that is being written would leave no processor to poll the network in time. A
// handshake does not yield: 5,000 connections a second that send one byte each take a turn.
func TurnsOfNode(large *fair.Turns) *Turns {
	t := NewTurns(max(1, runtime.GOMAXPROCS(0)/2))
	t.large = large
	return t
}

// turnPause is the time between the end of a turn and the next turn that waited for it. It lets an
// otherwise idle process poll the network, and lets goroutines that serve clients go first.
// In a process that is always busy, Go polls the network only every 10 ms.
const turnPause = 100 * time.Microsecond

// turn is the state of a connection in Turns, guarded by Turns.mu.
type turn struct {
	stage turnStage
	begun bool
	entry *fair.Entry[*Conn] // while it waits
	ready chan struct{}      // closed when the connection need not wait any longer
	leave func()             // ends its turn of large work; nil: no turn
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
	// A connection that is closed meanwhile still waits: at most atATime of them do.
	leave, err := t.large.Take(context.Background(), SourceOf(c.RemoteAddr()))
	if err != nil {
		return // unreachable: the context does not end
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.turn.stage != hasTurn { // closed meanwhile
		leave()
		return
	}
	c.turn.leave = leave
}

// takeOwn waits for a turn among handshakes. It reports whether the connection needed a turn, and
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

// give releases the turn of a connection, or its place in the queue, and sets its stage
// to next.
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
