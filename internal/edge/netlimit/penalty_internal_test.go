package netlimit

import (
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func addressOf(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n)))), 32)
}

// An address with a penalty opens connections at a bounded rate until the penalty ends. Other
// addresses are not delayed.
func TestPenalties(t *testing.T) {
	var p penalties
	now := time.Unix(1000, 0)
	expect := func(of int, want time.Duration, wantOK bool) {
		t.Helper()
		if wait, ok := p.enter(addressOf(of), now); wait != want || ok != wantOK {
			t.Errorf("address %d waits %v, %v; want %v, %v", of, wait, ok, want, wantOK)
		}
	}
	expect(1, 0, true)
	p.punish(addressOf(1), now)
	for i := range penaltyQueue {
		expect(1, time.Duration(i)*penaltyPace, true)
	}
	expect(1, 0, false)
	expect(2, 0, true)
	now = now.Add(penaltyPace)
	expect(1, (penaltyQueue-1)*penaltyPace, true)
	now = now.Add(penaltyTime - 2*penaltyPace)
	p.punish(addressOf(1), now) // the penalty continues
	expect(1, 0, true)
	now = now.Add(penaltyTime - 1)
	expect(1, 0, true)
	expect(1, penaltyPace, true)
	now = now.Add(1)
	expect(1, 0, true)
	expect(1, 0, true)
	if len(p.of) != 0 || p.list.Len() != 0 {
		t.Errorf("%d addresses are kept after the penalties ended", len(p.of))
	}
}

// from is a connection with the given remote address.
type from struct{ net.Conn }

func (from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }

// The second connection after a flood waits for its turn, but not after it is closed.
func TestConnectionsWaitForTheirPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Max: 10, MaxPending: 10, Logger: slog.New(slog.DiscardHandler)})
		admit := func() *Conn {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = there.Close() })
			c, ok := l.Admit(from{here})
			if !ok {
				t.Fatal("refused")
			}
			return c
		}
		flooded := admit()
		Punish(flooded)
		all := []*Conn{flooded, admit(), admit(), admit()}
		began, waited := time.Now(), make(chan time.Duration)
		for _, c := range all[2:] {
			go func() {
				_, _ = c.Read(make([]byte, 1)) // until it is closed
				waited <- time.Since(began)
			}()
		}
		synctest.Wait() // both connections wait
		_ = all[3].Close()
		if d := <-waited; d != 0 {
			t.Errorf("a closed connection waited %v", d)
		}
		_ = all[2].Conn.Close() // closes the socket only: the listener does not notice
		if d := <-waited; d != penaltyPace {
			t.Errorf("a connection waited %v, want %v", d, penaltyPace)
		}
		for _, c := range all {
			_ = c.Close()
		}
	})
}

// The number of addresses with a penalty is bounded: beyond it, the oldest penalty ends early.
func TestPenaltiesAreBounded(t *testing.T) {
	var p penalties
	now := time.Unix(1000, 0)
	for n := range maxPenalties {
		p.punish(addressOf(n), now)
	}
	p.punish(addressOf(0), now)
	p.punish(addressOf(maxPenalties), now)
	for n, want := range map[int]time.Duration{0: penaltyPace, 1: 0, 2: penaltyPace, maxPenalties: penaltyPace} {
		p.enter(addressOf(n), now)
		if wait, _ := p.enter(addressOf(n), now); wait != want {
			t.Errorf("address %d waits %v, want %v", n, wait, want)
		}
	}
	if len(p.of) != maxPenalties || p.list.Len() != maxPenalties {
		t.Errorf("the map has %d addresses, and the list %d", len(p.of), p.list.Len())
	}
}
