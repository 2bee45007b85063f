package server

import (
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// handshakeTimeout bounds the time from the connection to the end of its TLS and HTTP/2
// handshakes.
const handshakeTimeout = 10 * time.Second

// maxHeader bounds the headers of a call, in bytes: a token, a trace context and
// little else. gRPC's default is 16 MiB.
const maxHeader = 64 << 10

// idleTimeout is how long a client may be connected without a call. gRPC clients
// reconnect automatically for their next call.
const idleTimeout = 5 * time.Minute

// ageGrace is how long calls may continue on a connection that has reached its maximum age.
const ageGrace = 30 * time.Second

// handshakes reports failed handshakes. gRPC does not report them, and an operator whose
// certificate is refused would look for the reason at the wrong end. After a handshake
// the connection releases its turn; see netlimit.Turns.
type handshakes struct {
	credentials.TransportCredentials
	failed func(from net.Addr, err error)
}

// told returns creds that report failed handshakes to failed, unless it is nil.
func told(creds credentials.TransportCredentials, failed func(net.Addr, error)) credentials.TransportCredentials {
	if failed == nil {
		failed = func(net.Addr, error) {}
	}
	return &handshakes{creds, failed}
}

// ServerHandshake implements credentials.TransportCredentials.
func (h *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	netlimit.Shaken(raw)
	// Load balancers connect and close without a handshake; that is no failure.
	if err != nil && !errors.Is(err, credentials.ErrConnDispatched) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		h.failed(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.failed}
}
