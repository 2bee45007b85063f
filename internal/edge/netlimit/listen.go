package netlimit

import (
	"context"
	"net"
	"syscall"
)

// Listen listens on an address for clients that send first, as clients of TLS and HTTP/2 do. On Linux the
// kernel holds a connection back until its first bytes arrive, for a few seconds at most. So clients that
// connect at the same time and send one after the other do not displace each other among the pending
// connections.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return c.Control(awaitBytes) }}
	return lc.Listen(ctx, "tcp", address) //nolint:wrapcheck // net's errors name the address
}
