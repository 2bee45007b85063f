package netlimit

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func network(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
}

// An address may send a burst. Beyond it, the bytes of all its connections are delayed to its rate.
// Other addresses are not delayed.
func TestAnAddressSendsAtItsRate(t *testing.T) {
	p := paces{burst: paceBurst}
	now := time.Now()
	const rate = 1000 // the burst is 50 bytes
	for _, x := range []struct {
		from, n int
		after   time.Duration
		want    time.Duration
	}{
		{from: 1, n: 50, want: 0},
		{from: 1, n: 100, want: 100 * time.Millisecond},
		{from: 2, n: 30, want: 0},
		{from: 1, n: 100, after: 60 * time.Millisecond, want: 140 * time.Millisecond},
		{from: 1, n: 50, after: time.Hour, want: 0},
		{from: 1, n: 1, want: time.Millisecond},
	} {
		now = now.Add(x.after)
		if got, ok := p.count(network(x.from), x.n, rate, time.Hour, now); got != x.want || !ok {
			t.Errorf("%+v: waits %v, %v", x, got, ok)
		}
	}
}

// The number of counted addresses is bounded, even if all of them have sent something recently.
func TestPacesAreBounded(t *testing.T) {
	p := paces{burst: paceBurst}
	now := time.Now()
	for n := range maxPaces {
		p.count(network(n), 100, 1000, time.Hour, now)
	}
	if wait, _ := p.count(network(maxPaces), 100, 1000, time.Hour, now); wait != 0 || len(p.paid) != maxPaces {
		t.Errorf("with %d addresses, an additional one waits %v", len(p.paid), wait)
	}
	now = now.Add(time.Minute)
	if wait, _ := p.count(network(maxPaces), 100, 1000, time.Hour, now); wait != 50*time.Millisecond || len(p.paid) != 1 {
		t.Errorf("a minute later, with %d addresses, one waits %v", len(p.paid), wait)
	}
}

// After the handshake, the bytes of a connection are read at the rate of its address.
func TestConnectionsAreReadAtTheirPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 4 << 20, 1 << 20
		var log bytes.Buffer
		l := New(Config{Port: "client", Max: 1, MaxPending: 1, BytesPerSecond: rate, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		client, server := net.Pipe()
		c, ok := l.Admit(server)
		if !ok {
			t.Fatal("refused")
		}
		defer c.Close()
		c.Settle()
		go func() {
			_, _ = client.Write(make([]byte, size))
			_ = client.Close()
		}()
		began := time.Now()
		if n, err := io.Copy(io.Discard, c); n != size || err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if took, want := time.Since(began), size/rate*time.Second-paceBurst; took != want {
			t.Errorf("read in %v, want %v", took, want)
		}
		const steps, free = size / paceStep, int(paceBurst * rate / time.Second / paceStep)
		if got := l.Stats().Paced; got != int64(steps-free) {
			t.Errorf("%d of %d reads waited, want all but %d", got, steps, free)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "--address-rate") {
			t.Errorf("logged %s", log.String())
		}
	})
}

// arrival is a connection with the given remote address.
type arrival struct {
	net.Conn
	from byte
}

func (a arrival) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, a.from)} }

// Beyond a burst, the handshakes of an address begin at its rate. Excess connections are closed at once
// and do not delay the waiting ones. Other addresses do not wait.
func TestHandshakesOfAnAddressArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst, wait = 8, 2, 5 * 8
		var log bytes.Buffer
		l := New(Config{Port: "client", Max: 100, MaxPending: 100, HandshakesPerSecond: rate, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		read := make(chan time.Duration, 100)
		arrive := func(from byte) bool {
			client, server := net.Pipe()
			c, ok := l.Admit(arrival{server, from})
			if !ok {
				return false
			}
			go func() { _, _ = client.Write([]byte("hello")) }()
			go func() {
				_, _ = c.Read(make([]byte, 5))
				read <- time.Since(began)
				_ = c.Close()
			}()
			return true
		}
		for i := range 2 * wait {
			if ok := arrive(1); ok != (i < burst+wait) {
				t.Fatalf("connection %d is admitted: %v", i, ok)
			}
		}
		if !arrive(2) || <-read != 0 {
			t.Error("a handshake of another address waits")
		}
		for i := range burst + wait {
			if at, want := <-read, max(0, time.Duration(i-burst+1)*time.Second/rate); at != want {
				t.Errorf("handshake %d begins after %v, want %v", i, at, want)
			}
		}
		if s := l.Stats(); s.Waits != wait || s.Refused != 2*wait-burst-wait {
			t.Errorf("%+v", s)
		}
		if want := time.Duration(wait+1) * time.Second / rate; !arrive(1) || <-read != want {
			t.Errorf("the next handshake does not begin after %v: refused connections delayed it", want)
		}
		if !strings.Contains(log.String(), "too many TLS handshakes from one address") {
			t.Errorf("logged %s", log.String())
		}
	})
}
