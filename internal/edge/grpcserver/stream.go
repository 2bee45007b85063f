package grpcserver

import (
	"bytes"
	"container/list"
	"context"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/metadata"
)

// stream is one call. It is the grpc.ServerTransportStream of its context.
type stream struct {
	// The fields that each message to the client needs are adjacent: with thousands of streams, most of
	// the time of a message is cache misses. The fields from gone on are guarded by conn.mu.
	conn        *conn
	id          uint32
	sending     sync.Mutex
	gone        bool  // it has ended, at least for the client
	headed      bool  // response headers were sent
	partial     bool  // only a part of the last message was sent
	starved     bool  // the sender waits for the stream's window
	granted     bool  // the sender was blocked, and may continue
	added, sent int64 // bytes added to, and used of, the initial window

	method   string
	subtype  string
	encoding string
	ctx      context.Context //nolint:containedctx // the call's own
	cancel   context.CancelFunc
	unwatch  func() bool // stops the wait for its deadline; nil: no deadline
	opened   int64       // the value of conn.heard at its start
	call     call
	over     func(error)  // called with the call's outcome; may be nil
	resume   func() error // owned by the handler; nil: never parked
	web      *web         // a request that is not a call; nil: a call

	arrived  sync.Cond // the receiver waits on it
	sendable sync.Cond // the sender waits on it

	// The fields below are guarded by conn.mu.

	halfClosed bool          // the client sends no more
	drained    bool          // the handler has received io.EOF
	deaf       bool          // see StopReceiving
	refused    bool          // the request is discarded but for its message head, in in; see discard
	parked     func() error  // see Park; nil: not parked
	in         []byte        // unread bytes
	message    []byte        // the arrived part of a message of size bytes; further bytes go there
	size       int           // 0: further bytes go to in
	held       int           // bytes of in that Config.Hold has granted
	allowed    int           // bytes that the client may still send
	length     int64         // the request's Content-Length; -1: absent
	got        int64         // received bytes, without padding
	empty      int           // DATA frames without content
	place      *list.Element // in conn.blocked; nil: not blocked
	header     metadata.MD
	trailer    metadata.MD
}

// receiveLocked receives the content of a DATA frame. size is its length with padding.
func (s *stream) receiveLocked(data []byte, size int, end bool) error {
	s.got += int64(len(data))
	padded := len(data) < size
	switch {
	case size > s.allowed:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	case s.length >= 0 && (s.got > s.length || end && s.got != s.length): // RFC 9113, 8.1.1
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	case len(data) == 0 && !end:
		if s.empty++; s.empty > maxEmpty {
			return errFlood
		}
	}
	s.allowed -= size
	if s.refused {
		s.discardLocked(data, end)
		return nil
	}
	n := min(s.size-len(s.message), len(data))
	s.message, data = extend(s.message, data[:n], s.size), data[n:]
	if !s.holdLocked(len(s.in) + len(data)) {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeEnhanceYourCalm}
	}
	s.in = append(s.in, data...)
	s.halfClosed = end
	if padded {
		s.allowLocked(0)
	}
	if len(s.message) == s.size || end {
		s.wakeLocked()
	}
	return nil
}

// freeUnread is how many unread bytes a stream may have without Config.Hold: the requests
// of most calls.
const freeUnread = 8 << 10

// holdLocked passes the number of unread bytes to Config.Hold, and reports whether it grants them.
func (s *stream) holdLocked(unread int) bool {
	hold := s.conn.srv.cfg.Hold
	more := max(unread-freeUnread, 0) - s.held
	if hold == nil || more == 0 {
		return true
	}
	if !hold(s.conn.net.RemoteAddr(), more) {
		return false
	}
	s.held += more
	return true
}

// allowLocked opens the window so that the client may send the next need bytes of a message,
// and at least StreamWindow.
func (s *stream) allowLocked(need int) {
	if s.halfClosed || s.gone {
		return
	}
	window := s.conn.srv.cfg.StreamWindow
	more := max(window, need) - s.allowed - len(s.in)
	if more >= window/4 || more > 0 && s.allowed < need {
		s.allowed += more
		s.conn.out.windowUpdate(s.id, more)
	}
}

// take returns all unread bytes. If there are none, it waits, with a window for need bytes, and
// returns io.EOF when the client sends no more.
func (s *stream) take(need int) ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case s.gone:
			return nil, contextStatus(s.ctx)
		case s.deaf:
			return nil, errDeaf
		case len(s.in) > 0:
			in := s.in
			s.in = nil
			s.holdLocked(0)
			s.allowLocked(max(need-len(in), 0))
			c.flushLocked()
			return in, nil
		case s.halfClosed:
			s.drained = true
			return nil, io.EOF
		}
		s.allowLocked(need)
		if !c.flushLocked() {
			s.arrived.Wait()
		}
	}
}

// discard receives and discards a request of one message. A reset instead would require another
// reset for each frame that the client has queued. A request that is too long is not received to
// its end, as for calls that are served.
func (s *stream) discard() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.refused, s.in = true, bytes.Clone(s.in[:min(len(s.in), messageHead)])
	s.holdLocked(0)
	for !s.gone && !s.halfClosed && !s.tooLongLocked() {
		if s.allowLocked(0); !c.flushLocked() {
			s.arrived.Wait()
		}
	}
}

// discardLocked discards the content of a DATA frame of a refused request.
func (s *stream) discardLocked(data []byte, end bool) {
	s.in = append(s.in, data[:min(len(data), messageHead-len(s.in))]...)
	s.halfClosed = end
	if s.tooLongLocked() || end {
		s.wakeLocked()
		return
	}
	s.allowLocked(0)
}

// tooLongLocked reports whether a refused request has, or announces, more bytes than one message may
// have.
func (s *stream) tooLongLocked() bool {
	most := int64(s.conn.srv.cfg.MaxReceive)
	return s.got > messageHead+most || len(s.in) == messageHead && int64(binary.BigEndian.Uint32(s.in[1:])) > most
}

// part is the fraction of a message that must arrive before it gets its full array. Otherwise a
// client could make nodes allocate 2 MiB per message head, faster than they collect garbage.
const part = 16

// extend appends the next bytes of a message of size bytes. It copies only one part again: collecting a
// message of 1 MiB in a growing array costs five times as much.
func extend(message, next []byte, size int) []byte {
	if need := len(message) + len(next); need > cap(message) {
		if need <= size/part {
			size /= part
		}
		message = append(make([]byte, 0, size), message...)
	}
	return append(message, next...)
}

// whole waits for a message of size bytes that starts with begin, and returns it. It returns io.EOF when the
// client sends no more. Frames are copied directly into the message.
func (s *stream) whole(begin []byte, size int) ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.message, s.size = begin, size
	defer func() { s.message, s.size = nil, 0 }()
	for {
		n := min(size-len(s.message), len(s.in))
		s.message, s.in = extend(s.message, s.in[:n], size), s.in[n:]
		s.holdLocked(len(s.in))
		switch {
		case len(s.message) == size:
			return s.message, nil
		case s.gone:
			return nil, contextStatus(s.ctx)
		case s.deaf:
			return nil, errDeaf
		case s.halfClosed:
			return nil, io.EOF
		}
		if s.allowLocked(size - len(s.message)); !c.flushLocked() {
			s.arrived.Wait()
		}
	}
}
