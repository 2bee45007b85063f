// Package dispatch passes connections from one server of a process to another one.
package dispatch

import (
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Listener is a net.Listener whose connections another server has accepted. Its methods may be
// called from any goroutine.
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
	at    net.Addr
}

// New returns a listener with the address of the server that accepts its connections.
func New(at net.Addr) *Listener {
	l := &Listener{conns: make(chan net.Conn), done: make(chan struct{}), at: at}
	l.close = sync.OnceFunc(func() { close(l.done) })
	return l
}

// Put waits until Accept has returned the connection. It returns [credentials.ErrConnDispatched],
// which makes the calling gRPC server release the connection. After Close it closes the connection
// and returns [net.ErrClosed].
func (l *Listener) Put(c net.Conn) error {
	select {
	case l.conns <- c:
		return credentials.ErrConnDispatched
	case <-l.done:
		_ = c.Close()
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.at }
