package grpcserver

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"golang.org/x/net/http2"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
)

// windowLocked returns how many bytes the client accepts on the stream.
func (s *stream) windowLocked() int64 { return s.conn.initial + s.added - s.sent }

// send sends bytes, after the response headers. It waits, after an announcement, while the client does not accept
// them. Unless now is set, bytes may remain for a later flush.
func (s *stream) send(now bool, wait *announcement, parts ...[]byte) error {
	if !s.sending.TryLock() {
		if wait != nil && wait.call != nil {
			wait.call()
		}
		s.sending.Lock()
	}
	defer s.sending.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.headed {
		var err error
		if s.web != nil {
			err = s.web.sendHeaderLocked(http.StatusOK, wait)
		} else {
			err = s.sendHeaderLocked(nil, wait)
		}
		if err != nil {
			return err
		}
	}
	left := 0
	for _, p := range parts {
		left += len(p)
	}
	large := left > maxOut && (wait == nil || wait.call == nil)
	for burst := 0; left > 0; {
		if burst == 0 || burst >= maxOut || !s.canSendLocked() {
			if err := s.waitLocked(wait, large); err != nil {
				return err
			}
			burst = 0
		}
		n := int(min(int64(left), maxFrame, s.windowLocked(), c.window))
		parts = c.out.data(s.id, parts, n)
		left -= n
		burst += n
		s.partial = left > 0
		s.sent += int64(n)
		c.window -= int64(n)
		c.keep.sent()
		c.probe.sent += n
	}
	c.grantLocked()
	if now || len(c.out) > maxOut-maxFrame {
		c.flushLocked()
	}
	return nil
}

// canSendLocked reports whether the stream may send something, apart from other waiting senders.
func (s *stream) canSendLocked() bool {
	return !s.gone && s.windowLocked() > 0 && s.conn.window > 0 && len(s.conn.out) < maxOut
}

// waitLocked waits until the stream may send something. Senders that wait for the output or
// for the connection's window continue in order of arrival: a new sender queues after them. A
// released sender releases the next one after it has sent, when its stream has ended, or when
// it waits for the window of its stream. A large message is written in turns of the client.
func (s *stream) waitLocked(wait *announcement, large bool) error {
	c := s.conn
	for mine := false; ; {
		switch {
		case s.gone:
			c.grantLocked()
			return contextStatus(s.ctx)
		case s.windowLocked() <= 0:
			if s.flushLocked(large) {
				continue
			}
			c.grantLocked()
			s.starved, mine = true, false
			if s.announceLocked(wait); !s.gone {
				s.sendable.Wait()
			}
			s.starved = false
		case s.canSendLocked() && (mine || c.blocked.Len() == 0 && !c.passing):
			return nil
		default:
			s.place = c.blocked.PushBack(s)
			c.grantLocked()
			s.flushLocked(large) // after it has queued: it also writes the frames of others
			// An answer is announced if the client, and not another sender, holds it up.
			if s.place != nil && (wait == nil || wait.answer == nil || c.window <= 0 || c.stalled) {
				s.announceLocked(wait)
			}
			for s.place != nil && !s.gone {
				s.sendable.Wait()
			}
			if mine = s.granted; mine {
				s.granted, c.passing = false, false
			}
		}
	}
}

// flushLocked writes the connection's output, for a large message in a turn of the client.
// It reports whether it released mu.
func (s *stream) flushLocked(large bool) bool {
	c := s.conn
	if !large || len(c.out) < maxOut/2 || c.writing || c.stalled {
		return c.flushLocked()
	}
	c.mu.Unlock()
	leave, err := c.turn(s.ctx)
	c.mu.Lock()
	if err == nil { // otherwise the stream is ending
		defer leave()
	}
	c.flushLocked()
	return true
}

// waitForRoomLocked waits, after an announcement, until a header block has room in the output, or the stream has ended.
func (s *stream) waitForRoomLocked(wait *announcement) {
	c := s.conn
	for !s.gone && len(c.out) >= maxPending {
		if !c.flushLocked() {
			if s.announceLocked(wait); !s.gone {
				c.room.Wait()
			}
		}
	}
}

// announcement is made before a sender waits for the client. Either call is called, or Config.Unread, once.
type announcement struct {
	call    func()
	answer  any // for Config.Unread; nil: not called, or not again
	size    int
	release func() // from Config.Unread
}

// announceLocked makes an announcement, unless it is nil. It may end the stream.
func (s *stream) announceLocked(wait *announcement) {
	if unread := s.conn.srv.cfg.Unread; wait != nil && wait.call != nil {
		wait.call()
	} else if wait != nil && wait.answer != nil && unread != nil {
		release, err := unread(s.ctx, wait.answer, wait.size)
		if wait.answer, wait.release = nil, release; err != nil {
			s.stopLocked(http2.ErrCodeEnhanceYourCalm, toStatus(err))
		}
	}
}

// stopLocked ends a stream with a status; in the middle of a message, or if the client does not read, with RST_STREAM.
func (s *stream) stopLocked(code http2.ErrCode, outcome *status.Status) {
	if c := s.conn; s.partial || len(c.out) >= maxPending {
		c.resetLocked(s.id, code)
		c.flushLocked()
	} else {
		s.finishLocked(outcome)
	}
}

// sendHeaderLocked sends the response headers. wait is as in waitForRoomLocked.
func (s *stream) sendHeaderLocked(md metadata.MD, wait *announcement) error {
	s.waitForRoomLocked(wait)
	switch {
	case s.gone:
		return contextStatus(s.ctx)
	case s.headed:
		return status.Error(codes.Internal, "transport: SendHeader called multiple times") // grpc-go's text
	}
	s.headed = true
	s.header = metadata.Join(s.header, md)
	b := startBlock(s.conn)
	b.Begin(200, s.subtype)
	b.Metadata(s.header)
	if !s.conn.appendBlockLocked(b, s.id, 0) {
		return s.overflowLocked()
	}
	return nil
}

// overflowLocked ends a stream whose headers are larger than the client accepts.
func (s *stream) overflowLocked() error {
	s.conn.resetLocked(s.id, http2.ErrCodeInternal)
	s.conn.flushLocked()
	return status.Error(codes.Internal, "transport: the headers are larger than the peer's maximum size")
}

// finish sends the status of the call, and ends the stream.
func (s *stream) finish(outcome *status.Status) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.waitForRoomLocked(nil); !s.gone {
		s.finishLocked(outcome)
	}
}

func (s *stream) finishLocked(outcome *status.Status) {
	c := s.conn
	b := startBlock(c)
	switch {
	case s.headed:
	case len(s.header) > 0:
		s.headed = true
		b.Begin(200, s.subtype)
		b.Metadata(s.header)
		if !c.appendBlockLocked(b, s.id, 0) {
			_ = s.overflowLocked() // the call ends in any case
			return
		}
		b = startBlock(c)
	default: // trailers only
		b.Begin(200, s.subtype)
	}
	b.Status(outcome)
	if len(outcome.Proto().GetDetails()) > 0 {
		delete(s.trailer, callhead.DetailsHeader)
	}
	b.Metadata(s.trailer)
	if !c.appendBlockLocked(b, s.id, http2.FlagHeadersEndStream) {
		_ = s.overflowLocked() // as above
		return
	}
	if s.halfClosed {
		c.leaveLocked(s)
	} else {
		c.resetLocked(s.id, http2.ErrCodeNo) // the client need not send the rest: RFC 9113, 8.1
	}
	c.flushLocked()
}
