// Package port is the HTTPS port of Kubernetes' API. The server of the client port, whose watches
// need no goroutines, handles HTTP/2; net/http's server handles HTTP/1, which upgrades need.
package port

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/dispatch"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of the HTTPS server. Watches, logs and uploads have no time limit; a write that
// blocks for writeTime ends its request. client-go pings a connection that was silent for
// 30 s: the server's later ping is for other clients only.
const (
	headerTime = 10 * time.Second
	idleTime   = 3 * time.Minute
	maxHeader  = 64 << 10
	pingAfter  = 45 * time.Second
	pingTime   = 15 * time.Second
	pingLeast  = time.Second

	maxStreams   = 250 // as in net/http's server
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// Config configures Serve.
type Config struct {
	Handler http.Handler
	TLS     *tls.Config
	// Budget bounds the bytes that clients have sent and requests have not read.
	Budget *budget.Budget
	Logger *slog.Logger
	// Drain bounds the time from the end of Serve's context, when Draining is called, to the close
	// of all connections.
	Drain    time.Duration
	Draining func()
}

// Serve answers on ln until ctx ends, and then drains.
func Serve(ctx context.Context, ln net.Listener, cfg *Config) error {
	old := dispatch.New(ln.Addr())
	h1 := &http.Server{
		Handler: http.HandlerFunc(cfg.serve), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog:  slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug), // client errors
		ConnState: settle,
	}
	h2, err := grpcserver.New(grpcserver.Config{
		Credentials: newSplitter(cfg.TLS, old), Codec: wire.NewCodec(), HTTP: http.HandlerFunc(cfg.serveStream),
		MaxReceive: maxHeader, MaxStreams: maxStreams, MaxHeader: maxHeader, StreamWindow: streamWindow, ConnWindow: connWindow,
		Hold: cfg.holdUnread, Flooded: netlimit.Punish,
		HandshakeTimeout: headerTime, Idle: idleTime, PingAfter: pingAfter, PingTimeout: pingTime, PingLeast: pingLeast,
	})
	if err != nil {
		return fmt.Errorf("serve Kubernetes' API: %w", err)
	}
	defer h2.Stop()
	defer h1.Close()
	served := make(chan error, 2)
	go func() { served <- h2.Serve(ln) }()
	go func() { served <- h1.Serve(old) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve Kubernetes' API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	cfg.Draining()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { _ = h1.Shutdown(end) }) // connections still open at the end are closed
	both.Go(func() { _ = h2.Drain(end) })
	both.Wait()
	return nil
}

// serveStream answers a request over HTTP/2. A panic ends its stream, as in net/http's server.
func (c *Config) serveStream(w http.ResponseWriter, r *http.Request) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			c.Logger.Error("request panicked", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	c.serve(w, r)
}

// freeHead is the size of headers up to which a request is not charged to the budget: many
// clients may share an address, that of a proxy.
const freeHead = 4 << 10

// tokenCopies is the number of copies of a token that its review makes: in JSON, and in frames.
const tokenCopies = 2

// serve answers a request. Large headers are charged to its address until the handler returns.
func (c *Config) serve(w http.ResponseWriter, r *http.Request) {
	n := headBytes(r)
	if n <= freeHead {
		c.Handler.ServeHTTP(w, r)
		return
	}
	n += tokenCopies * int64(len(r.Header.Get("Authorization")))
	client := budget.Client{Name: sourceOf(r), Max: budget.HalfOfTotal}
	if err := c.Budget.Take(client, budget.Requests, n, 0); err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer c.Budget.Give(client, budget.Requests, n)
	c.Handler.ServeHTTP(w, r)
}

// sourceOf returns the address of a request in the form of budgets and limits.
func sourceOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return netlimit.SourceOf(net.TCPAddrFromAddrPort(at))
}

// headBytes is the memory of the headers of a request.
func headBytes(r *http.Request) int64 {
	n := 2 * len(r.URL.RawQuery) // parsed, too
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += 16 + len(v)
		}
	}
	return int64(n)
}

// holdUnread charges the budget for received bytes that requests have not read, or releases
// them if n is negative. The address is charged: the client may be unknown yet.
func (c *Config) holdUnread(from net.Addr, n int) bool {
	return c.Budget.Unread(budget.Client{Name: netlimit.SourceOf(from), Max: budget.HalfOfTotal}, n)
}

// settle reports a completed handshake to a listener that bounds pending
// connections.
func settle(c net.Conn, state http.ConnState) {
	if state != http.StateActive {
		return
	}
	for c != nil {
		if bound, ok := c.(interface{ Settle() }); ok {
			bound.Settle()
			return
		}
		above, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = above.NetConn()
	}
}
