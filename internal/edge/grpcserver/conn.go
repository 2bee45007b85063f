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

// conn is a client's connection. One goroutine reads it; see serve. Each frame is handled,
// and each one appended to the output, under mu.
type conn struct {
	// The fields that each write to the client needs are adjacent, as those of stream.
	mu      sync.Mutex
	socket  *socket.Socket // beneath net
	net     net.Conn       // with its handshake
	sealed  bool           // TLS, or a layer that we do not know, lies between net and socket
	writing bool           // guarded by mu; a goroutine writes
	stalled bool           // guarded by mu; a goroutine drains the socket
	sized   bool           // guarded by mu; a header block has said that our encoder has no table
	passing bool           // guarded by mu; one of the blocked senders was let go, and has not gone yet
	window  int64          // guarded by mu; bytes of DATA that the client takes
	initial int64          // guarded by mu; the window that the client gives new streams
	out     output         // guarded by mu; frames that are not written
	blocked list.List      // guarded by mu; of *stream, senders that wait for room or for the connection's window
	room    sync.Cond      // the reader waits on it for room in the output, and for handlers to end; handlers for room
	bye     goodbye        // guarded by mu
	probe   probe          // guarded by mu
	keep    keepalive      // guarded by mu

	srv    *Server
	raw    net.Conn // the accepted one
	base   context.Context
	decode *hpack.Decoder // owned by the reader
	heard  atomic.Int64   // when something was read last, in ns since the epoch
	burst  yield.Burst    // owned by the reader; of frames that have arrived together

	streams  map[uint32]*stream // guarded by mu; those open
	running  int                // guarded by mu; handlers, also of streams that are gone
	parked   int                // guarded by mu; those of them that are parked
	patient  bool               // guarded by mu; the reader waits for bytes, and keeps its goroutine
	roused   bool               // guarded by mu; it was asked to look whether the connection may rest
	restless bool               // guarded by mu; the connection cannot rest
	closed   bool               // guarded by mu; the reader has left
	maxID    uint32             // guarded by mu; the highest stream that a client opened
	headers  uint32             // guarded by mu; the largest header list that the client takes
	err      error              // guarded by mu; why the connection ends; nil: it does not
	received int                // guarded by mu; bytes of DATA that are not given back to the connection's window
	attached any                // guarded by mu; see stream.Attach

	early         int       // guarded by mu; streams that were reset at once, by the client or because of it
	settings      int       // guarded by mu; SETTINGS frames since settingsSince
	settingsSince time.Time // guarded by mu
}

const (
	// restBuffer is the size of an idle connection's buffer: enough for the small frames of a
	// call.
	restBuffer = 256
	// linger and lingerBytes bound how long and how far a connection that failed is read,
	// so that the client gets the GOAWAY frame: closing a socket with unread bytes
	// discards those that were sent, and so does each byte that arrives later. One that ends in
	// peace is read for PingTimeout: its client opens windows while it reads the last answer.
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

// errStopped ends the connections of a server that stops.
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
		return fmt.Errorf("the client's preface is not that of HTTP/2: %q", got)
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

// settle ends the time limit of the handshakes.
func (c *conn) settle() error {
	if err := c.raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startKeepaliveLocked()
	return c.err // fail's deadline may have been the one that was taken off
}

// readAll handles the frames that have begun to arrive, and gives the reader back.
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

// maxTurn is how many frames are handled in a turn, and how many need none. Without it, thousands
// of calls would begin, each a ready goroutine, before the scheduler looks at the network.
const maxTurn = 32

// turn waits for a turn of the connection's client; see Config.Turn. The handlers that the last turn
// has made ready go first, also when no other client wants a turn.
func (c *conn) turn(ctx context.Context) (leave func(), err error) {
	yield.Network()
	if c.srv.cfg.Turn == nil {
		return func() {}, nil
	}
	return c.srv.cfg.Turn(ctx, c.raw.RemoteAddr())
}

// failed takes the error of a frame. It resets the stream of a stream error, and returns
// what ends the connection.
func (c *conn) failed(err error) error {
	if s := (http2.StreamError{}); errors.As(err, &s) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.maxID = max(c.maxID, s.StreamID)
		open := c.streams[s.StreamID]
		c.resetLocked(s.StreamID, s.Code)
		if open != nil && s.Code != http2.ErrCodeEnhanceYourCalm { // that is for our lack of memory; see Config.Hold
			return open.wasResetLocked()
		}
		return nil
	}
	return err
}

// codeOf returns the error code for the client of a connection that ends with err, and false if
// the client gets none.
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

// end ends the connection: its streams, and after a GOAWAY frame that the client can
// read, its socket.
func (c *conn) end(err error) {
	c.mu.Lock()
	c.endLocked(err)
	c.leaveAllLocked()
	code, tell := codeOf(c.err)
	if tell {
		debug := ""
		if errors.Is(c.err, errPings) {
			debug = "too_many_pings" // as grpc-go's client expects it
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

// closeWrite ends our side of a connection: that of TLS, then that of the lowest layer. It reports whether
// the latter could. Otherwise the client learns of the end when the connection is closed.
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

// discard reads and discards until the client closes, for some time and so many bytes at most, or until
// Stop. It reads the socket beneath TLS, and beneath internal/edge/intake, which would wait for memory.
func discard(c *conn, most time.Duration, left int) {
	c.mu.Lock()
	select {
	case <-c.srv.stopping: // its deadline may have been set before
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

// endLocked begins no more streams. The reader ends the open ones. The first error stays.
func (c *conn) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.keep.stop()
	c.room.Broadcast()
}

// leaveAllLocked ends the streams, many of them in turns: each makes its handler ready. The
// lock is free in between.
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

// fail ends the connection from any goroutine but the reader, which sees it then.
func (c *conn) fail(err error) {
	c.mu.Lock()
	c.failLocked(err)
	c.mu.Unlock()
}

// failLocked is fail; the reader closes the connection.
func (c *conn) failLocked(err error) {
	c.endLocked(err)
	// The socket beneath, since TLS writes as it closes.
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
}

// waitForRoom waits while the client does not take our answers, and while more handlers
// run than the client may have streams: those of streams that it has reset.
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

// crowdedLocked reports whether handlers of streams that are gone hold the places of new
// ones. They are canceled, and end soon.
func (c *conn) crowdedLocked() bool {
	return c.running >= c.srv.cfg.MaxStreams && len(c.streams) < c.srv.cfg.MaxStreams
}
