package grpcserver

import (
	"context"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
)

func (c *conn) onHeaders(f *http2.MetaHeadersFrame) error {
	s, err := c.open(f)
	if s != nil {
		c.srv.start(s)
	}
	return err
}

// open opens the stream of a header list; nil: the request was answered or refused.
func (c *conn) open(f *http2.MetaHeadersFrame) (*stream, error) {
	id := f.StreamID
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil { // its streams have ended: nothing would end a new one
		return nil, c.err
	}
	if f.HasPriority() && f.Priority.StreamDep == id {
		return nil, http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if s := c.streams[id]; s != nil {
		return nil, s.trailersLocked(f)
	}
	if !c.idleLocked(id) || id%2 == 0 { // RFC 9113, 5.1.1
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.maxID = id
	if c.bye.last {
		return nil, nil //nolint:nilnil // the GOAWAY frame has refused it: RFC 9113, 6.8
	}
	if f.Truncated {
		return nil, http2.StreamError{StreamID: id, Code: http2.ErrCodeFrameSize}
	}
	if len(c.streams) >= c.srv.cfg.MaxStreams {
		return nil, http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	r := callhead.Parse(f)
	if r.Malformed || f.StreamEnded() && r.Length > 0 {
		return nil, http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	var s *stream
	if !r.IsCall() && c.srv.cfg.HTTP != nil {
		s = c.openWebLocked(f, r)
	} else if answer, httpStatus := r.Refusal(); answer != nil {
		c.answerLocked(id, r.Subtype, httpStatus, answer, f.StreamEnded())
		return nil, nil //nolint:nilnil // answered
	} else {
		s = newStream(c, id, r)
	}
	s.halfClosed = f.StreamEnded()
	c.streams[id] = s
	c.running++
	c.keep.idle = time.Time{}
	return s, nil
}

// answerLocked ends a stream that was never open.
func (c *conn) answerLocked(id uint32, subtype string, httpStatus int, answer *status.Status, halfClosed bool) {
	b := startBlock(c)
	b.Begin(httpStatus, subtype)
	b.Status(answer)
	if !c.appendBlockLocked(b, id, http2.FlagHeadersEndStream) {
		c.resetLocked(id, http2.ErrCodeInternal)
	} else if !halfClosed {
		c.resetLocked(id, http2.ErrCodeNo) // RFC 9113, 8.1
	}
}

func newStream(c *conn, id uint32, r *callhead.Request) *stream {
	s := &stream{conn: c, id: id, method: r.Path, subtype: r.Subtype, encoding: r.Encoding, length: r.Length, allowed: c.srv.cfg.StreamWindow, opened: c.heard.Load()}
	s.arrived.L, s.sendable.L = &c.mu, &c.mu
	ctx := metadata.NewIncomingContext(c.base, r.MD)
	if r.Timed {
		ctx, s.cancel = context.WithTimeout(ctx, r.Timeout)
		s.unwatch = context.AfterFunc(ctx, s.expire)
	} else {
		ctx, s.cancel = context.WithCancel(ctx)
	}
	s.ctx = grpc.NewContextWithServerTransportStream(ctx, s)
	return s
}

// expire ends a stream at its deadline, with a status if possible: grpc-js treats RST_STREAM as a cancellation.
func (s *stream) expire() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.gone {
		s.stopLocked(http2.ErrCodeCancel, status.New(codes.DeadlineExceeded, context.DeadlineExceeded.Error()))
	}
}

// leaveLocked removes a stream from its connection. Its handler may still run.
func (c *conn) leaveLocked(s *stream) {
	delete(c.streams, s.id)
	s.gone = true
	s.in = nil
	s.holdLocked(0)
	if s.unwatch != nil {
		s.unwatch()
	}
	s.cancel()
	if s.place != nil {
		c.blocked.Remove(s.place)
		s.place = nil
	}
	s.wakeLocked()
	s.sendable.Broadcast()
	c.room.Broadcast()
	if len(c.streams) == 0 {
		c.keep.idle = time.Now()
		c.bye.over = c.bye.last
	}
}

// ended counts the end of a handler.
func (c *conn) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == c.srv.cfg.MaxStreams-1 {
		c.room.Broadcast()
	}
}

// trailersLocked handles the second header list of a stream. HTTP/2 allows it, gRPC does not use it.
func (s *stream) trailersLocked(f *http2.MetaHeadersFrame) error {
	switch {
	case s.halfClosed:
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	case !f.StreamEnded() || len(f.PseudoFields()) > 0: // RFC 9113, 8.1
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	return s.receiveLocked(nil, 0, true)
}

// contextStatus returns the error of a call whose stream has ended.
func contextStatus(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = context.Canceled
	}
	return status.FromContextError(err).Err()
}

// toStatus returns the status of a handler's error.
func toStatus(err error) *status.Status {
	if s, ok := status.FromError(err); ok { // nil for nil: OK
		return s
	}
	return status.FromContextError(err)
}
