package membership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network is a network in memory, for tests: packets arrive at once, or get
// lost, and any pair of nodes can be cut. It has no goroutine and no socket, so
// it works on fake time (testing/synctest).
type Network struct {
	mu    sync.Mutex
	rng   *rand.Rand               // guarded by mu
	loss  float64                  // guarded by mu
	cut   map[[2]string]bool       // from, to; guarded by mu
	nodes map[string]*memorySocket // by address; guarded by mu
	bytes atomic.Int64
}

// Bytes returns how many bytes were sent so far, packets and streams.
func (n *Network) Bytes() int64 { return n.bytes.Load() }

// countedPipe counts the bytes of both directions.
type countedPipe struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedPipe) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err //nolint:wrapcheck // as the pipe
}

func (c countedPipe) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err //nolint:wrapcheck // as the pipe
}

// NewNetwork returns a network without loss. Later losses depend on seed, and
// on the order in which packets are sent.
func NewNetwork(seed uint64) *Network {
	return &Network{
		rng:   rand.New(rand.NewPCG(seed, 0)),
		cut:   make(map[[2]string]bool),
		nodes: make(map[string]*memorySocket),
	}
}

// Transport returns the transport of the node at addr, an IP:port. Its shutdown
// frees the address.
func (n *Network) Transport(addr string) Transport {
	s := &memorySocket{
		net:     n,
		addr:    memoryAddr(addr),
		packets: make(chan *memberlist.Packet, packetQueue),
		streams: make(chan net.Conn, streamQueue),
		closed:  make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[addr] = s
	return s
}

// SetLoss sets the probability p, from 0 to 1, that a packet is lost. Streams
// are not affected: TCP would repeat.
func (n *Network) SetLoss(p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = p
}

// CutOneWay drops packets and streams from one node to another.
func (n *Network) CutOneWay(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{from, to}] = true
}

// Cut drops packets and streams between a and b.
func (n *Network) Cut(a, b string) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// Partition cuts each of left from each of right.
func (n *Network) Partition(left, right []string) {
	for _, l := range left {
		for _, r := range right {
			n.Cut(l, r)
		}
	}
}

// Mend ends the cuts between a and b, in both directions.
func (n *Network) Mend(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, [2]string{a, b})
	delete(n.cut, [2]string{b, a})
}

// Heal ends all cuts and all loss.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	n.loss = 0
}

// Queue lengths of a socket. Excess packets are dropped, excess streams refused.
const (
	packetQueue = 256
	streamQueue = 16
)

var (
	errNetClosed = errors.New("the socket is closed")
	errRefused   = errors.New("connection refused")
)

// memorySocket is a node's end of a Network.
type memorySocket struct {
	net     *Network
	addr    memoryAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

type memoryAddr string

// Network returns the name of the kind of network.
func (memoryAddr) Network() string { return "memory" }

// String returns the address.
func (a memoryAddr) String() string { return string(a) }

// FinalAdvertiseAddr returns the socket's address.
func (s *memorySocket) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(string(s.addr))
	if err != nil {
		return nil, 0, fmt.Errorf("address %s: %w", s.addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	ip := net.ParseIP(host)
	if err != nil || ip == nil {
		return nil, 0, fmt.Errorf("address %s is not IP:port", s.addr)
	}
	if ip4 := ip.To4(); ip4 != nil {
		ip = ip4
	}
	return ip, int(n), nil
}

// WriteTo sends a packet, which may get lost.
func (s *memorySocket) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	select {
	case <-s.closed:
		return now, errNetClosed
	default:
	}
	s.net.bytes.Add(int64(len(b)))
	s.net.mu.Lock()
	to := s.net.nodes[addr]
	lost := s.net.loss > 0 && s.net.rng.Float64() < s.net.loss
	cut := s.net.cut[[2]string{string(s.addr), addr}]
	s.net.mu.Unlock()
	if to == nil || lost || cut {
		return now, nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: s.addr, Timestamp: now}
	select {
	case to.packets <- p:
	default: // full: dropped, as a real socket would
	}
	return now, nil
}

// WriteToAddress sends a packet, which may get lost.
func (s *memorySocket) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, addr.Addr)
}

// PacketCh returns the incoming packets.
func (s *memorySocket) PacketCh() <-chan *memberlist.Packet { return s.packets }

// DialTimeout opens a stream. It fails after timeout if the connection is cut,
// and at once if no process listens.
func (s *memorySocket) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	s.net.mu.Lock()
	to := s.net.nodes[addr]
	cut := s.net.cut[[2]string{string(s.addr), addr}] || s.net.cut[[2]string{addr, string(s.addr)}]
	s.net.mu.Unlock()
	if cut {
		t := time.NewTimer(timeout)
		defer t.Stop()
		select {
		case <-t.C:
			return nil, fmt.Errorf("dial %s: %w", addr, context.DeadlineExceeded)
		case <-s.closed:
			return nil, fmt.Errorf("dial %s: %w", addr, errNetClosed)
		}
	}
	if to == nil {
		return nil, fmt.Errorf("dial %s: %w", addr, errRefused)
	}
	near, far := net.Pipe()
	select {
	case <-to.closed:
	case <-s.closed:
	default:
		select {
		case to.streams <- far:
			return countedPipe{near, &s.net.bytes}, nil
		default: // the backlog is full
		}
	}
	return nil, fmt.Errorf("dial %s: %w", addr, errRefused)
}

// DialAddressTimeout opens a stream.
func (s *memorySocket) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return s.DialTimeout(addr.Addr, timeout)
}

// StreamCh returns the incoming streams.
func (s *memorySocket) StreamCh() <-chan net.Conn { return s.streams }

// IngestStream adds a stream to the incoming ones.
func (s *memorySocket) IngestStream(conn net.Conn) error {
	select {
	case s.streams <- conn:
		return nil
	case <-s.closed:
		return errNetClosed
	}
}

// Shutdown frees the address and closes the streams that were not accepted.
func (s *memorySocket) Shutdown() error {
	s.once.Do(func() {
		s.net.mu.Lock()
		if s.net.nodes[string(s.addr)] == s {
			delete(s.net.nodes, string(s.addr))
		}
		s.net.mu.Unlock()
		close(s.closed)
		for {
			select {
			case c := <-s.streams:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}
