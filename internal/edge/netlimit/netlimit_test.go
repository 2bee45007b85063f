package netlimit_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// port is a limited listener on loopback.
type port struct {
	*netlimit.Limit
	t *testing.T
	l net.Listener
}

func listen(t *testing.T, cfg netlimit.Config) *port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &port{netlimit.New(cfg), t, nil}
	p.l = p.Listener(l)
	t.Cleanup(func() { _ = p.l.Close() })
	return p
}

// dial opens a connection and returns both ends.
func (p *port) dial() (client, server net.Conn) {
	p.t.Helper()
	client, err := net.Dial("tcp", p.l.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = client.Close() })
	defer time.AfterFunc(20*time.Second, func() { _ = p.l.Close() }).Stop() // the connection may never be accepted
	if server, err = p.l.Accept(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// ended waits until the other side closes the connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		t.Errorf("not closed: %v", err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func (p *port) expect(want netlimit.Stats) {
	p.t.Helper()
	if got := p.Stats(); got != want {
		p.t.Errorf("%+v, want %+v", got, want)
	}
}

// lines is a log that can be read while others write it.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestHalfOpenConnectionsPushOutTheirOwn(t *testing.T) {
	var log lines
	p := listen(t, netlimit.Config{Port: "client", Max: 2, MaxPending: 2, Advice: "raise it", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	honest, server := p.dial()
	if err := errors.Join(server.SetDeadline(time.Now().Add(time.Hour)), server.SetDeadline(time.Time{})); err != nil {
		t.Fatal(err)
	}
	first, _ := p.dial()
	p.dial()
	p.expect(netlimit.Stats{Port: "client", Settled: 1, Pending: 2})
	_, late := p.dial()
	ended(t, first)
	p.expect(netlimit.Stats{Port: "client", Settled: 1, Pending: 2, Dropped: 1})
	if err := late.SetDeadline(time.Time{}); err != nil {
		t.Error(err)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(honest, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	// Both slots are used: further clients are refused until one disconnects.
	for range 3 {
		away, err := net.Dial("tcp", p.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer away.Close()
		go func() { _, _ = p.l.Accept() }()
		ended(t, away)
	}
	p.expect(netlimit.Stats{Port: "client", Settled: 2, Pending: 1, Dropped: 1, Refused: 3})
	for range 2 {
		_ = server.Close()
	}
	p.expect(netlimit.Stats{Port: "client", Settled: 1, Pending: 1, Dropped: 1, Refused: 3})
	if n := strings.Count(log.String(), "connection refused: too many connections"); n != 1 || !strings.Contains(log.String(), "raise it") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

func TestMetrics(t *testing.T) {
	p := listen(t, netlimit.Config{Port: "raft", Max: 1, MaxPending: 1})
	reader := metric.NewManualReader()
	if err := netlimit.Register(metric.NewMeterProvider(metric.WithReader(reader)).Meter("x"), p.Limit); err != nil {
		t.Fatal(err)
	}
	p.dial()
	_, server := p.dial()
	_ = server.SetDeadline(time.Time{})
	p.Failed(server.RemoteAddr(), io.EOF)
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, point := range d.DataPoints {
				why, _ := point.Attributes.Value("why")
				values[m.Name+" "+why.AsString()] = point.Value
			}
		case metricdata.Gauge[int64]:
			values[m.Name] = d.DataPoints[0].Value
		}
	}
	for name, want := range map[string]int64{
		"shardwatch.net.connections": 1, "shardwatch.net.pending": 0,
		"shardwatch.net.refused too_many": 0, "shardwatch.net.refused pending": 1, "shardwatch.net.refused handshake": 1,
	} {
		if got, ok := values[name]; got != want || !ok {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// The connections of one address are bounded, settled or not, so that other addresses get the rest.
func TestOneAddressDoesNotTakeAll(t *testing.T) {
	var log lines
	p := listen(t, netlimit.Config{Port: "client", Max: 10, MaxPending: 10, MaxPerAddress: 2, Advice: "raise it", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	from := func(ip string) (client, server net.Conn) {
		t.Helper()
		client, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", p.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		accepted := make(chan net.Conn, 1)
		go func() {
			c, _ := p.l.Accept()
			accepted <- c
		}()
		refused := make(chan struct{})
		go func() {
			_, _ = client.Read(make([]byte, 1))
			close(refused)
		}()
		select {
		case server = <-accepted:
			t.Cleanup(func() { _ = server.Close() })
		case <-refused:
			_ = p.l.Close() // Accept returns
			t.Fatalf("a connection from %s was refused", ip)
		}
		return client, server
	}
	_, settled := from("127.0.0.2")
	if err := settled.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, pending := from("127.0.0.2")
	third, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}).Dial("tcp", p.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	from("127.0.0.3") // Accept skips the third connection of 127.0.0.2
	ended(t, third)
	p.expect(netlimit.Stats{Port: "client", Settled: 1, Pending: 2, Refused: 1})
	if text := log.String(); !strings.Contains(text, "too many from one address") || !strings.Contains(text, "raise it") || !strings.Contains(text, "127.0.0.2") {
		t.Errorf("the log: %s", text)
	}
	for range 2 {
		_ = pending.Close() // a connection that is closed twice counts once
	}
	from("127.0.0.2")
	p.expect(netlimit.Stats{Port: "client", Settled: 1, Pending: 2, Refused: 1})
}

// Idle connections do not exclude new ones from a port for short connections: the oldest connection
// is closed.
func TestHeldConnectionsExcludeNoProbe(t *testing.T) {
	p := listen(t, netlimit.Config{Port: "http", Max: 2, MaxPending: 2, Evict: true})
	settle := func() (client net.Conn) {
		client, server := p.dial()
		server.(*netlimit.Conn).Settle() //nolint:forcetypeassert // the listener makes them
		return client
	}
	first, second := settle(), settle()
	probe := settle()
	ended(t, first)
	p.expect(netlimit.Stats{Port: "http", Settled: 2, Refused: 1})
	_ = settle()
	ended(t, second)
	_ = probe.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := probe.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the probe failed: %v", err)
	}
}

// remote is a connection with the given remote address.
type remote struct {
	net.Conn
	from net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.from }

// An IPv6 host has 2^64 addresses, which count as one. Each IPv4 address counts on its own, also on
// an IPv6 socket.
func TestANetworkOfIPv6CountsAsOneAddress(t *testing.T) {
	l := netlimit.New(netlimit.Config{Port: "client", Max: 10, MaxPending: 10, MaxPerAddress: 2, Logger: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		ip net.IP
		ok bool
	}{
		{net.ParseIP("2001:db8::1"), true},
		{net.ParseIP("2001:db8::ffff:1:1"), true},
		{net.ParseIP("2001:db8:0:0:a::2"), false},
		{net.ParseIP("2001:db8:0:1::1"), true},
		{net.ParseIP("192.0.2.1"), true}, // 16 bytes, as on an IPv6 socket
		{net.IPv4(192, 0, 2, 1).To4(), true},
		{net.IPv4(192, 0, 2, 1).To4(), false},
		{net.ParseIP("192.0.2.2"), true},
	} {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		if _, ok := l.Admit(remote{server, &net.TCPAddr{IP: c.ip, Port: 1}}); ok != c.ok {
			t.Errorf("a connection from %v: admitted %t, want %t", c.ip, ok, c.ok)
		}
	}
	if p := netlimit.NetworkOf(&net.UnixAddr{}); p.IsValid() {
		t.Errorf("a Unix socket has network %v", p)
	}
}

// Connections of one address displace only connections of that address, settled or not.
func TestAnAddressPushesOutItsOwn(t *testing.T) {
	l := netlimit.New(netlimit.Config{Port: "http", Max: 4, MaxPending: 4, MaxPerAddress: 2, Evict: true, Logger: slog.New(slog.DiscardHandler)})
	come := func(ip string) (far net.Conn, c *netlimit.Conn) {
		t.Helper()
		client, server := net.Pipe()
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		c, ok := l.Admit(remote{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}})
		if !ok {
			t.Fatalf("a connection from %s was refused", ip)
		}
		return client, c
	}
	stays := func(what string, c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	probe, settled := come("192.0.2.1")
	settled.Settle()
	waits, _ := come("192.0.2.1")
	first, _ := come("192.0.2.2")
	second, later := come("192.0.2.2")
	later.Settle()
	third, _ := come("192.0.2.2")
	ended(t, second) // the oldest settled connection
	fourth, _ := come("192.0.2.2")
	ended(t, first)
	for range 5 {
		come("192.0.2.2")
	}
	ended(t, third)
	ended(t, fourth)
	stays("another address's", probe)
	stays("another address's handshake", waits)
	if s := l.Stats(); s.Settled != 1 || s.Pending != 3 || s.Refused != 7 {
		t.Errorf("%+v", s)
	}
}

// An excess pending connection displaces the oldest pending connection of the address that has the
// most, not the handshake of another client.
func TestPendingConnectionsPushOutThoseOfTheLargestCrowd(t *testing.T) {
	p := listen(t, netlimit.Config{Port: "client", Max: 10, MaxPending: 3, Logger: slog.New(slog.DiscardHandler)})
	honest := p.dialFrom(home(3))
	flood := []*shaking{p.dialFrom(home(2)), p.dialFrom(home(2))}
	next := p.dialFrom(home(4))
	ended(t, flood[0].client)
	p.expect(netlimit.Stats{Port: "client", Pending: 3, Dropped: 1})
	for _, s := range []*shaking{honest, next, flood[1]} {
		if _, err := s.server.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(s.client, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
}
