package rawconn

import (
	"context"
	"net"
)

// ErrNothing is the error of a read that would wait. It is temporary, so that TLS can continue to
// read after it.
var ErrNothing error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing has arrived" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// haste controls whether the reads of a connection wait. Its reader owns it.
type haste struct {
	// Hasty makes Read return ErrNothing instead of waiting. After a read that did not fill its buffer,
	// Read does so once without a system call: [Rester.Rest] finds bytes that have arrived since.
	Hasty   bool
	drained bool // the last read did not fill its buffer
}

// idle reports whether a read can skip the system call.
func (h *haste) idle() bool {
	idle := h.Hasty && h.drained
	h.drained = false
	return idle
}

// Listener returns inner with its connections wrapped by Wrap.
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
