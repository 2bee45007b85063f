package rawconn

import (
	"context"
	"net"
)

// ErrNothing is the error of a read that would wait. TLS takes it as one after which it can read
// on, since it is temporary.
var ErrNothing error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing has arrived" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// haste is whether a connection's reads wait. Its reader owns it.
type haste struct {
	// Hasty: Read returns ErrNothing where it would wait. After a read that has left room in its buffer
	// it does so once without a look: [Rester.Rest] finds what has arrived since.
	Hasty   bool
	drained bool // the last read has left room in its buffer
}

// idle reports whether a read need not look.
func (h *haste) idle() bool {
	idle := h.Hasty && h.drained
	h.drained = false
	return idle
}

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
