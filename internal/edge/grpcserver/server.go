package grpcserver

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/services"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/yield"
)

// maxAccepts is how many connections are accepted in a row before other goroutines and threads go
// first. Accept does not block while connections arrive, so a client that connects thousands of times
// would delay all others by a time slice: 3 ms of the kernel or 10 ms of Go.
const maxAccepts = 4

// Server serves gRPC. Create it with New, register services, then call Serve.
type Server struct {
	*services.Registry // not changed after Serve is called

	cfg      Config
	preface  []byte        // the first bytes of each connection
	work     chan task     // received by waiting goroutines
	stopping chan struct{} // closed by Stop

	goroutines sync.WaitGroup // of connections, including those at rest
	rester     rawconn.Rester
	handlers   sync.WaitGroup

	mu        sync.Mutex
	waiting   int                       // guarded by mu; goroutines that wait for a task
	listeners map[net.Listener]struct{} // guarded by mu
	pending   map[net.Conn]struct{}     // guarded by mu; in their handshake
	conns     map[*conn]struct{}        // guarded by mu
	draining  bool                      // guarded by mu; see Drain
	stopped   bool                      // guarded by mu
}

// New returns a Server without services.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("grpc server: %w", err)
	}
	s := &Server{
		Registry: services.New(cfg.Unary), cfg: cfg,
		work: make(chan task), stopping: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), pending: make(map[net.Conn]struct{}), conns: make(map[*conn]struct{}),
	}
	s.preface = preface(&cfg)
	return s, nil
}

// preface returns the first bytes of the server: RFC 9113, 3.4.
func preface(cfg *Config) []byte {
	settings := []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: maxFrame},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(cfg.MaxStreams)}, //nolint:gosec // validated
		{ID: http2.SettingInitialWindowSize, Val: uint32(cfg.StreamWindow)},  //nolint:gosec // validated
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(cfg.MaxHeader)},     //nolint:gosec // validated
	}
	b := appendFrame(nil, http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		b = appendUint32(append(b, byte(s.ID>>8), byte(s.ID)), s.Val) //nolint:gosec // bytes of it
	}
	if more := cfg.ConnWindow - initialWindow; more > 0 {
		b = appendUint32(appendFrame(b, http2.FrameWindowUpdate, 0, 0, 4), uint32(more)) //nolint:gosec // validated
	}
	return b
}

// Serve accepts connections until Stop or Drain, and then returns grpc.ErrServerStopped. It
// closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.listen(l) {
		return grpc.ErrServerStopped
	}
	backOff := time.Duration(0)
	var accepted yield.Steps
	for {
		c, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			backOff = 0
			s.accept(c)
			accepted.Did(1, maxAccepts)
		case s.isStopped():
			return grpc.ErrServerStopped
		case errors.As(err, &passing) && passing.Temporary(): // for example, too many descriptors
			backOff = min(max(2*backOff, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(backOff):
			case <-s.stopping:
			}
		default:
			return err
		}
	}
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = struct{}{}
	return !s.stopped
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped || s.draining
}

// accept begins the handshake of a connection.
func (s *Server) accept(raw net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.draining {
		_ = raw.Close()
		return
	}
	s.pending[raw] = struct{}{}
	s.goroutines.Go(func() { s.handshake(raw) })
}

// handshake starts another goroutine that reads the connection, because its own stack has grown
// to the size that TLS needs.
func (s *Server) handshake(raw net.Conn) {
	c, err := s.shake(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, raw)
	switch {
	case errors.Is(err, credentials.ErrConnDispatched): // the credentials own it now
	case err != nil:
		_ = raw.Close()
	case s.stopped, s.draining:
		_ = c.net.Close()
	default:
		s.conns[c] = struct{}{}
		s.goroutines.Add(1) // until left
		go c.serve()
	}
}

// left removes an ended connection.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.goroutines.Done()
}

// shake does all handshakes with a client but HTTP/2's.
func (s *Server) shake(raw net.Conn) (*conn, error) {
	if err := raw.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout)); err != nil {
		return nil, err
	}
	beneath := raw
	bottom, _ := socket.Of(raw)
	if bottom == nil {
		bottom = socket.New(raw)
		beneath = bottom
	}
	nc, info, err := s.cfg.Credentials.ServerHandshake(beneath)
	if err != nil {
		return nil, err
	}
	at, sealed := socket.Of(nc)
	bottom.Own()
	c := newConn(s, nc, bottom, sealed || at != bottom, &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: info})
	c.raw = raw
	return c, nil
}

// Listener returns l with connections that Server can use beneath TLS. It is needed if connections are
// wrapped before they reach Serve.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return socket.New(c), nil
}

// Stop closes listeners and connections, cancels the calls, and returns when their handlers
// have ended. It may be called again.
func (s *Server) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.pending {
		_ = c.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.fail(errStopped)
	}
	s.goroutines.Wait()
	s.handlers.Wait()
	s.rester.Close()
}

// task is the handler of a stream, or the reader of a connection that has rested. A goroutine runs many tasks
// one after the other, because its stack has already grown to the size that they need.
type task interface{ do() }

// maxWaiting bounds the goroutines that wait for a task.
const maxWaiting = 64

// start serves a stream in another goroutine.
func (s *Server) start(st *stream) {
	s.handlers.Add(1)
	s.dispatch(st)
}

// dispatch runs a task in a waiting or new goroutine. It does not block.
func (s *Server) dispatch(t task) {
	select {
	case s.work <- t:
	default:
		go s.doAll(t)
	}
}

// doAll runs t and further tasks, one after the other.
func (s *Server) doAll(t task) {
	for t != nil {
		t.do()
		t = s.another()
	}
}

// do begins the stream's handler, or resumes it.
func (s *stream) do() {
	srv := s.conn.srv
	if srv.serve(s) {
		s.conn.ended()
		srv.handlers.Done()
	}
}

// another waits for another task; nil: enough goroutines wait, or the server has stopped.
func (s *Server) another() task {
	s.mu.Lock()
	if s.waiting >= maxWaiting || s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.waiting++
	s.mu.Unlock()
	var t task
	select {
	case t = <-s.work:
	case <-s.stopping:
	}
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
	return t
}

// serve serves a call until its handler parks or the call ends, and reports whether it has ended. Another
// goroutine may already own the stream of a parked handler.
func (s *Server) serve(st *stream) (ended bool) {
	if st.web != nil {
		return st.web.serve(s.cfg.HTTP)
	}
	var err error
	if st.resume != nil {
		err = st.resume()
	} else {
		err = s.begin(st)
	}
	if errors.Is(err, errParked) {
		return false
	}
	if st.over != nil {
		st.over(err)
	}
	if err != nil && s.cfg.Failed != nil {
		s.cfg.Failed(st.ctx, err)
	}
	st.finish(toStatus(err))
	return true
}

// begin calls the handler of a call.
func (s *Server) begin(st *stream) error {
	impl, desc, unknown := s.Find(st.method)
	if unknown != nil {
		return unknown.Err()
	}
	if s.cfg.Before != nil && !desc.ClientStreams {
		if err := s.cfg.Before(st.ctx, st.method); err != nil {
			st.discard()
			return err
		}
	}
	st.call.stream, st.call.desc = st, desc
	if st.encoding != "" && st.encoding != encoding.Identity {
		if st.call.decompress = encoding.GetCompressor(st.encoding); st.call.decompress == nil {
			return status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", st.encoding)
		}
	}
	if s.cfg.Stream == nil || !desc.ClientStreams && !desc.ServerStreams {
		return desc.Handler(impl, &st.call)
	}
	info := &grpc.StreamServerInfo{FullMethod: st.method, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams}
	admitted, over, err := s.cfg.Stream(&st.call, info)
	if err != nil {
		return err
	}
	st.over = over
	return desc.Handler(impl, admitted)
}
