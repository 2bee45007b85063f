package grpcserver_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// rests are connections with one parked call each, whose requests go to got. taken has the server's
// ends of the connections.
type rests struct {
	address string
	server  *grpcserver.Server
	client  *tls.Config // nil: plain text
	got     chan error
	taken   chan net.Conn
}

// taking sends each accepted connection to taken.
type taking struct {
	net.Listener
	taken chan net.Conn
}

func (l taking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.taken <- c
	}
	return c, err
}

// eachRest runs a test with plain text, TLS 1.2 and TLS 1.3.
func eachRest(t *testing.T, test func(t *testing.T, s *rests)) {
	for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
		name := "plain text"
		if version > 0 {
			name = tls.VersionName(version)
		}
		t.Run(name, func(t *testing.T) {
			out := &rests{got: make(chan error, 10), taken: make(chan net.Conn, 10)}
			cfg := config()
			if version > 0 {
				var forServer *tls.Config
				forServer, out.client = certificates(t)
				forServer.MaxVersion = version
				cfg.Credentials = credentials.NewTLS(forServer)
			}
			s, err := grpcserver.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			pb.RegisterTestServiceServer(s, &parker{serve: out.serve})
			out.server, out.address = s, listen(t, s, func(l net.Listener) net.Listener { return taking{l, out.taken} })
			test(t, out)
		})
	}
}

func (s *rests) serve(p parking, gs grpc.ServerStream) error {
	var next func() error
	next = func() error {
		for {
			if err := p.Park(next); err != nil {
				return err
			}
			err := gs.RecvMsg(new(pb.StreamingOutputCallRequest))
			s.got <- err
			if err != nil {
				return err
			}
		}
	}
	return next()
}

// pieces is a connection that writes one byte at a time once slow is set, and calls between before
// the byte in the middle.
type pieces struct {
	net.Conn
	slow    bool
	between func()
}

func (p *pieces) Write(b []byte) (n int, err error) {
	if !p.slow {
		return p.Conn.Write(b)
	}
	for i := range b {
		if i == len(b)/2 {
			p.between()
		}
		if _, err := p.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// open opens a connection with a parked call.
func (s *rests) open(t *testing.T) (r *raw, beneath *pieces) {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	beneath = &pieces{Conn: c}
	above := net.Conn(beneath)
	if s.client != nil {
		above = tls.Client(beneath, s.client)
	}
	r = newRaw(t, above)
	r.greet()
	r.open(1, false, call(duplexMethod)...)
	r.must(r.WriteData(1, false, message(&pb.StreamingOutputCallRequest{})))
	if err := <-s.got; err != nil {
		t.Fatal(err)
	}
	return r, beneath
}

// readers returns the number of goroutines that read connections of servers.
func readers() int {
	b := make([]byte, 1<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "grpcserver.(*resting).readOn(")
}

// awaitRest waits until no connection has a reader.
func awaitRest(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "no connection has a reader", func() bool { return readers() == 0 })
}

// A connection whose calls are parked has no goroutine. The server still reads it when bytes
// arrive, even a few at a time, and when the client closes it.
func TestAConnectionAtRestHasNoGoroutine(t *testing.T) {
	eachRest(t, func(t *testing.T, s *rests) {
		r, beneath := s.open(t)
		if beneath.between = func() { awaitRest(t) }; s.client == nil {
			beneath.between = func() {} // the server waits for the rest of a frame
		}
		for _, beneath.slow = range []bool{false, false, true, true} {
			awaitRest(t)
			r.must(r.WriteData(1, false, message(&pb.StreamingOutputCallRequest{})))
			if err := <-s.got; err != nil {
				t.Fatal(err)
			}
			r.alive()
		}
		awaitRest(t)
		_ = beneath.Close()
		if err := <-s.got; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the end of the connection: %v", err)
		}
	})
}

// A connection at rest ends when either side closes the socket, and when the server stops.
func TestAConnectionAtRestEnds(t *testing.T) {
	for name, end := range map[string]func(s *rests){
		"beneath":    func(s *rests) { _ = (<-s.taken).Close() },
		"the server": func(s *rests) { s.server.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			eachRest(t, func(t *testing.T, s *rests) {
				s.open(t)
				awaitRest(t)
				end(s)
				if err := <-s.got; err == nil || errors.Is(err, io.EOF) {
					t.Errorf("the end of the connection: %v", err)
				}
			})
		})
	}
}
