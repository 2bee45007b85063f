package kubernetes_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// member is a breakable path to an etcd: for clients, a member that dies.
type member struct {
	addr, etcd string

	mu       sync.Mutex
	listener net.Listener      // nil: dead; guarded by mu
	conns    map[net.Conn]bool // both ends of all connections; guarded by mu
	tasks    sync.WaitGroup
}

// startMembers gives an etcd three addresses.
func startMembers(t *testing.T, etcd string) (members []mortal, endpoints []string) {
	t.Helper()
	for range 3 {
		m := &member{addr: freeAddr(t), etcd: strings.TrimPrefix(etcd, "http://"), conns: map[net.Conn]bool{}}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Kill)
		members, endpoints = append(members, m), append(endpoints, "http://"+m.addr)
	}
	return members, endpoints
}

// Start accepts connections.
func (m *member) Start() error {
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listener = l
	m.tasks.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // dead
			}
			to, err := net.Dial("tcp", m.etcd)
			if err != nil || !m.keep(l, from, to) {
				_ = from.Close()
				continue
			}
			m.tasks.Go(func() { pass(from, to) })
			m.tasks.Go(func() { pass(to, from) })
		}
	})
	return nil
}

// keep records a connection, unless the member has died meanwhile.
func (m *member) keep(l net.Listener, from, to net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listener != l {
		_ = to.Close()
		return false
	}
	m.conns[from], m.conns[to] = true, true
	return true
}

func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from) // either end may close
	_, _ = from.Close(), to.Close()
}

// Drain is Kill: clients get no message from a stopped member.
func (m *member) Drain() { m.Kill() }

// Kill breaks all connections and accepts no more.
func (m *member) Kill() {
	m.mu.Lock()
	if m.listener != nil {
		_ = m.listener.Close()
		m.listener = nil
	}
	for c := range m.conns {
		_ = c.Close()
	}
	clear(m.conns)
	m.mu.Unlock()
	m.tasks.Wait()
}
