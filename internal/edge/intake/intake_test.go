package intake_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/intake"
)

const maxMessage = 2 << 20

// port is a gRPC server on whose connections the intake parses requests.
type port struct {
	t      *testing.T
	addr   string
	budget *budget.Budget
}

func listen(t *testing.T, limit int64) *port {
	t.Helper()
	p := &port{t: t, budget: budget.New(limit)}
	in := intake.New(p.budget, maxMessage, slog.New(slog.DiscardHandler))
	s := grpc.NewServer(grpc.Creds(in.Credentials(insecure.NewCredentials())), grpc.MaxRecvMsgSize(maxMessage))
	healthgrpc.RegisterHealthServer(s, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if held := p.budget.Held(budget.Requests); held != 0 {
			t.Errorf("%d bytes are still held after the server stopped", held)
		}
	})
	return p
}

// serves makes an ordinary call with a request of size bytes.
func (p *port) serves(size int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{Service: string(make([]byte, size))}); err == nil || ctx.Err() != nil {
		p.t.Fatalf("a request of %d bytes: %v", size, err)
	}
}

// raw is a connection to which a test writes HTTP/2 frames.
type raw struct {
	*http2.Framer
	conn net.Conn
	out  bytes.Buffer
	next uint32
}

func (p *port) raw() *raw { return p.rawFrom("127.0.0.1") }

func (p *port) rawFrom(ip string) *raw {
	p.t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext(p.t.Context(), "tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	r := &raw{conn: c, next: 1}
	r.Framer = http2.NewFramer(&r.out, c)
	r.out.WriteString(http2.ClientPreface)
	_ = r.WriteSettings() // to a buffer
	return r
}

// begin writes a call with the header of a message of size bytes, but only the first bytes of the
// message.
func (r *raw) begin(size, there int) uint32 {
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", healthgrpc.Health_Check_FullMethodName}, {":authority", "node"}, {"content-type", "application/grpc"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to a buffer
	}
	id := r.next
	r.next += 2
	_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true}) // to a buffer
	for b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, there)...); len(b) > 0; {
		n := min(len(b), 16<<10)
		_ = r.WriteData(id, false, b[:n]) // to a buffer
		b = b[n:]
	}
	return id
}

// send sends the buffered frames. The other side may have closed the connection.
func (r *raw) send() { _, _ = r.out.WriteTo(r.conn) }

// ended waits until the other side closes the connection.
func (r *raw) ended(t *testing.T) {
	t.Helper()
	_ = r.conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, r.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

// holds waits until at least so many bytes are held.
func (p *port) holds(least int64) {
	p.t.Helper()
	for limit := time.Now().Add(time.Minute); p.budget.Held(budget.Requests) < least; {
		if time.Now().After(limit) {
			p.t.Fatalf("%d bytes are held", p.budget.Held(budget.Requests))
		}
		time.Sleep(time.Millisecond)
	}
}

// Requests that never end hold no more than their share and do not block other requests. Their
// connections are closed, the oldest first.
func TestRequestsThatNeverEndAreBounded(t *testing.T) {
	t.Parallel()
	const limit, part = 64 << 20, 4 << 20 // all requests have one address
	p := listen(t, limit)
	first := p.raw()
	first.begin(1<<20, 60_000)
	first.begin(1<<20, 60_000)
	first.send()
	p.holds(2 << 20)
	second := p.raw()
	second.begin(1<<20, 60_000)
	second.send()
	p.holds(3 << 20)
	p.serves(100)
	third := p.raw()
	for range 3 { // the first connection has room for two
		third.begin(1<<20, 60_000)
	}
	third.send()
	first.ended(t)
	p.serves(1 << 20)
	if held := p.budget.Held(budget.Requests); held > part {
		t.Errorf("%d bytes are held", held)
	}
}

// A large request waits for a slow one, and is served when the slow one has ended.
func TestALargeRequestWaitsForOthers(t *testing.T) {
	t.Parallel()
	p := listen(t, 8<<20) // 1 MiB of it for requests
	slow := p.raw()
	id := slow.begin(1<<20-1000, 60_000)
	slow.send()
	p.holds(1 << 19)
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.serves(1 << 20)
	}()
	p.waits()
	_ = slow.WriteData(id, true, nil) // gives the slow request up
	slow.send()
	<-served
}

// Requests of one address that never end leave half of the share to other addresses, whose requests do not wait.
func TestOneAddressLeavesRoomForRequestsOfOthers(t *testing.T) {
	t.Parallel()
	const limit, part = 32 << 20, 2 << 20
	p := listen(t, limit)
	hostile := p.rawFrom("127.0.0.2")
	for range 5 { // more than the share of all addresses
		hostile.begin(1<<20, 60_000)
	}
	hostile.send()
	p.waits()
	p.serves(1 << 20)
	if s := p.status(); s.Waited != s.Capped || s.Largest > part {
		t.Errorf("%+v", s)
	}
}

// An address that has used up its part displaces its own older requests, and none of another address.
func TestOneAddressEndsItsOwnRequests(t *testing.T) {
	t.Parallel()
	p := listen(t, 32<<20)
	slow := p.raw() // the oldest of all
	slow.begin(1<<20, 60_000)
	slow.send()
	p.holds(1 << 20)
	hostile := p.rawFrom("127.0.0.2")
	for range 3 {
		hostile.begin(1<<20, 60_000)
	}
	hostile.send()
	hostile.ended(t)
	_ = slow.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := io.Copy(io.Discard, slow.conn); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of the other address was closed: %v", err)
	}
}

// status returns the budget status of requests.
func (p *port) status() budget.Status {
	p.t.Helper()
	for _, s := range p.budget.Status() {
		if s.Use == budget.Requests {
			return s
		}
	}
	p.t.Fatal("the budget has no status of requests")
	return budget.Status{}
}

// waits returns once a request waits for bytes.
func (p *port) waits() {
	p.t.Helper()
	for limit := time.Now().Add(time.Minute); ; {
		if p.status().Waited > 0 {
			return
		}
		if time.Now().After(limit) {
			p.t.Fatal("no request waits")
		}
		time.Sleep(time.Millisecond)
	}
}

// The number of calls without a message is bounded: the connection with the oldest call is closed,
// and other connections continue.
func TestCallsThatNeverBeginAreBounded(t *testing.T) {
	t.Parallel()
	p := listen(t, 32<<20)
	one, two := p.raw(), p.raw()
	for range 5000 {
		one.begin(10, 0)
	}
	one.begin(1<<20, 20_000)
	one.send()
	p.holds(1 << 20) // so all earlier frames have been parsed
	go func() { _, _ = io.Copy(io.Discard, two.conn) }()
	for range 8000 { // the calls of both connections exceed the limit
		two.begin(10, 0)
		if two.out.Len() > 64<<10 {
			two.send()
		}
	}
	two.send()
	one.ended(t)
	p.serves(100)
}
