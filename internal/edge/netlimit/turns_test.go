package netlimit_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/fair"
)

// shaking is a connection during its handshake. It announces each of its reads.
type shaking struct {
	t              *testing.T
	client, server net.Conn
	reads          chan error
}

// dialFrom connects from the given address.
func (p *port) dialFrom(ip net.IP) *shaking {
	p.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
	client, err := d.DialContext(p.t.Context(), "tcp", p.l.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = client.Close() })
	server, err := p.l.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = server.Close() })
	return &shaking{p.t, client, server, make(chan error, 1)}
}

// hello makes the client send a byte, and the server begin to read it.
func (s *shaking) hello() {
	s.t.Helper()
	s.read()
	if _, err := s.client.Write([]byte("x")); err != nil {
		s.t.Fatal(err)
	}
}

// read starts a read in the background.
func (s *shaking) read() {
	go func() {
		_, err := s.server.Read(make([]byte, 1))
		s.reads <- err
	}()
}

// proceeds waits until the started read has returned.
func (s *shaking) proceeds() {
	s.t.Helper()
	select {
	case err := <-s.reads:
		if err != nil {
			s.t.Error(err)
		}
	case <-time.After(time.Minute):
		s.t.Fatal("the handshake does not continue")
	}
}

// waits returns once n handshakes have had to wait.
func (p *port) waits(n int64) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); p.Stats().Waits < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%d handshakes had to wait, want %d", p.Stats().Waits, n)
		}
	}
}

func turns(t *testing.T) *port {
	return listen(t, netlimit.Config{Port: "client", Max: 100, MaxPending: 100, Turns: netlimit.NewTurns(1)})
}

func home(n byte) net.IP { return net.IPv4(127, 0, 0, n) }

// Addresses take turns: many handshakes of one address delay a handshake of another by only one. A
// handshake that has begun takes precedence over new ones.
func TestHandshakesTakeTurns(t *testing.T) {
	p := turns(t)
	first := p.dialFrom(home(2))
	first.hello()
	first.proceeds() // and holds its turn
	var queue []*shaking
	for i, from := range []byte{2, 2, 2, 3} {
		s := p.dialFrom(home(from))
		s.hello()
		p.waits(int64(i + 1))
		queue = append(queue, s)
	}
	order := []*shaking{queue[0], queue[3], queue[1], queue[2]}
	first.read() // returns the turn: the client has to answer
	order[0].proceeds()
	if _, err := first.client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	p.waits(5)
	order[0].read()
	first.proceeds()
	for _, s := range order[1:] {
		first.read()
		s.proceeds()
		first = s
	}
}

// A connection that is closed releases its turn and its place in the queue.
func TestClosedConnectionsGiveTheirTurnBack(t *testing.T) {
	p := turns(t)
	all := []*shaking{p.dialFrom(home(2)), p.dialFrom(home(2)), p.dialFrom(home(2))}
	all[0].hello()
	all[0].proceeds()
	for i, s := range all[1:] {
		s.hello()
		p.waits(int64(i + 1))
	}
	_ = all[1].server.Close()
	<-all[1].reads // a closed connection does not wait
	_ = all[0].server.Close()
	all[2].proceeds()
}

// After its handshake a connection needs no turn, even if it is wrapped.
func TestNoTurnsAfterTheHandshake(t *testing.T) {
	for name, end := range map[string]func(*shaking){
		"shaken":  func(s *shaking) { netlimit.Shaken(wrapped{wrapped{s.server}}) },
		"settled": func(s *shaking) { _ = s.server.SetDeadline(time.Time{}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := turns(t)
			done, computes := p.dialFrom(home(2)), p.dialFrom(home(2))
			done.hello()
			done.proceeds()
			end(done)
			computes.hello()
			computes.proceeds()
			done.hello()
			done.proceeds()
			if s := p.Stats(); s.Waits != 0 {
				t.Errorf("%d handshakes had to wait, want 0", s.Waits)
			}
			netlimit.Shaken(computes.client) // has no effect: the listener has not accepted it
		})
	}
}

// A handshake also takes one of the turns of large work. It releases that turn when its client has
// to answer, when the handshake is over, and when the connection is closed.
func TestHandshakesShareTheTurnsOfLargeWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one turn at a time
	large := fair.NewTurns()
	p := listen(t, netlimit.Config{Port: "client", Max: 100, MaxPending: 100, Turns: netlimit.TurnsOfNode(large)})
	figures := func(taken, waiting int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			was, waited := large.Figures()
			if was == taken && waited == waiting {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d turns are in use and %d requests wait, want %d and %d", was, waited, taken, waiting)
			}
		}
	}
	take := func() func() {
		t.Helper()
		leave, err := large.Take(t.Context(), "a list")
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	s := p.dialFrom(home(2))
	leave := take()
	s.hello()
	figures(1, 1)
	select {
	case <-s.reads:
		t.Fatal("the handshake runs without a turn of large work")
	default:
	}
	leave()
	s.proceeds()
	figures(1, 0)
	s.hello() // the client has to answer
	s.proceeds()
	netlimit.Shaken(s.server)
	figures(0, 0)

	leave = take()
	closed := p.dialFrom(home(2))
	closed.hello()
	figures(1, 1)
	_ = closed.server.Close()
	leave()
	<-closed.reads
	figures(0, 0)
}

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }
