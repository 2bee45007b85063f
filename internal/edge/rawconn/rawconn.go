package rawconn

import (
	"context"
	"net"
)

// Listener returns inner with connections as Wrap returns them.
func Listener(inner net.Listener) net.Listener { return listener{inner} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // as the listener
	}
	return Wrap(c), nil
}

// Dial connects to an address by TCP.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err //nolint:wrapcheck // net's errors name the address
	}
	return Wrap(c), nil
}
