package grpcserver

import (
	"encoding/binary"

	"golang.org/x/net/http2"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
)

const (
	// maxOut is the size of the output from which senders of data wait, in bytes.
	maxOut = 64 << 10
	// maxPending is the size of the output from which the reader waits as well: room for
	// one frame and a few thousand answers above maxOut.
	maxPending = socket.MaxWrite
)

// output holds the unwritten frames of a connection. It has an array, from a pool, only while
// there are any.
type output []byte

// add appends bytes.
func (o *output) add(p ...byte) {
	if *o == nil {
		*o = socket.GetBuffer()
	}
	*o = append(*o, p...)
}

// frame appends a frame with its payload.
func (o *output) frame(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	o.head(kind, flags, id, len(payload))
	*o = append(*o, payload...)
}

// head appends the header of a frame with a payload of size bytes.
func (o *output) head(kind http2.FrameType, flags http2.Flags, id uint32, size int) {
	if *o == nil {
		*o = socket.GetBuffer()
	}
	*o = appendFrame(*o, kind, flags, id, size)
}

func (o *output) windowUpdate(id uint32, n int) {
	o.head(http2.FrameWindowUpdate, 0, id, 4)
	*o = appendUint32(*o, uint32(n)) //nolint:gosec // at most a window
}

func (o *output) goAway(last uint32, code http2.ErrCode, debug string) {
	o.head(http2.FrameGoAway, 0, 0, 8+len(debug))
	*o = append(appendUint32(appendUint32(*o, last), uint32(code)), debug...)
}

func (o *output) reset(id uint32, code http2.ErrCode) {
	o.head(http2.FrameRSTStream, 0, id, 4)
	*o = appendUint32(*o, uint32(code))
}

// data appends a DATA frame with the first n bytes of parts, and returns the remaining parts.
func (o *output) data(id uint32, parts [][]byte, n int) [][]byte {
	o.head(http2.FrameData, 0, id, n)
	for n > 0 {
		k := min(n, len(parts[0]))
		*o = append(*o, parts[0][:k]...)
		if n -= k; k == len(parts[0]) {
			parts = parts[1:]
		} else {
			parts[0] = parts[0][k:]
		}
	}
	return parts
}

// appendFrame appends a frame's header: RFC 9113, 4.1.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	return append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags), //nolint:gosec // bytes of it
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id)) //nolint:gosec // as above
}

// appendUint32 appends a number in network byte order.
func appendUint32(b []byte, n uint32) []byte {
	return binary.BigEndian.AppendUint32(b, n)
}

// forgetter is a connection that tracks incomplete requests; see package intake.
type forgetter interface {
	// Forget reports the reset of a stream: its client sends no more on it. It must not block.
	Forget(stream uint32)
}

// resetLocked sends RST_STREAM, and ends the stream if it is open.
func (c *conn) resetLocked(id uint32, code http2.ErrCode) {
	c.out.reset(id, code)
	if s := c.streams[id]; s != nil {
		c.leaveLocked(s)
	}
	if f, ok := c.net.(forgetter); ok {
		f.Forget(id)
	}
}

// flush writes the output, unless another goroutine is writing it.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

// flushLocked is flush. It releases mu while it writes, and reports whether it did.
func (c *conn) flushLocked() bool {
	if c.writing || c.stalled || len(c.out) == 0 {
		c.leaveIfOverLocked()
		return false
	}
	c.writing = true
	for len(c.out) > 0 && !c.stalled {
		if c.probe.sent >= probeBytes {
			c.answerProbeLocked()
		}
		b := c.out
		c.out = nil
		c.mu.Unlock()
		err := c.socket.Send(c.net, c.sealed, b)
		socket.PutBuffer(b)
		stalled := err == nil && c.socket.Stalled()
		c.mu.Lock()
		if err != nil {
			c.failLocked(err)
			c.out = nil
			break
		}
		if stalled && !c.closed {
			c.stalled = true
			c.srv.goroutines.Go(c.drain)
		}
	}
	c.writing = false
	c.roomLocked()
	c.leaveIfOverLocked()
	return true
}

// leaveIfOverLocked ends a connection after its GOAWAY, when all output is written.
func (c *conn) leaveIfOverLocked() {
	if c.bye.over && c.err == nil && !c.writing && !c.stalled && len(c.out) == 0 {
		c.failLocked(errIdle)
	}
}

// drain writes the backlog of the socket, then the output that was added meanwhile.
func (c *conn) drain() {
	err := c.socket.Drain()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = false
	if err != nil {
		c.failLocked(err)
		return
	}
	c.flushLocked()
}

// roomLocked wakes goroutines that wait for room in the output.
func (c *conn) roomLocked() {
	if len(c.out) < maxPending {
		c.room.Broadcast()
	}
	c.grantLocked()
}

// grantLocked releases the first blocked sender if it can send. The next sender follows after this one
// has sent, so that no other sender takes its window.
func (c *conn) grantLocked() {
	first := c.blocked.Front()
	if first == nil || c.passing || c.window <= 0 || len(c.out) >= maxOut {
		return
	}
	s, _ := c.blocked.Remove(first).(*stream)
	s.place, s.granted, c.passing = nil, true, true
	s.sendable.Signal()
}
