package grpcserver

import (
	"context"
	"maps"
	"slices"
	"time"
)

// drainEvery is the interval at which Drain checks whether the connections have ended.
const drainEvery = 20 * time.Millisecond

// Drain accepts no more connections, and asks the clients of open connections to begin no more
// streams. It returns when all connections have ended, or with the error of ctx. Call Stop
// afterwards.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.pending {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.GoAway()
	often := time.NewTicker(drainEvery)
	defer often.Stop()
	for {
		s.mu.Lock()
		open := len(s.conns)
		s.mu.Unlock()
		if open == 0 {
			return nil
		}
		select {
		case <-often.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// GoAway asks the clients of open connections to begin no more streams on them. Open streams continue,
// and new connections are accepted.
func (s *Server) GoAway() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		drain(c)
	}
}

// GoAway is Server.GoAway for the connection of this stream.
func (s *stream) GoAway() { drain(s.conn) }

// drain begins the graceful end of a connection.
func drain(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil || !c.bye.begun.IsZero():
	case c.keep.timer == nil: // the client has not sent its settings yet
		c.failLocked(errStopped)
	default:
		c.drainLocked(time.Now())
		c.keep.timer.Reset(c.srv.cfg.PingTimeout) // by then the client has answered
		c.flushLocked()
	}
}
