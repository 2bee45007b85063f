package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// Bounds of the HTTPS server. Watches, logs and uploads have no time; a write that a
// client does not take for writeTime ends its request.
const (
	headerTime = 10 * time.Second
	idleTime   = 3 * time.Minute
	maxHeader  = 64 << 10
	pingAfter  = 30 * time.Second
	pingTime   = 15 * time.Second
)

// Serve answers on ln until ctx ends. Then it drains, within a time: it takes no more
// connections, tells the open ones that new requests need another one, and ends
// the watches one after the other, each after a bookmark, so that their clients
// do not all come to another node at once.
func (s *Server) Serve(ctx context.Context, ln net.Listener, secure *tls.Config, drain time.Duration) error {
	srv := &http.Server{
		Handler: s, TLSConfig: secure, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
		ErrorLog:  slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // mistakes of clients
		ConnState: settle,
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(ln, "", "") }()
	select {
	case err := <-served:
		_ = srv.Close()
		return fmt.Errorf("serve Kubernetes' API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.cfg.Logger.Info("draining: ending the watches", "watches", s.counts.watches.Load(), "within", drain)
	s.spread.Store(int64(max(0, drain-2*shortestWatch)))
	close(s.draining)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve Kubernetes' API on %s: %w", ln.Addr(), err)
	}
	return nil
}

// settle tells a listener that bounds pending connections of one that has got
// through its handshake.
func settle(c net.Conn, state http.ConnState) {
	if state != http.StateActive {
		return
	}
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if bound, ok := c.(interface{ Settle() }); ok {
		bound.Settle()
	}
}

// turn returns after what time a watch ends in a drain.
func (s *Server) turn() time.Duration {
	if spread := s.spread.Load(); spread > 0 {
		return rand.N(time.Duration(spread))
	}
	return 0
}

// patient writes to a client that may take its time, but not stop.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}
