package placement

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	connectionsPerPeer = 3
	ioTimeout          = 5 * time.Second
	handshakeTimeout   = 10 * time.Second
)

// stream is the raft port. It owns every connection that it made or took, and
// closes them all at the end: raft leaves those it took open until the other
// side goes.
type stream struct {
	listener net.Listener
	address  string
	server   *tls.Config
	client   func() *tls.Config
	failed   func(net.Addr, error)

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu; nil once closed
	once   sync.Once
	closed error
}

func newStream(cfg *Config) *stream {
	return &stream{
		listener: cfg.Listener, address: cfg.Address, server: cfg.ServerTLS, client: cfg.ClientTLS, failed: cfg.Failed,
		conns: make(map[net.Conn]struct{}),
	}
}

// Accept takes the next connection. A TLS handshake happens with its first
// read, so that nobody can stop others by not making one. Until something was
// read it has a deadline: raft itself waits for ever.
func (s *stream) Accept() (net.Conn, error) {
	c, err := s.listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout)) // of a closed one: the first read tells
	if s.server != nil {
		c = tls.Server(c, s.server)
	}
	return s.own(&firstRead{Conn: c, failed: s.failed})
}

// firstRead is a connection whose deadline ends with its first read. Only one
// goroutine reads it, as raft does.
type firstRead struct {
	net.Conn
	failed func(net.Addr, error)
	done   bool
}

// Read implements net.Conn.
func (c *firstRead) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.done {
		return n, err
	}
	c.done = true
	if err == nil {
		return n, c.Conn.SetDeadline(time.Time{})
	}
	if c.failed != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.failed(c.RemoteAddr(), err)
	}
	return n, err
}

// Dial connects to another voter. One that is known to be gone is refused at
// once.
func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if id, ok := isGone(to); ok {
		return nil, fmt.Errorf("dial voter %s: %w", id, errGone)
	}
	d := &net.Dialer{Timeout: timeout}
	if s.client == nil {
		c, err := d.Dial("tcp", string(to))
		if err != nil {
			return nil, err
		}
		return s.own(c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := (&tls.Dialer{NetDialer: d, Config: s.client()}).DialContext(ctx, "tcp", string(to))
	if err != nil {
		return nil, err
	}
	return s.own(c)
}

func (s *stream) own(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	o := &ownedConn{Conn: c, stream: s}
	s.conns[o] = struct{}{}
	return o, nil
}

// Close closes the port and all its connections. It may be called twice.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.closed = s.listener.Close()
		s.mu.Lock()
		conns := s.conns
		s.conns = nil
		s.mu.Unlock()
		for c := range conns {
			_ = c.Close()
		}
	})
	return s.closed
}

// Addr is the address as others reach it.
func (s *stream) Addr() net.Addr { return address(s.address) }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

type ownedConn struct {
	net.Conn
	stream *stream
}

func (c *ownedConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.conns, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}

// transport is raft's transport and how to end it. Raft is given the inner one
// as it is: it asks it for optional methods, pre-vote among them.
type transport struct {
	raft.Transport
	close func() error
}

func openTransport(cfg *Config, configured func(raft.ServerID) raft.ServerAddress, log raftLogger) transport {
	if cfg.Network != nil {
		return transport{Transport: cfg.Network.join(cfg.Address), close: func() error {
			cfg.Network.leave(cfg.Address)
			return nil
		}}
	}
	s := newStream(cfg)
	t := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addresses{cfg.Members, configured},
		Logger:                log, Stream: s, MaxPool: connectionsPerPeer, Timeout: ioTimeout,
	})
	return transport{Transport: t, close: func() error {
		t.CloseStreams()
		err := t.Close()
		if cerr := s.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
		return err
	}}
}
