package grpcserver

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
	"github.com/shardwatch/shardwatch/internal/yield"
)

// conn is a client's connection. One goroutine reads it; see serve. Frames are handled, and
// appended to the output, under mu.
type conn struct {
	// The fields that each write needs are adjacent, as in stream.
	mu      sync.Mutex
	socket  *socket.Socket // beneath net
	net     net.Conn       // after the handshake
	sealed  bool           // TLS, or an unknown layer, is between net and socket
	writing bool           // guarded by mu; a goroutine is writing
	stalled bool           // guarded by mu; a goroutine is draining the socket
	sized   bool           // guarded by mu; a header block has set the size of our encoder's table to 0
	passing bool           // guarded by mu; a blocked sender was released, but has not continued yet
	window  int64          // guarded by mu; bytes of DATA that the client accepts
	initial int64          // guarded by mu; the client's window for new streams
	out     output         // guarded by mu; frames to write
	blocked list.List      // guarded by mu; of *stream, senders that wait for room or for the connection's window
	room    sync.Cond      // the reader and handlers wait on it for room in the output; the reader also for handlers to end
	bye     goodbye        // guarded by mu
	probe   probe          // guarded by mu
	keep    keepalive      // guarded by mu

	srv    *Server
	raw    net.Conn // the accepted connection
	base   context.Context
	decode *hpack.Decoder // owned by the reader
	heard  atomic.Int64   // time of the last read, in ns since the epoch
	burst  yield.Burst    // owned by the reader; frames that have arrived together

	streams  map[uint32]*stream // guarded by mu; open streams
	running  int                // guarded by mu; handlers, including those of ended streams
	parked   int                // guarded by mu; parked handlers
	patient  bool               // guarded by mu; the reader waits for bytes in its goroutine
	roused   bool               // guarded by mu; the reader was woken to check whether the connection may rest
	restless bool               // guarded by mu; the connection cannot rest
	closed   bool               // guarded by mu; the reader has ended
	maxID    uint32             // guarded by mu; the highest stream that the client has opened
	headers  uint32             // guarded by mu; the largest header list that the client accepts
	err      error              // guarded by mu; why the connection ends; nil: it is open
	received int                // guarded by mu; bytes of DATA not yet returned to the connection's window
	attached any                // guarded by mu; see stream.Attach

	early         int       // guarded by mu; streams reset within earlyReset, by the client or for its errors
	settings      int       // guarded by mu; SETTINGS frames since settingsSince
	settingsSince time.Time // guarded by mu
}

const (
	// restBuffer is the size of the buffer that a reader waits with: enough for the small frames
	// of a call.
	restBuffer = 256
	// linger and lingerBytes bound the time and the bytes for which a failed connection is read,
	// so that the client gets the GOAWAY frame: unread bytes at the close of a socket, and bytes
	// that arrive later, discard the bytes that were sent. A connection that closes gracefully
	// is read for PingTimeout: its client opens windows while it reads the last answer.
	linger      = time.Second
	lingerBytes = 1 << 20
)

func newConn(srv *Server, nc net.Conn, s *socket.Socket, sealed bool, p *peer.Peer) *conn {
	c := &conn{
		srv: srv, net: nc, socket: s, sealed: sealed, base: peer.NewContext(context.Background(), p),
		decode: hpack.NewDecoder(headerTable, nil), streams: make(map[uint32]*stream),
		window: initialWindow, initial: initialWindow, headers: 1<<32 - 1,
	}
	c.room.L = &c.mu
	c.restless = s.Low == nil
	return c
}

// errStopped ends the connections of a stopped server.
var errStopped = errors.New("the server stops")

// begin sends our preface and reads the client's: RFC 9113, 3.4.
func (c *conn) begin() error {
	cfg := &c.srv.cfg
	c.mu.Lock()
	c.out.add(c.srv.preface...)
	c.flushLocked()
	c.mu.Unlock()
	got := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.net, got); err != nil {
		return err
	}
	if !bytes.Equal(got, []byte(http2.ClientPreface)) {
		return fmt.Errorf("invalid HTTP/2 client preface: %q", got)
	}
	r := startReader(c, nil, cfg.MaxHeader)
	f, err := r.next()
	if err == nil {
		settings, ok := f.(*http2.SettingsFrame)
		if !ok || settings.IsAck() {
			err = http2.ConnectionError(http2.ErrCodeProtocol)
		} else {
			err = c.handle(f)
		}
	}
	if err = c.failed(err); err == nil {
		err = c.settle() // before the first stream: see drain
	}
	if err != nil {
		return err
	}
	return c.readAll(r)
}

// serve reads the connection until it rests or ends.
func (c *conn) serve() {
	if err := c.begin(); err != nil {
		c.end(err)
		return
	}
	(*resting)(c).do()
}

// settle clears the deadline of the handshakes.
func (c *conn) settle() error {
	if err := c.raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startKeepaliveLocked()
	return c.err // SetDeadline may have cleared the deadline of fail
}

// readAll handles the frames that have begun to arrive, and releases the reader.
func (c *conn) readAll(r *reader) error {
	defer c.burst.End()
	for r.buffered() {
		if err := c.waitForRoom(); err != nil {
			return err
		}
		f, err := r.next()
		c.heard.Store(time.Now().UnixNano())
		c.burst.Step(c.base, maxTurn, c.turn)
		if err == nil {
			err = c.handle(f)
		}
		if err = c.failed(err); err != nil {
			return err
		}
	}
	r.stop()
	c.flush()
	return nil
}

// maxTurn is how many frames are handled per turn, and how many are handled without one. Without turns,
// thousands of calls, each a ready goroutine, would begin before the scheduler polls the network.
const maxTurn = 32

// turn waits for a turn of the connection's client; see Config.Turn. Handlers that the last turn has made
// ready go first, even if no other client waits for a turn.
func (c *conn) turn(ctx context.Context) (leave func(), err error) {
	yield.Network()
	if c.srv.cfg.Turn == nil {
		return func() {}, nil
	}
	return c.srv.cfg.Turn(ctx, c.raw.RemoteAddr())
}

// failed handles the error of a frame. It resets the stream of a stream error, and returns
// an error that ends the connection.
func (c *conn) failed(err error) error {
	if s := (http2.StreamError{}); errors.As(err, &s) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.maxID = max(c.maxID, s.StreamID)
		open := c.streams[s.StreamID]
		c.resetLocked(s.StreamID, s.Code)
		if open != nil && s.Code != http2.ErrCodeEnhanceYourCalm { // not our lack of memory: Config.Hold
			return open.wasResetLocked()
		}
		return nil
	}
	return err
}

// codeOf returns the error code that the client gets when its connection ends with err, and false
// if it gets none.
func codeOf(err error) (http2.ErrCode, bool) {
	var c http2.ConnectionError
	switch {
	case errors.As(err, &c):
		return http2.ErrCode(c), true
	case errors.Is(err, http2.ErrFrameTooLarge):
		return http2.ErrCodeFrameSize, true
	case errors.Is(err, errFlood), errors.Is(err, errPings):
		return http2.ErrCodeEnhanceYourCalm, true
	case errors.Is(err, errStopped):
		return http2.ErrCodeNo, true
	}
	return 0, false
}

// end ends the streams of the connection, and closes its socket after a GOAWAY frame that the
// client can read.
func (c *conn) end(err error) {
	c.mu.Lock()
	c.endLocked(err)
	c.leaveAllLocked()
	code, tell := codeOf(c.err)
	if tell {
		debug := ""
		if errors.Is(c.err, errPings) {
			debug = "too_many_pings" // expected by grpc-go's client
		}
		c.out.goAway(c.maxID, code, debug)
		c.flushLocked()
	}
	why := c.err
	c.mu.Unlock()
	if tell && code == http2.ErrCodeEnhanceYourCalm && c.srv.cfg.Flooded != nil {
		c.srv.cfg.Flooded(c.raw)
	}
	switch {
	case tell && code != http2.ErrCodeNo:
		discard(c, linger, lingerBytes)
	case errors.Is(why, errIdle) && closeWrite(c.net):
		discard(c, c.srv.cfg.PingTimeout, lingerBytes+c.srv.cfg.ConnWindow)
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	_ = c.net.Close()
	c.srv.left(c)
}

// closeWrite closes the write side of a connection: first of TLS, then of the lowest layer. It reports whether
// the lowest layer succeeded. Otherwise the client sees the end only when the connection is closed.
func closeWrite(c net.Conn) (done bool) {
	for c != nil {
		half, ok := c.(interface{ CloseWrite() error })
		done = ok && half.CloseWrite() == nil
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	return done
}

// discard reads and discards at most left bytes, until the client closes, the time is over, or Stop is
// called. It reads the socket beneath TLS and internal/edge/intake, because intake could wait for memory.
func discard(c *conn, most time.Duration, left int) {
	c.mu.Lock()
	select {
	case <-c.srv.stopping: // Stop may have set its deadline already, which must stay
		c.mu.Unlock()
		return
	default:
	}
	err := c.socket.SetReadDeadline(time.Now().Add(most))
	c.mu.Unlock()
	buf := make([]byte, restBuffer)
	for left > 0 && err == nil {
		var n int
		n, err = c.socket.Read(buf)
		left -= n
	}
}

// endLocked allows no more streams. The reader ends the open streams. The first error stays.
func (c *conn) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.keep.stop()
	c.room.Broadcast()
}

// leaveAllLocked ends all streams, in turns if there are many, because each end makes a handler
// ready. It releases the lock between turns.
func (c *conn) leaveAllLocked() {
	defer c.burst.End()
	for len(c.streams) > 0 {
		n := 0
		for _, s := range c.streams {
			c.leaveLocked(s)
			if n++; n == maxTurn {
				break
			}
		}
		c.mu.Unlock()
		c.burst.Step(c.base, 1, c.turn)
		c.mu.Lock()
	}
}

// fail ends the connection from any goroutine but the reader, and wakes the reader.
func (c *conn) fail(err error) {
	c.mu.Lock()
	c.failLocked(err)
	c.mu.Unlock()
}

// failLocked is fail. The reader closes the connection.
func (c *conn) failLocked(err error) {
	c.endLocked(err)
	// Not the TLS connection, because it writes an alert when it closes.
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
}

// waitForRoom waits while the client does not read our answers, and while the handlers of reset
// streams fill the client's bound of streams.
func (c *conn) waitForRoom() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && (len(c.out) >= maxPending || c.crowdedLocked()) {
		if !c.flushLocked() {
			c.burst.Pause()
			c.room.Wait()
		}
	}
	return c.err
}

// crowdedLocked reports whether handlers of ended streams fill the bound of streams.
// They are canceled, and end soon.
func (c *conn) crowdedLocked() bool {
	return c.running >= c.srv.cfg.MaxStreams && len(c.streams) < c.srv.cfg.MaxStreams
}
