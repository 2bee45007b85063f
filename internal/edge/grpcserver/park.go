package grpcserver

import "errors"

var (
	// errParked is the error of a handler whose call continues without it.
	errParked = errors.New("the handler is parked")
	// errDeaf is RecvMsg's error after StopReceiving.
	errDeaf = errors.New("the handler receives no more messages")
)

// Park lets the handler of a stream return while its call continues: without a goroutine while
// the client sends nothing. next is called in the handler's place once there is something to
// receive, the stream is gone, or StopReceiving was called. The handler must return the error
// of Park at once; nil: it has one of these reasons to continue. After RecvMsg has returned
// io.EOF, that is no longer a reason.
func (s *stream) Park(next func() error) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if s.gone || s.deaf || len(s.in) > 0 || len(s.call.rest) > 0 || s.halfClosed && !s.drained {
			return nil
		}
		if s.allowLocked(messageHead); !c.flushLocked() {
			s.parked = next
			c.parked++
			(*resting)(c).rouseLocked()
			return errParked
		}
	}
}

// StopReceiving makes RecvMsg fail from now on, also one that waits, and resumes a parked
// handler. The call continues until its handler returns.
func (s *stream) StopReceiving() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.deaf = true
	s.wakeLocked()
}

// wakeLocked has the receiver look again, or resumes a parked handler.
func (s *stream) wakeLocked() {
	s.arrived.Signal()
	if s.parked != nil {
		s.resume, s.parked = s.parked, nil
		s.conn.parked--
		s.conn.srv.dispatch(s)
	}
}
