package lifecycle

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// service is the client Service: one address for the ready pods. A connection stays with its pod,
// even if the pod is no longer ready.
type service struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string   // guarded by mu; host:port
	conns     []net.Conn // guarded by mu
}

func newService(t *testing.T, address string) *service {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.connect(from) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		running.Wait()
	})
	return s
}

// connect joins a connection to a pod, until either side closes it.
func (s *service) connect(from net.Conn) {
	defer from.Close()
	s.mu.Lock()
	to := ""
	if len(s.endpoints) > 0 {
		to = s.endpoints[rand.IntN(len(s.endpoints))]
	}
	s.mu.Unlock()
	if to == "" {
		return // as without a listener
	}
	pod, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer pod.Close()
	s.mu.Lock()
	s.conns = append(s.conns, from, pod)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(pod, from) // either side may close
		_ = pod.Close()
	}()
	_, _ = io.Copy(from, pod)
	_ = from.Close()
	<-done
}

// set sets its pods.
func (s *service) set(endpoints []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = endpoints
}
