package membership

import (
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

// observerName is the name of the observer. No node can have it.
const observerName = "\x00observer"

// errObserver ends an exchange with the observer before anything is merged.
// Both ends return it.
var errObserver = errors.New("nothing to merge: only an observer")

// observer reads a memberlist's view of all members, with their states. It is
// itself a memberlist outside of any cluster: it sends the request of a joining
// node over a pipe, and takes the answer without merging it.
type observer struct {
	ml   *memberlist.Memberlist
	seen []*memberlist.Node // owned by the caller of look
}

// newObserver returns an observer of the memberlist that subject belongs to.
// keys must be the keys of that memberlist.
func newObserver(subject Transport, keys *memberlist.Keyring, timeout time.Duration, logger *log.Logger) (*observer, error) {
	o := &observer{}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = observerName
	cfg.Transport = &pipeTransport{subject: subject}
	cfg.Keyring = keys
	cfg.Logger = logger
	cfg.Merge = o
	cfg.TCPTimeout = timeout
	cfg.EnableCompression = false
	cfg.ProbeInterval, cfg.GossipInterval, cfg.PushPullInterval = 0, 0, 0 // no periodic work
	cfg.QueueCheckInterval = 24 * time.Hour
	ml, err := memberlist.Create(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the observer of gossip: %w", err)
	}
	o.ml = ml
	return o, nil
}

// look returns all members that the subject knows. It must not be called after
// the subject's shutdown, nor concurrently.
func (o *observer) look() ([]*memberlist.Node, error) {
	o.seen = nil
	_, err := o.ml.Join([]string{"127.0.0.1:1"})
	if o.seen == nil {
		return nil, fmt.Errorf("look at the gossip's view: %w", err)
	}
	return o.seen, nil
}

// NotifyMerge receives the subject's view. memberlist calls it within look.
func (o *observer) NotifyMerge(nodes []*memberlist.Node) error {
	o.seen = nodes
	return errObserver
}

func (o *observer) close() { _ = o.ml.Shutdown() }

// isObserver reports whether the list of a joining node is an observer's.
func isObserver(nodes []*memberlist.Node) bool {
	return len(nodes) == 1 && nodes[0].Name == observerName
}

// pipeTransport dials the same memberlist at every address, and receives no packets.
type pipeTransport struct{ subject Transport }

// FinalAdvertiseAddr returns an unused address.
func (*pipeTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IPv4(127, 0, 0, 1).To4(), 1, nil
}

// WriteTo drops the packet.
func (*pipeTransport) WriteTo([]byte, string) (time.Time, error) { return time.Now(), nil }

// WriteToAddress drops the packet.
func (*pipeTransport) WriteToAddress([]byte, memberlist.Address) (time.Time, error) {
	return time.Now(), nil
}

// PacketCh returns nothing.
func (*pipeTransport) PacketCh() <-chan *memberlist.Packet { return nil }

// DialTimeout returns one end of a pipe, and the subject the other.
func (t *pipeTransport) DialTimeout(string, time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	if err := t.subject.IngestStream(far); err != nil {
		return nil, fmt.Errorf("hand over a stream: %w", err)
	}
	return near, nil
}

// DialAddressTimeout is DialTimeout.
func (t *pipeTransport) DialAddressTimeout(_ memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout("", timeout)
}

// StreamCh returns nothing.
func (*pipeTransport) StreamCh() <-chan net.Conn { return nil }

// Shutdown does nothing.
func (*pipeTransport) Shutdown() error { return nil }
