package grpcserver

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// resting is a connection as its reader sees it. It rests while all of its calls are parked and its
// client sends nothing: its reader returns, and continues in another goroutine once the socket
// can be read. So a connection at rest has neither a goroutine nor a buffer.
//
// A connection whose handlers run, or that has no call, keeps its reader: the next request comes
// soon, or the connection ends.
type resting conn

// restBuffers are read buffers of connections for the small frames of a call.
var restBuffers = sync.Pool{New: func() any { return new([restBuffer]byte) }} //nolint:gochecknoglobals // a pool of the process

// do reads the connection until it rests or ends.
func (c *resting) do() {
	buf := restBuffers.Get().(*[restBuffer]byte) //nolint:forcetypeassert // nothing else is in it
	rests, err := c.readOn(buf[:])
	restBuffers.Put(buf)
	if rests { // it may be another goroutine's by now
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

// beforeRead has the next read wait unless the connection may rest. It returns why the connection ends.
func (c *resting) beforeRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	mayRest := c.mayRestLocked()
	c.hasten(mayRest && c.err == nil)
	c.patient = !mayRest
	return c.err
}

// hasten has reads wait, or not.
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
		_ = c.socket.SetReadDeadline(time.Time{}) // of a closed one: the next read fails
	}
	return roused
}

// mayRestLocked reports whether there are calls, all of them parked.
func (c *resting) mayRestLocked() bool {
	return c.running > 0 && c.running == c.parked && !c.restless
}

// rouseLocked has the reader look whether the connection may rest.
func (c *resting) rouseLocked() {
	if c.patient && !c.roused && c.err == nil && c.mayRestLocked() {
		c.roused = true
		_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // as in afterRead
	}
}

// rest gives the connection to the rester, and reports whether it did: another goroutine may read
// it then. A connection that ends meanwhile is woken by failLocked's deadline.
func (c *resting) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	if err := c.srv.rester.Rest(c.socket.Low, c.rise); err != nil {
		c.restless = true // it keeps its goroutine
		return false
	}
	return true
}

// rise has a goroutine continue to read.
func (c *resting) rise() { c.srv.dispatch(c) }
