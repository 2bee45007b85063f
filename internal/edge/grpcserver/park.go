package grpcserver

import "errors"

var (
	// errParked is the error of a handler that returns while its call continues.
	errParked = errors.New("the handler is parked")
	// errDeaf is RecvMsg's error after StopReceiving.
	errDeaf = errors.New("the handler receives no more messages")
)

// Park lets the handler of a stream return while its call continues, without a goroutine while
// the client sends nothing. next replaces the handler when there is something to receive, the
// stream has ended, or StopReceiving was called. If Park returns an error, the handler must
// return it at once. If it returns nil, one of these conditions holds already. The end of the
// client's messages is no condition after RecvMsg has returned io.EOF.
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

// StopReceiving makes pending and later calls of RecvMsg fail, and resumes a parked
// handler. The call continues until its handler returns.
func (s *stream) StopReceiving() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.deaf = true
	s.wakeLocked()
}

// wakeLocked wakes a waiting receiver, or resumes a parked handler.
func (s *stream) wakeLocked() {
	s.arrived.Signal()
	if s.parked != nil {
		s.resume, s.parked = s.parked, nil
		s.conn.parked--
		s.conn.srv.dispatch(s)
	}
}
