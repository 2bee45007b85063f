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

// An address may send a burst, then waits as long as its bytes take at its rate, by whatever
// connections they come. Others do not wait for it.
func TestAnAddressSendsAtItsRate(t *testing.T) {
	var p paces
	now := time.Now()
	const rate = 1000 // a burst is 50 bytes
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
		if got := p.count(network(x.from), x.n, rate, now); got != x.want {
			t.Errorf("%+v: waits %v", x, got)
		}
	}
}

// So many addresses are counted and no more, while each has sent something of late.
func TestPacesAreBounded(t *testing.T) {
	var p paces
	now := time.Now()
	for n := range maxPaces {
		p.count(network(n), 100, 1000, now)
	}
	if wait := p.count(network(maxPaces), 100, 1000, now); wait != 0 || len(p.paid) != maxPaces {
		t.Errorf("an additional one of %d waits %v", len(p.paid), wait)
	}
	now = now.Add(time.Minute)
	if wait := p.count(network(maxPaces), 100, 1000, now); wait != 50*time.Millisecond || len(p.paid) != 1 {
		t.Errorf("a minute later, one of %d waits %v", len(p.paid), wait)
	}
}

// What a connection sends after its handshake is read at the pace of its address.
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
