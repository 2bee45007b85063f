package placement

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

const (
	// heartbeats is the greatest number of heartbeats that raft's leader sends to a voter within
	// Config.Heartbeat: its random pauses are between a tenth and a fifth of that time.
	heartbeats = 10

	connectionsPerPeer = 3
	ioTimeout          = 5 * time.Second
	handshakeTimeout   = 10 * time.Second
)

// port is the raft port. It outlives its streams, of which one at a time accepts
// connections: raft starts again when the voters are recovered.
type port struct {
	listener net.Listener
	accepted chan accepted
	done     chan struct{} // closed by close
	ended    chan struct{} // closed when listen has ended
}

type accepted struct {
	conn net.Conn
	err  error
}

// openPort listens until close.
func openPort(l net.Listener) *port {
	p := &port{listener: l, accepted: make(chan accepted), done: make(chan struct{}), ended: make(chan struct{})}
	go p.listen()
	return p
}

func (p *port) listen() {
	defer close(p.ended)
	for {
		c, err := p.listener.Accept()
		select {
		case p.accepted <- accepted{c, err}: // raft waits after an error
		case <-p.done:
			if err == nil {
				_ = c.Close()
			}
			return
		}
	}
}

func (p *port) close() error {
	close(p.done)
	err := p.listener.Close()
	<-p.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// stream is raft's stream layer on the port for one generation. It owns every
// connection that it dials or accepts, and closes them all at the end: raft keeps
// accepted connections open until the other side closes them.
type stream struct {
	port    *port
	preface []byte
	address string
	server  *tls.Config
	client  func(raw net.Conn, node string) (net.Conn, *tls.Config)
	name    func(raft.ServerAddress) string // the node that raft dials at an address; "": not known
	failed  func(net.Addr, error)
	log     *slog.Logger

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu; nil once closed
	once   sync.Once
	closed chan struct{}
}

func newStream(cfg *Config, p *port, generation uint64, name func(raft.ServerAddress) string) *stream {
	return &stream{
		port: p, name: name, preface: prefaceOf(generation), address: cfg.Address, server: cfg.ServerTLS, client: cfg.ClientTLS, failed: cfg.Failed,
		log: cfg.Logger, conns: make(map[net.Conn]struct{}), closed: make(chan struct{}),
	}
}

// prefaceMagic begins with a byte that begins no raft message: in the first
// generation, which has no preface, raft refuses it.
const prefaceMagic = "shardwatch raft\n"

// prefaceOf returns the first bytes of every connection in a generation. They keep a
// voter of an older generation from electing a leader with voters of a newer one, and
// from writing to their logs. The first generation has no preface, because older
// software can be part of it.
func prefaceOf(generation uint64) []byte {
	if generation == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint64([]byte(prefaceMagic), generation)
}

// errOtherGeneration reports that the voters were recovered, and one side does not know it yet.
var errOtherGeneration = errors.New("the other voter has a raft log of another generation")

// Accept returns the next connection. The TLS handshake happens at its first read,
// so that no peer can block others by not completing it. The first read has a
// deadline, because raft itself waits forever.
func (s *stream) Accept() (net.Conn, error) {
	var c net.Conn
	select {
	case a := <-s.port.accepted:
		if a.err != nil {
			return nil, a.err
		}
		c = a.conn
	case <-s.closed:
		return nil, net.ErrClosed
	}
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout)) // if it is closed, the first read fails
	if s.server != nil {
		c = tls.Server(c, s.server)
	}
	return s.own(&firstRead{Conn: c, stream: s})
}

// firstRead is a connection whose deadline ends with its first read, which also
// reads the preface. Only one goroutine reads it, as raft does.
type firstRead struct {
	net.Conn
	stream *stream
	done   bool
}

// Read implements net.Conn.
func (c *firstRead) Read(p []byte) (int, error) {
	if c.done {
		return c.Conn.Read(p)
	}
	c.done = true
	n, err := c.first(p)
	switch failed := c.stream.failed; {
	case err == nil:
		return n, c.SetDeadline(time.Time{})
	case errors.Is(err, errOtherGeneration):
		c.stream.log.Debug("raft connection refused", "from", c.RemoteAddr().String(), "error", err)
	case failed != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		failed(c.RemoteAddr(), err)
	}
	return 0, err
}

func (c *firstRead) first(p []byte) (int, error) {
	want := c.stream.preface
	preface := make([]byte, len(want))
	if _, err := io.ReadFull(c.Conn, preface); err != nil {
		return 0, err
	}
	if !bytes.Equal(preface, want) {
		return 0, errOtherGeneration
	}
	return c.Conn.Read(p)
}

// Dial connects to another voter. It refuses a voter that is known to be gone
// at once.
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
		return s.introduce(rawconn.Wrap(c), timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	raw, err := d.DialContext(ctx, "tcp", string(to))
	if err != nil {
		return nil, err
	}
	raw, config := s.client(rawconn.Wrap(raw), s.name(to))
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("handshake with %s: %w", to, err), c.Close())
	}
	return s.introduce(c, timeout)
}

// introduce sends the preface.
func (s *stream) introduce(c net.Conn, timeout time.Duration) (net.Conn, error) {
	err := c.SetDeadline(time.Now().Add(timeout))
	if err == nil && len(s.preface) > 0 {
		_, err = c.Write(s.preface)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
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

// Close closes all connections. It may be called twice.
func (s *stream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.mu.Lock()
		conns := s.conns
		s.conns = nil
		s.mu.Unlock()
		for c := range conns {
			_ = c.Close()
		}
	})
	return nil
}

// Addr is the address at which other nodes reach this one.
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

// beating is raft's transport with heartbeats that are sent at the common beat of the node:
// raft sends one to each voter at random times, and each wakes two processes. It has all
// optional methods of raft's transport, among them pre-vote.
type beating struct {
	*raft.NetworkTransport
	closed <-chan struct{}
}

// AppendEntries implements raft.Transport.
func (t *beating) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) {
		next := time.NewTimer(beat.Until(beat.Every))
		defer next.Stop()
		select {
		case <-next.C:
		case <-t.closed:
		}
	}
	return t.NetworkTransport.AppendEntries(id, to, args, resp) //nolint:wrapcheck // raft looks at it
}

// isHeartbeat reports whether a request is only a heartbeat, by the same test as in raft's own
// transport.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) == 0 && r.PrevLogEntry == 0 && r.PrevLogTerm == 0 && r.LeaderCommitIndex == 0
}

// transport is raft's transport with a function that ends it. Raft gets the inner
// transport unwrapped, because it checks it for optional methods, among them pre-vote.
type transport struct {
	raft.Transport
	close func() error
}

// openTransport returns the transport of one generation.
func openTransport(cfg *Config, p *port, generation uint64, configured func(raft.ServerID) raft.ServerAddress, log raftLogger) transport {
	if cfg.Network != nil {
		return transport{Transport: cfg.Network.join(cfg.Address, generation), close: func() error {
			cfg.Network.leave(cfg.Address)
			return nil
		}}
	}
	found := &addresses{members: cfg.Members, configured: configured}
	s := newStream(cfg, p, generation, found.name)
	t := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: found,
		Logger:                log, Stream: s, MaxPool: connectionsPerPeer, Timeout: ioTimeout,
	})
	out := transport{Transport: t, close: func() error {
		t.CloseStreams()
		return errors.Join(t.Close(), s.Close())
	}}
	if cfg.Heartbeat >= heartbeats*beat.Every {
		out.Transport = &beating{NetworkTransport: t, closed: s.closed}
	}
	return out
}
