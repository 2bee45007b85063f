package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Bounds of the HTTP server.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// Long enough for a profile, which takes 30 s by default.
	writeTimeout = 90 * time.Second
	idleTimeout  = 60 * time.Second
	maxHeader    = 16 << 10
	// endTimeout bounds open requests when the server ends.
	endTimeout = 2 * time.Second
)

// Serve answers on ln with h until ctx ends. Then it ends open requests after endTimeout, and returns nil. It
// closes ln.
//
// secure configures TLS; nil: no TLS. Requests for which permit fails are answered with 403 and the reason,
// except the probes, /healthz and /readyz: a kubelet has no certificate. If permit is nil, all requests are
// allowed, or with client CAs in secure those with a verified client certificate.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, secure *tls.Config, permit func(*http.Request) error) error {
	if permit == nil && secure != nil && secure.ClientCAs != nil {
		permit = certified
	}
	if permit != nil {
		h = permitted(h, permit)
	}
	srv := &http.Server{
		Handler:           h,
		ConnState:         settle,
		TLSConfig:         secure,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		// Errors of clients on this port are not logged.
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() {
		if secure != nil {
			served <- srv.ServeTLS(ln, "", "")
			return
		}
		served <- srv.Serve(ln)
	}()
	select {
	case err := <-served:
		_ = srv.Close()
		return fmt.Errorf("serve HTTP on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", ln.Addr(), err)
	}
	return nil
}

// settle reports a completed handshake to a listener that bounds pending
// connections.
func settle(c net.Conn, s http.ConnState) {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if pending, ok := c.(interface{ Settle() }); ok && s == http.StateActive {
		pending.Settle()
	}
}

// permitted answers 403 to requests without permission, except probes.
func permitted(h http.Handler, permit func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
		if !probe {
			if err := permit(r); err != nil {
				w.Header().Set("Connection", "close") // as with probes
				writeText(w, http.StatusForbidden, err.Error())
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// certified permits requests of clients with a verified certificate.
func certified(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return errors.New("a client certificate is needed here (--http-tls-client-ca); /healthz and /readyz need none")
	}
	return nil
}
