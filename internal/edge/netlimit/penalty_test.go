package netlimit_test

import (
	"net"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// After a flood, new connections of its address are delayed, and closed if there are too many at a
// time. Other addresses are not affected.
func TestFloodsSlowDownTheirAddress(t *testing.T) {
	p := listen(t, netlimit.Config{Port: "client", Max: 100, MaxPending: 100})
	floods := p.dialFrom(home(2))
	netlimit.Punish(wrapped{floods.server})
	netlimit.Punish(floods.client) // has no effect: the listener has not accepted it
	p.dialFrom(home(2))
	slow := p.dialFrom(home(2))
	slow.hello()
	from := func(ip net.IP) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
		c, err := d.DialContext(t.Context(), "tcp", p.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	const more = 30
	for range more {
		from(home(2))
	}
	other := &shaking{t, from(home(3)), nil, make(chan error, 1)}
	for accepted := 0; other.server == nil; accepted++ {
		c, err := p.l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if c.RemoteAddr().String() == other.client.LocalAddr().String() {
			other.server = c
			if accepted == more || p.Stats().Refused == 0 {
				t.Errorf("all %d connections were accepted after a flood", more)
			}
		}
	}
	other.hello()
	other.proceeds()
	slow.proceeds()
	floods.hello() // its open connection is not delayed
	floods.proceeds()
}

// A closed connection does not wait for the penalty of its address.
func TestClosedConnectionsWaitForNoPenalty(t *testing.T) {
	p := listen(t, netlimit.Config{Port: "client", Max: 100, MaxPending: 100})
	floods := p.dialFrom(home(2))
	netlimit.Punish(floods.server)
	var all []*shaking
	for range 5 {
		s := p.dialFrom(home(2))
		s.read()
		all = append(all, s)
	}
	for _, s := range all {
		_ = s.server.Close()
		select {
		case err := <-s.reads:
			if err == nil {
				t.Error("bytes were read from a closed connection")
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits")
		}
	}
}
