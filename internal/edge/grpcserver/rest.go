package grpcserver

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// resting is the reader's view of a connection. The connection rests while all its calls are parked and
// its client sends nothing: its reader returns, and continues in another goroutine when the socket
// becomes readable. So a connection at rest has neither a goroutine nor a buffer.
//
// A connection with running handlers, or without calls, keeps its reader: the next request arrives
// soon, or the connection ends.
type resting conn

// restBuffers are the buffers that readers wait with.
var restBuffers = sync.Pool{New: func() any { return new([restBuffer]byte) }} //nolint:gochecknoglobals // a pool of the process

// do reads the connection until it rests or ends.
func (c *resting) do() {
	buf := restBuffers.Get().(*[restBuffer]byte) //nolint:forcetypeassert // nothing else is in it
	rests, err := c.readOn(buf[:])
	restBuffers.Put(buf)
	if rests { // another goroutine may own it by now
		return
	}
	(*conn)(c).end(err)
}

// readOn reads the connection, and reports whether it rests.
func (c *resting) readOn(buf []byte) (rests bool, err error) {
	for {
		if err := c.beforeRead(); err != nil {
			return false, err
		}
		n, err := c.net.Read(buf)
		c.hasten(false)
		roused := c.afterRead()
		if n > 0 {
			err = cmp.Or((*conn)(c).readAll(startReader((*conn)(c), buf[:n], c.srv.cfg.MaxHeader)), err)
		}
		switch {
		case err == nil, roused && errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, rawconn.ErrNothing):
			if c.rest() {
				return true, nil
			}
		default:
			return false, err
		}
	}
}

// beforeRead makes the next read wait, unless the connection may rest. It returns the error of an ended connection.
func (c *resting) beforeRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	mayRest := c.mayRestLocked()
	c.hasten(mayRest && c.err == nil)
	c.patient = !mayRest
	return c.err
}

// hasten sets whether reads return an error instead of waiting.
func (c *resting) hasten(hasty bool) {
	if c.socket.Low != nil {
		c.socket.Low.Hasty = hasty
	}
}

// afterRead reports whether the read was ended by rouseLocked.
func (c *resting) afterRead() (roused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	roused = c.roused
	if c.patient, c.roused = false, false; roused && c.err == nil {
		_ = c.socket.SetReadDeadline(time.Time{}) // after an error of a closed socket, the next read fails
	}
	return roused
}

// mayRestLocked reports whether there are calls and all are parked.
func (c *resting) mayRestLocked() bool {
	return c.running > 0 && c.running == c.parked && !c.restless
}

// rouseLocked wakes the reader if the connection may rest now.
func (c *resting) rouseLocked() {
	if c.patient && !c.roused && c.err == nil && c.mayRestLocked() {
		c.roused = true
		_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // as in afterRead
	}
}

// rest passes the connection to the rester, and reports whether it did: from then on another goroutine may
// read the connection. If the connection ends meanwhile, the deadline of failLocked wakes it.
func (c *resting) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	if err := c.srv.rester.Rest(c.socket.Low, c.rise); err != nil {
		c.restless = true // the reader keeps its goroutine
		return false
	}
	return true
}

// rise continues to read in another goroutine.
func (c *resting) rise() { c.srv.dispatch(c) }
