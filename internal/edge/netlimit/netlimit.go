package netlimit

import (
	"container/list"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Limit.
type Config struct {
	// Port names the port of the connections, in logs and as a label.
	Port string
	// Max bounds the settled connections. At the bound, new connections are
	// closed at once; pending connections still settle.
	Max int
	// Evict closes an old connection instead of a new one: the oldest settled connection at
	// Max, and the oldest connection of an address at MaxPerAddress. Use it where connections
	// are short, so that connections that are held open do not lock out probes.
	Evict bool
	// MaxPerAddress bounds the connections, settled or pending, of one address: excess
	// connections are closed at once. 0: any number. All addresses of a NetworkOf count as one.
	MaxPerAddress int
	// MaxPending bounds the pending connections. An excess connection closes the oldest of the
	// address with the most pending connections.
	MaxPending int
	// BytesPerSecond bounds the bytes that the clients of one address send. Connections that
	// exceed it wait. 0: any number.
	BytesPerSecond int64
	// HandshakesPerSecond bounds the new connections of one address, after a burst of a quarter of it.
	// Further connections wait up to 5 s before their first byte is read; excess connections are closed
	// at once. 0: any number.
	HandshakesPerSecond int
	// Turns bound the handshakes that compute at a time; nil: no bound.
	Turns *Turns
	// Advice is logged with refused connections; it may be empty.
	Advice string
	// Logger logs refusals, at most once per interval and kind.
	Logger *slog.Logger
}

// Limit bounds the connections of one port. Create it with New.
type Limit struct {
	cfg                                    Config
	refused, dropped, failed, waits, paced atomic.Int64
	penalties                              penalties
	paces, shakes                          paces // of bytes; of handshakes

	mu      sync.Mutex
	settled list.List            // of *Conn, the oldest first; guarded by mu
	pending list.List            // of *Conn, the oldest first; guarded by mu
	from    map[netip.Prefix]int // connections of each NetworkOf; guarded by mu
	shaking map[netip.Prefix]int // pending connections of each NetworkOf; guarded by mu
	told    map[string]time.Time // when each message was last logged; guarded by mu
}

// less subtracts one connection of an address.
func less(m map[netip.Prefix]int, network netip.Prefix) {
	if m[network]--; m[network] == 0 {
		delete(m, network)
	}
}

// quiet is the least interval between log lines of one kind.
const quiet = 10 * time.Second

// New returns a Limit without connections.
func New(cfg Config) *Limit {
	return &Limit{cfg: cfg, paces: paces{burst: paceBurst}, shakes: paces{burst: shakeBurst}, from: make(map[netip.Prefix]int), shaking: make(map[netip.Prefix]int), told: make(map[string]time.Time)}
}

// Stats are the counters of a port.
type Stats struct {
	Port string
	// Settled and Pending count open connections.
	Settled, Pending int
	// Refused connections exceeded a bound, Dropped ones were displaced during their
	// handshake, Failed ones failed in it.
	Refused, Dropped, Failed int64
	// Waits counts handshakes that waited for a turn, or for the rate of their address.
	Waits int64
	// Paced counts reads that waited because their address had sent too many bytes.
	Paced int64
}

// Stats returns the current counters.
func (l *Limit) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Port: l.cfg.Port, Settled: l.settled.Len(), Pending: l.pending.Len(),
		Refused: l.refused.Load(), Dropped: l.dropped.Load(), Failed: l.failed.Load(), Waits: l.waits.Load(), Paced: l.paced.Load(),
	}
}

// Listener returns inner with its connections counted and bounded by l.
func (l *Limit) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limit *Limit
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted, ok := l.limit.Admit(c); ok {
			return admitted, nil
		}
	}
}

// Admit counts a new connection as pending. If it exceeds a bound, Admit closes it
// and returns false.
func (l *Limit) Admit(c net.Conn) (*Conn, bool) {
	network := NetworkOf(c.RemoteAddr())
	wait, refused, most := l.enter(network, time.Now())
	if refused != "" {
		l.refuse(c, refused, most)
		return nil, false
	}
	l.mu.Lock()
	crowded := l.cfg.MaxPerAddress > 0 && network.IsValid() && l.from[network] >= l.cfg.MaxPerAddress
	if crowded && !l.cfg.Evict {
		l.mu.Unlock()
		l.refuse(c, "connection refused: too many from one address", l.cfg.MaxPerAddress)
		return nil, false
	}
	var oldest *Conn
	full := l.settled.Len() >= l.cfg.Max
	if full && !l.cfg.Evict {
		l.mu.Unlock()
		l.refuse(c, "connection refused: too many connections", l.cfg.Max)
		return nil, false
	}
	switch {
	case crowded:
		oldest = l.oldestLocked(network)
		l.leaveLocked(oldest)
	case l.pending.Len() >= l.cfg.MaxPending:
		full = false
		oldest = l.pendingLocked()
		l.leaveLocked(oldest)
	case full:
		oldest, _ = l.settled.Front().Value.(*Conn)
		l.leaveLocked(oldest)
	}
	out := &Conn{Conn: c, limit: l, network: network}
	if wait > 0 {
		out.penalty = &wayIn{after: time.Now().Add(wait), closed: make(chan struct{})}
	}
	l.from[network]++
	l.shaking[network]++
	out.place = l.pending.PushBack(out)
	l.mu.Unlock()
	switch {
	case oldest == nil:
	case crowded:
		l.refused.Add(1)
		_ = oldest.Close()
		l.tell("oldest connection closed: too many from one address", "max", l.cfg.MaxPerAddress, "from", address(oldest))
	case full:
		l.refused.Add(1)
		_ = oldest.Close()
		l.tell("oldest connection closed: too many connections", "max", l.cfg.Max, "from", address(oldest))
	default:
		l.dropped.Add(1)
		_ = oldest.Close()
		l.tell("oldest pending connection closed: too many incomplete handshakes", "max", l.cfg.MaxPending, "from", address(oldest))
	}
	return out, true
}

// oldestLocked returns the oldest settled connection of a network that has connections, or
// else the oldest pending one.
func (l *Limit) oldestLocked(network netip.Prefix) *Conn {
	for _, stage := range []*list.List{&l.settled, &l.pending} {
		for e := stage.Front(); e != nil; e = e.Next() {
			if c, _ := e.Value.(*Conn); c.network == network {
				return c
			}
		}
	}
	return nil // the network has no connections
}

// pendingLocked returns the oldest pending connection of the address with the most of them.
func (l *Limit) pendingLocked() *Conn {
	var crowd netip.Prefix
	most := 0
	for network, n := range l.shaking {
		if n > most {
			crowd, most = network, n
		}
	}
	for e := l.pending.Front(); ; e = e.Next() {
		if c, _ := e.Value.(*Conn); c.network == crowd {
			return c
		}
	}
}

// refuse closes a connection that exceeds a bound.
func (l *Limit) refuse(c net.Conn, why string, most int) {
	l.refused.Add(1)
	attrs := []any{"max", most, "from", address(c)}
	if l.cfg.Advice != "" {
		attrs = append(attrs, "advice", l.cfg.Advice)
	}
	l.tell(why, attrs...)
	_ = c.Close()
}

// NetworkOf returns the addresses that count as one client: an IPv4 address, or an IPv6 /64,
// which is the smallest assignment to a host (RFC 6177) and gives it 2^64 source addresses.
// For addresses other than TCP it is the zero Prefix.
func NetworkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	bits := 64
	if ip = ip.Unmap(); ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // zero Prefix without an address
	return p
}

// SourceOf returns NetworkOf as text; it is empty for addresses other than TCP.
func SourceOf(a net.Addr) string {
	network := NetworkOf(a)
	switch {
	case !network.IsValid():
		return ""
	case network.IsSingleIP():
		return network.Addr().String()
	default:
		return network.String()
	}
}

// Failed counts and logs a failed handshake.
func (l *Limit) Failed(from net.Addr, err error) {
	l.failed.Add(1)
	l.tell("connection refused: handshake failed", "from", from.String(), "error", err)
}

func (l *Limit) tell(what string, attrs ...any) {
	l.mu.Lock()
	now := time.Now()
	told, ok := l.told[what]
	fresh := !ok || now.Sub(told) >= quiet
	if fresh {
		l.told[what] = now
	}
	l.mu.Unlock()
	if fresh {
		l.cfg.Logger.Warn(what, append([]any{"port", l.cfg.Port}, attrs...)...)
	}
}

func address(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Conn is a connection that is counted until it is closed.
type Conn struct {
	net.Conn
	limit   *Limit
	network netip.Prefix  // of the remote address
	unpaced int           // bytes read but not yet counted in the rate; owned by Read
	place   *list.Element // in the list of its stage; guarded by limit.mu
	stage   stage         // guarded by limit.mu
	turn    turn          // guarded by the Turns' mu
	shaken  atomic.Bool   // its handshake is over
	penalty *wayIn        // nil: its handshake may begin at once
}

// stage is the stage of a connection.
type stage int

const (
	pending stage = iota
	settled
	gone
)

// Settle marks the handshake of the connection as complete. It may be
// called again.
func (c *Conn) Settle() {
	c.shook()
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.stage == pending {
		c.limit.pending.Remove(c.place)
		less(c.limit.shaking, c.network)
		c.place = c.limit.settled.PushBack(c)
		c.stage = settled
	}
}

// Read implements net.Conn. During the handshake, Read waits for the connection's turn;
// afterwards it keeps to the rate of the address.
func (c *Conn) Read(p []byte) (int, error) {
	turns := c.limit.cfg.Turns
	if c.shaken.Load() {
		n, err := c.Conn.Read(p)
		c.pace(n)
		return n, err
	}
	if c.penalty != nil {
		c.penalty.wait()
	}
	if turns == nil {
		return c.Conn.Read(p)
	}
	turns.give(c, noTurn)
	n, err := c.Conn.Read(p)
	if err == nil {
		turns.take(c)
	}
	return n, err
}

// pace counts n received bytes, and waits while the address exceeds its rate.
func (c *Conn) pace(n int) {
	if c.unpaced += n; c.unpaced < paceStep || c.limit.cfg.BytesPerSecond == 0 {
		return
	}
	wait, _ := c.limit.paces.count(c.network, c.unpaced, c.limit.cfg.BytesPerSecond, math.MaxInt64, time.Now())
	c.unpaced = 0
	if wait == 0 {
		return
	}
	c.limit.paced.Add(1)
	c.limit.tell("reads delayed: clients of one address send too many bytes", "max_per_second", c.limit.cfg.BytesPerSecond, "from", address(c), "advice", "see --address-rate")
	time.Sleep(wait)
}

// Shaken reports to the counted connection beneath c, if there is one, that the part of
// the handshake that costs CPU has completed or failed. It may be called again.
func Shaken(c net.Conn) {
	if counted := countedOf(c); counted != nil {
		counted.shook()
	}
}

// shook releases the turn; the connection needs no other.
func (c *Conn) shook() {
	if c.shaken.Swap(true) {
		return
	}
	if c.penalty != nil {
		close(c.penalty.closed)
	}
	if turns := c.limit.cfg.Turns; turns != nil {
		turns.give(c, needsNoTurn)
	}
}

// NetConn returns the connection beneath.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SetDeadline implements net.Conn. Clearing the deadline settles the connection.
func (c *Conn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.Settle()
	}
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn. It may be called again.
func (c *Conn) Close() error {
	c.shook()
	c.limit.mu.Lock()
	c.limit.leaveLocked(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

func (l *Limit) leaveLocked(c *Conn) {
	switch c.stage {
	case pending:
		l.pending.Remove(c.place)
		less(l.shaking, c.network)
	case settled:
		l.settled.Remove(c.place)
	case gone:
		return
	}
	c.stage = gone
	less(l.from, c.network)
}
