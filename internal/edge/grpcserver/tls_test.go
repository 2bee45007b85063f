package grpcserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// certificates returns the TLS configurations of a server that requires a client certificate, and
// of a client.
func certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	ca := certtest.NewCA(t, "ca")
	server = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "server").Pair}, ClientCAs: certtest.Pool(ca),
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}
	client = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "alice").Pair}, RootCAs: certtest.Pool(ca), ServerName: "localhost",
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}
	return server, client
}

// named is a service that answers with the common name of the caller's certificate.
type named struct{ testService }

func (*named) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, errors.New("no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || p.Addr == nil || p.LocalAddr == nil {
		return nil, errors.New("no certificate")
	}
	return &pb.SimpleResponse{Username: info.State.VerifiedChains[0][0].Subject.CommonName}, nil
}

// wrapped is a connection that is wrapped before the server gets it.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

type wrapping struct{ net.Listener }

func (w wrapping) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wrapped{c}, nil
}

// The interop cases pass with TLS 1.2 and 1.3 and a client certificate, whether the server performs
// the TLS handshake or its listener does.
func TestTLS(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, outside := range []bool{false, true} {
			t.Run(tls.VersionName(version), func(t *testing.T) {
				forServer, forClient := certificates(t)
				forServer.MaxVersion = version
				cfg := config()
				cfg.Credentials = credentials.NewTLS(forServer)
				address := serveOn(t, cfg, &testService{}, outside)
				for name, run := range interopCases() {
					t.Run(name, func(t *testing.T) {
						conn := dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(forClient)))
						run(t, conn, pb.NewTestServiceClient(conn))
					})
				}
			})
		}
	}
}

// serveOn serves a service; if outside is set, the listener wraps the connections before the server gets them.
func serveOn(t testing.TB, cfg grpcserver.Config, service pb.TestServiceServer, outside bool) (address string) {
	t.Helper()
	s, err := grpcserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, service)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if outside {
		l = wrapping{grpcserver.Listener(l)}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })
	return l.Addr().String()
}

// Handlers see the caller's certificate. A client without a certificate is refused.
func TestClientCertificate(t *testing.T) {
	forServer, forClient := certificates(t)
	cfg := config()
	cfg.Credentials = credentials.NewTLS(forServer)
	address := serveOn(t, cfg, &named{}, false)
	r, err := pb.NewTestServiceClient(dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(forClient)))).UnaryCall(t.Context(), new(pb.SimpleRequest))
	if err != nil || r.GetUsername() != "alice" {
		t.Errorf("%v, %v", r, err)
	}
	forClient.Certificates = nil
	_, err = pb.NewTestServiceClient(dial(t, address, grpc.WithTransportCredentials(credentials.NewTLS(forClient)))).UnaryCall(t.Context(), new(pb.SimpleRequest))
	if err == nil {
		t.Error("a client without a certificate was served")
	}
}

// A client that reads late gets all bytes in order, with and without TLS: bytes that the kernel did
// not accept at first follow later.
func TestLateReader(t *testing.T) {
	forServer, forClient := certificates(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			if secure {
				cfg.Credentials = credentials.NewTLS(forServer)
			}
			address := serveOn(t, cfg, &testService{}, secure)
			tcp, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			c := tcp
			if secure {
				c = tls.Client(tcp, forClient)
			}
			r := newRaw(t, c)
			r.greet(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			r.must(r.WriteWindowUpdate(0, 1<<30))
			for id := uint32(1); id < 10; id += 2 {
				r.open(id, false, call(duplexMethod)...)
				r.must(r.WriteData(id, true, ask(2<<20, 2<<20)))
			}
			got, ended := make(map[uint32]int), 0
			for ended < 5 {
				switch f := r.next().(type) {
				case *http2.DataFrame:
					got[f.StreamID] += len(f.Data())
				case *http2.MetaHeadersFrame:
					if f.StreamEnded() {
						ended++
					}
				}
			}
			for id, n := range got {
				if n != 2*(2<<20+5+10) { // message header, and the two length prefixes of the proto
					t.Errorf("stream %d: %d bytes", id, n)
				}
			}
		})
	}
}

// inverting transforms the bytes of a connection. The server cannot bypass it, because it has no
// NetConn.
type inverting struct{ net.Conn }

func (c inverting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	invert(p[:n])
	return n, err
}

func (c inverting) Write(p []byte) (int, error) {
	sealed := bytes.Clone(p)
	invert(sealed)
	return c.Conn.Write(sealed)
}

func invert(p []byte) {
	for i := range p {
		p[i] = ^p[i]
	}
}

type invertingCredentials struct {
	credentials.TransportCredentials
}

func (c invertingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return inverting{conn}, info, err
}

// Credentials other than TLS may transform the bytes, so all bytes go through their connection.
func TestCredentialsThatSeal(t *testing.T) {
	cfg := config()
	cfg.Credentials = invertingCredentials{cfg.Credentials}
	address, _ := serve(t, cfg)
	conn := dial(t, address, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return inverting{c}, err
	}))
	got, err := pb.NewTestServiceClient(conn).UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 1 << 20})
	if err != nil || len(got.GetPayload().GetBody()) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got.GetPayload().GetBody()), err)
	}
}
