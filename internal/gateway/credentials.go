package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials returns what the gRPC server uses for its connections: TLS when
// cfg is not nil. HTTP/1 connections go to the gateway.
//
// With TLS the client says which it speaks (ALPN); otherwise HTTP/2's preface
// does (RFC 9113, 3.4).
func (g *Gateway) Credentials(cfg *tls.Config) credentials.TransportCredentials {
	c := &splitter{TransportCredentials: insecure.NewCredentials(), arrive: g.arrive}
	if cfg != nil {
		cfg = cfg.Clone()
		for _, protocol := range []string{"h2", "http/1.1"} {
			if !slices.Contains(cfg.NextProtos, protocol) {
				cfg.NextProtos = append(cfg.NextProtos, protocol)
			}
		}
		c.TransportCredentials, c.tls = credentials.NewTLS(cfg), cfg
	}
	return c
}

// splitter hands HTTP/1 connections over.
type splitter struct {
	credentials.TransportCredentials             // for all but ServerHandshake
	tls                              *tls.Config // nil: plain text
	arrive                           *arrivals
}

// Clone implements credentials.TransportCredentials.
func (c *splitter) Clone() credentials.TransportCredentials {
	out := *c
	out.TransportCredentials = c.TransportCredentials.Clone()
	return &out
}

// ServerHandshake implements credentials.TransportCredentials. grpc-go bounds
// its time with a deadline on the connection.
func (c *splitter) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := raw.(*sniffed)
	if !ok { // a call of our own
		return insecure.NewCredentials().ServerHandshake(raw)
	}
	if c.tls != nil {
		return c.secure(conn)
	}
	isGRPC, err := conn.sniff()
	switch {
	case err != nil:
		_ = raw.Close()
		return nil, nil, err
	case !isGRPC:
		return nil, nil, c.arrive.put(conn.hand())
	}
	return insecure.NewCredentials().ServerHandshake(raw)
}

func (c *splitter) secure(raw *sniffed) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw.Conn, c.tls)
	if err := conn.HandshakeContext(context.Background()); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		raw.hand()
		return nil, nil, c.arrive.put(conn)
	}
	return conn, credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// preface is what every HTTP/2 connection begins with, and no HTTP/1 request.
const preface = "PRI "

// listener makes the connections of another one such that they can be sniffed
// at.
type listener struct{ net.Listener }

// Listener returns l as the gRPC server has to serve it.
func (g *Gateway) Listener(l net.Listener) net.Listener { return listener{l} }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffed{Conn: c}, nil
}

// sniffed is a connection whose first bytes may have been read.
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

// hand returns the connection for somebody else, without gRPC's deadline. gRPC
// takes it off once it has heard of that; by then, it may be the other's.
func (s *sniffed) hand() net.Conn {
	s.handed.Store(true)
	_ = s.Conn.SetDeadline(time.Time{}) // of a closed one: the next read tells
	return &sniffed{Conn: s.Conn, head: s.head}
}

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

// arrivals is a net.Listener for connections that came in elsewhere.
type arrivals struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newArrivals() *arrivals {
	a := &arrivals{conns: make(chan net.Conn), done: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.done) })
	return a
}

// put hands a connection over. The error says so to gRPC, or why not.
func (a *arrivals) put(c net.Conn) error {
	select {
	case a.conns <- c:
		return credentials.ErrConnDispatched
	case <-a.done:
		_ = c.Close()
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *arrivals) Close() error {
	a.close()
	return nil
}

// Addr implements net.Listener.
func (*arrivals) Addr() net.Addr { return &net.TCPAddr{} }

// denied reports whether the caller's rights are the reason.
func denied(err error) bool {
	return slices.ContainsFunc([]error{
		rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCInvalidAuthToken,
	}, func(known error) bool { // a policy's has its reason behind it
		return strings.HasPrefix(rpctypes.ErrorDesc(err), rpctypes.ErrorDesc(known))
	})
}
