package server

import (
	"net"
	"slices"
)

// lane is where units wait. The connections that have some have their turn one
// after the other, each with the one that has waited longest.
type lane struct {
	running int        // units that have left it for a place, and still have it
	turns   []net.Addr // of the connections that have some, in turn
	queues  map[net.Addr][]*unit
	length  int // of all queues
	gone    int // of those in them, the ones that nobody waits for any more
}

func newLane() lane { return lane{queues: make(map[net.Addr][]*unit)} }

func (l *lane) push(conn net.Addr, x *unit) {
	if len(l.queues[conn]) == 0 {
		l.turns = append(l.turns, conn)
	}
	l.queues[conn] = append(l.queues[conn], x)
	l.length++
}

// pop returns the next one that is waited for, or nil.
func (l *lane) pop() *unit {
	for len(l.turns) > 0 {
		conn := l.turns[0]
		l.turns = l.turns[1:]
		q := l.queues[conn]
		var x *unit
		for len(q) > 0 && (x == nil || x.state == unitGone) {
			if x = q[0]; x.state == unitGone {
				l.gone--
			}
			q[0] = nil
			q = q[1:]
			l.length--
		}
		if len(q) == 0 {
			delete(l.queues, conn)
		} else {
			l.queues[conn] = q
			l.turns = append(l.turns, conn)
		}
		if x.state != unitGone {
			return x
		}
	}
	return nil
}

// left says that a unit which waits is gone. When they are many, they go: a
// client that asks and asks no more leaves nothing behind.
func (l *lane) left() {
	if l.gone++; l.gone < 1000 || l.gone < l.length/2 {
		return
	}
	l.turns = slices.DeleteFunc(l.turns, func(conn net.Addr) bool {
		q := slices.DeleteFunc(l.queues[conn], func(x *unit) bool { return x.state == unitGone })
		if len(q) == 0 {
			delete(l.queues, conn)
			return true
		}
		l.queues[conn] = q
		return false
	})
	l.length -= l.gone
	l.gone = 0
}
