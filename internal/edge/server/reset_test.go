package server_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// A request that the server resets in the middle of a message releases its bytes, although the client keeps
// the connection: without TLS, whether or not the port has to detect HTTP/2, and with TLS.
func TestAResetRequestHoldsNoBytes(t *testing.T) {
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server does not report which streams it resets")
	}
	ca := certtest.NewCA(t, "ca")
	secure := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "server").Pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	for name, c := range map[string]struct {
		tls   *tls.Config
		start func(t *testing.T, set func(*server.Config)) *running
	}{
		"plain text": {nil, func(t *testing.T, set func(*server.Config)) *running {
			return start(t, cachetest.New(), options{server: set})
		}},
		"plain text, detected": {nil, func(t *testing.T, set func(*server.Config)) *running { return startBoth(t, set) }},
		"TLS":                  {secure, func(t *testing.T, set func(*server.Config)) *running { return startBoth(t, set) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := budget.New(64 << 20)
			r := c.start(t, func(cfg *server.Config) { cfg.Budget, cfg.ClientTLS = b, c.tls })
			conn, err := net.Dial("tcp", r.clients)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(deadline)) // so that a failing test ends
			if c.tls != nil {
				conn = tls.Client(conn, &tls.Config{RootCAs: certtest.Pool(ca), ServerName: "localhost", MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})
			}
			resetInTheMiddle(t, conn, b)
		})
	}
}

// resetInTheMiddle makes the server reset a request of 1 MiB that has arrived in part.
func resetInTheMiddle(t *testing.T, conn net.Conn, b *budget.Budget) {
	t.Helper()
	const size = 1 << 20
	var out, head bytes.Buffer // the client's frames, and its headers
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, conn)
	f.AllowIllegalWrites = true
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	send := func() {
		t.Helper()
		_, err := out.WriteTo(conn)
		must(err)
	}
	must(f.WriteSettings())
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", healthgrpc.Health_Check_FullMethodName}, {":authority", "node"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		must(enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	must(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	must(f.WriteData(1, false, append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, 10_000)...)))
	send()
	testkit.Eventually(t, "the request holds its bytes", func() bool { return b.Held(budget.Requests) >= size })

	must(f.WriteWindowUpdate(1, 0)) // RFC 9113, 6.9: an increment of 0 is an error
	send()
	testkit.Eventually(t, "the request holds no bytes", func() bool { return b.Held(budget.Requests) == 0 })
	must(f.WritePing(false, [8]byte{7}))
	send()
	for {
		got, err := f.ReadFrame()
		must(err)
		switch got := got.(type) {
		case *http2.GoAwayFrame:
			t.Fatalf("GOAWAY: %v", got.ErrCode)
		case *http2.PingFrame:
			if got.IsAck() {
				return
			}
		}
	}
}
