package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
	"github.com/shardwatch/shardwatch/internal/yield"
)

// Credentials returns the transport credentials of the gRPC server: TLS if cfg is not nil. If greet is set, it
// wraps the credentials that do the handshake, and so counts all connections. HTTP/1 connections go to the
// gateway.
//
// With TLS, ALPN selects the protocol; otherwise HTTP/2's preface does (RFC 9113, 3.4).
func (g *Gateway) Credentials(cfg *tls.Config, greet func(credentials.TransportCredentials) credentials.TransportCredentials) credentials.TransportCredentials {
	shake := &handshake{TransportCredentials: insecure.NewCredentials()}
	if cfg != nil {
		cfg = cfg.Clone()
		for _, protocol := range []string{"h2", "http/1.1"} {
			if !slices.Contains(cfg.NextProtos, protocol) {
				cfg.NextProtos = append(cfg.NextProtos, protocol)
			}
		}
		shake.TransportCredentials, shake.tls = credentials.NewTLS(cfg), cfg
	}
	c := &splitter{TransportCredentials: shake, g: g}
	if greet != nil {
		c.TransportCredentials = greet(shake)
	}
	return c
}

// splitter passes HTTP/1 connections to the gateway after their handshake.
type splitter struct {
	credentials.TransportCredentials
	g *Gateway
}

// Clone implements credentials.TransportCredentials.
func (c *splitter) Clone() credentials.TransportCredentials {
	return &splitter{c.TransportCredentials.Clone(), c.g}
}

// ServerHandshake implements credentials.TransportCredentials. grpc-go bounds
// the handshake with a deadline on the connection.
func (c *splitter) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if s, ok := raw.(*sniffed); !ok || !s.handed.Load() {
		return conn, info, nil
	}
	boundUnsent(conn)
	out := &web{Conn: conn, info: info, pace: pace{turn: c.g.turnOf(context.Background(), conn.RemoteAddr())}}
	if out.pace.socket, _ = socket.Of(conn); out.pace.socket != nil {
		out.pace.socket.Own()
	}
	return nil, nil, c.g.arrive.Put(out)
}

// handshake detects the protocol of a client.
type handshake struct {
	credentials.TransportCredentials             // for all but ServerHandshake
	tls                              *tls.Config // nil: plain text
}

// Clone implements credentials.TransportCredentials.
func (c *handshake) Clone() credentials.TransportCredentials {
	return &handshake{c.TransportCredentials.Clone(), c.tls}
}

// ServerHandshake implements credentials.TransportCredentials. raw must come from [Gateway.Listener]. It goes
// to the gateway if the client speaks HTTP/1.
func (c *handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := raw.(*sniffed)
	if !ok {
		return nil, nil, errors.New("connection was not accepted by the gateway's listener")
	}
	if c.tls != nil {
		return c.secure(conn)
	}
	isGRPC, err := conn.sniff()
	if err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	if !isGRPC {
		raw = conn.hand()
	}
	return insecure.NewCredentials().ServerHandshake(raw)
}

func (c *handshake) secure(raw *sniffed) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw.Conn, c.tls)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		raw.hand()
	}
	return conn, credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// web is an HTTP/1 connection. A client that reads nothing for a while, or too slowly, is disconnected.
type web struct {
	net.Conn
	info credentials.AuthInfo
	pace pace // owned by the writer
}

// A client that has unread bytes of an answer must read some within pieceTimeout, and leastRate bytes per
// second on average.
const (
	pieceTimeout = 30 * time.Second
	piece        = 64 << 10
	record       = 16 << 10 // bytes per write to a socket with a backlog: one TLS record
	leastRate    = 16 << 10
)

// unsentMost bounds the unsent bytes that the kernel buffers for a connection. By default it buffers megabytes
// for a client that does not read, and a watch of this client would be served event by event until the buffer
// is full. A blocked watch costs only its position.
const unsentMost = 64 << 10

// turnOf returns a function that waits for the client's turn to write.
func (g *Gateway) turnOf(ctx context.Context, client net.Addr) func() (leave func(), err error) {
	return func() (func(), error) { return g.Turn(ctx, client) }
}

// pace enforces pieceTimeout and leastRate on a client. A piece is written in a turn of its own, or in the turn
// of the pump that has sent the message. The turn ends before the writer blocks on the client. So at most as
// many writers are ready to run as there are turns.
type pace struct {
	waited time.Duration                    // in all writes
	wrote  int64                            // bytes
	turn   func() (leave func(), err error) // waits for a turn to write a piece; nil: none is needed
	leave  func()                           // ends the writer's turn; nil: it has none
	socket *socket.Socket                   // keeps a backlog; nil: writes block, outside of a turn
	steps  yield.Steps                      // bytes
}

type paceKey struct{}

// paceOf returns the pace of a request's connection; nil: the connection is shared by several requests, or its
// writes block.
func paceOf(ctx context.Context) *pace {
	if c, _ := ctx.Value(paceKey{}).(*pace); c != nil && c.socket != nil {
		return c
	}
	return nil
}

// end ends the turn, if there is one.
func (c *pace) end() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// write writes p to w in pieces. deadline sets the write deadline of w.
func (c *pace) write(w io.Writer, deadline func(time.Time) error, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		own := c.leave == nil
		if own && c.turn != nil {
			if c.leave, err = c.turn(); err != nil {
				break
			}
		}
		var more int
		if c.socket == nil {
			c.end()
			err = c.timed(deadline, func() (err error) {
				more, err = w.Write(p[n:min(n+piece, len(p))])
				return err
			})
		} else if more, err = w.Write(p[n:min(n+record, len(p))]); err == nil && c.socket.Stalled() {
			c.end()
			err = c.timed(deadline, c.socket.Drain)
		}
		n += more
		c.wrote += int64(more)
		if own {
			c.end()
		} else {
			c.steps.Did(more, piece)
		}
	}
	return n, err
}

// timed calls f, which blocks on the client, with the client's deadline.
func (c *pace) timed(deadline func(time.Time) error, f func() error) error {
	began := time.Now()
	grace := pieceTimeout + time.Duration(c.wrote)*time.Second/leastRate - c.waited
	if err := deadline(began.Add(min(grace, pieceTimeout))); err != nil {
		return err
	}
	defer func() { c.waited += time.Since(began) }()
	return f()
}

// Write implements net.Conn.
func (c *web) Write(p []byte) (n int, err error) {
	return c.pace.write(c.Conn, c.SetWriteDeadline, p)
}

// pacedWriter is the answer on an HTTP/2 stream, with a pace of its own.
type pacedWriter struct {
	http.ResponseWriter
	pace pace
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter. There is a deadline only during a write.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	deadline := http.NewResponseController(w.ResponseWriter).SetWriteDeadline
	defer func() { err = errors.Join(err, deadline(time.Time{})) }()
	return w.pace.write(w.ResponseWriter, deadline, p)
}

// preface begins every HTTP/2 connection, and no HTTP/1 request.
const preface = "PRI "

// listener accepts connections and allows their protocol to be detected.
type listener struct{ net.Listener }

// Listener returns the listener that the gRPC server must serve in place of l.
func (g *Gateway) Listener(l net.Listener) net.Listener { return listener{l} }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffed{Conn: c}, nil
}

// sniffed is a connection whose first bytes may have been read to detect the protocol.
type sniffed struct {
	net.Conn
	head   []byte
	handed atomic.Bool
}

// sniff reports whether the client speaks HTTP/2.
func (s *sniffed) sniff() (bool, error) {
	head := make([]byte, len(preface))
	for n := 0; n < len(head); {
		more, err := s.Conn.Read(head[n:])
		n += more
		s.head = head[:n]
		if !strings.HasPrefix(preface, string(s.head)) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// hand returns the connection without gRPC's deadline, for use by the gateway. gRPC clears its deadline only
// after it has learned of the handover, when the gateway may have set one: SetDeadline ignores gRPC from now
// on.
func (s *sniffed) hand() net.Conn {
	s.handed.Store(true)
	_ = s.Conn.SetDeadline(time.Time{}) // if closed, the next read fails
	return &sniffed{Conn: s.Conn, head: s.head}
}

// NetConn returns the underlying connection.
func (s *sniffed) NetConn() net.Conn { return s.Conn }

// Read implements net.Conn.
func (s *sniffed) Read(p []byte) (int, error) {
	if len(s.head) > 0 {
		n := copy(p, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	return s.Conn.Read(p)
}

// SetDeadline implements net.Conn.
func (s *sniffed) SetDeadline(t time.Time) error {
	if s.handed.Load() {
		return nil
	}
	return s.Conn.SetDeadline(t)
}
