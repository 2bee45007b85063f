package etcdtest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards connections to an etcd. It can be cut, or held: while it is held,
// no bytes pass, and none are lost.
type Proxy struct {
	target  string
	l       net.Listener
	running sync.WaitGroup

	mu    sync.Mutex
	cut   bool                  // guarded by mu
	held  chan struct{}         // closed by LetGo; nil: not held; guarded by mu
	conns map[net.Conn]struct{} // guarded by mu; both halves of each
}

// NewProxy returns a proxy of the etcd at target, host:port, until the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: target, l: l, conns: make(map[net.Conn]struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Endpoint returns the address of the proxy, as host:port.
func (p *Proxy) Endpoint() string { return p.l.Addr().String() }

// Cut breaks all connections, and every new connection until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.letGoLocked()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Hold stops the bytes of all connections until LetGo.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// LetGo ends Hold.
func (p *Proxy) LetGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letGoLocked()
}

func (p *Proxy) letGoLocked() {
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// gate reads the bytes to forward.
type gate struct {
	net.Conn
	p *Proxy
}

// Read implements io.Reader. It holds the bytes back while the proxy is held.
func (g gate) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.p.mu.Lock()
	held := g.p.held
	g.p.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// Heal ends Cut.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return // closed
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(in, out) {
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		var halves sync.WaitGroup
		for _, half := range [][2]net.Conn{{in, out}, {out, in}} {
			halves.Go(func() {
				_, _ = io.Copy(half[0], gate{half[1], p}) // its end ends both
				_ = in.Close()
				_ = out.Close()
			})
		}
		p.running.Go(func() {
			halves.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, in)
			delete(p.conns, out)
		})
	}
}

// keep registers a connection, unless the proxy is cut.
func (p *Proxy) keep(in, out net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	p.conns[in], p.conns[out] = struct{}{}, struct{}{}
	return true
}
