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
	// The fields that each message to the client needs are adjacent: with thousands of streams, most of a
	// message is waiting for memory. Those from gone on are guarded by conn.mu.
	conn        *conn
	id          uint32
	sending     sync.Mutex
	gone        bool  // it is over, for the client at least
	headed      bool  // response headers are sent
	partial     bool  // the last message is not sent whole
	starved     bool  // the sender waits for its window
	granted     bool  // it was among the blocked senders, and may continue
	added, sent int64 // to and of its window, beside what new streams have

	method   string
	subtype  string
	encoding string
	ctx      context.Context //nolint:containedctx // the call's own
	cancel   context.CancelFunc
	unwatch  func() bool // ends the watch over its deadline; nil: it has none
	opened   int64       // when, as conn.heard
	call     call
	over     func(error)  // takes the call's outcome; nil: nothing wants it
	resume   func() error // owned by the handler; nil: it has not been parked
	web      *web         // a request that is no call; nil: it is one

	arrived  sync.Cond // the receiver waits on it
	sendable sync.Cond // the sender waits on it

	// All below is guarded by conn.mu.

	halfClosed bool          // the client sends no more
	drained    bool          // the handler has received io.EOF
	deaf       bool          // see StopReceiving
	refused    bool          // of the request only the head of its message is kept, in in; see discard
	parked     func() error  // see Park; nil: it is not
	in         []byte        // bytes that the handler has not read
	message    []byte        // of size bytes, as far as it has arrived; the next bytes belong to it
	size       int           // 0: the next bytes belong to in
	held       int           // bytes of it that Config.Hold has granted
	allowed    int           // bytes that the client may still send
	length     int64         // bytes that the request said it would have; -1: none said
	got        int64         // bytes that have arrived, without padding
	empty      int           // DATA frames without content
	place      *list.Element // among the blocked senders; nil: it is none
	header     metadata.MD
	trailer    metadata.MD
}

// receiveLocked takes the content of a DATA frame. size is its length with its padding.
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

// freeUnread bounds the bytes of a stream that may wait for its handler without Config.Hold:
// the requests of most calls.
const freeUnread = 8 << 10

// holdLocked notes how many bytes wait for the handler. It reports whether they may.
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

// allowLocked opens the window such that the client may send a message's next bytes, need of
// them, and at least the stream's window.
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

// take returns all bytes that have arrived. It waits for some while need are missing, and
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

// discard waits until the client has sent its request, of one message, and keeps none of it. After a reset, the
// frames that a client has queued would be answered with a reset each. A request that is too long is not
// received to its end, as that of a call that is served.
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

// discardLocked takes the content of a DATA frame of a refused request.
func (s *stream) discardLocked(data []byte, end bool) {
	s.in = append(s.in, data[:min(len(data), messageHead-len(s.in))]...)
	s.halfClosed = end
	if s.tooLongLocked() || end {
		s.wakeLocked()
		return
	}
	s.allowLocked(0)
}

// tooLongLocked reports whether a refused request has more bytes, or announces more, than one message may
// have.
func (s *stream) tooLongLocked() bool {
	most := int64(s.conn.srv.cfg.MaxReceive)
	return s.got > messageHead+most || len(s.in) == messageHead && int64(binary.BigEndian.Uint32(s.in[1:])) > most
}

// part is the fraction of a message that must have arrived before all of it has an array. Otherwise a
// client could have nodes allocate 2 MiB for each header that it sends, faster than they collect it.
const part = 16

// extend appends the next bytes of a message of so many bytes. It copies one part again: to collect a
// message of 1 MiB in an array that grows with it costs five times as much.
func extend(message, next []byte, size int) []byte {
	if need := len(message) + len(next); need > cap(message) {
		if need <= size/part {
			size /= part
		}
		message = append(make([]byte, 0, size), message...)
	}
	return append(message, next...)
}

// whole waits until a message of so many bytes has arrived, of which begin has, and returns it. It returns
// io.EOF when the client sends no more. Bytes go there from their frames.
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
