package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Membership tracks the nodes of the cluster and announces this node to them.
type Membership struct {
	cfg     Config
	log     *slog.Logger
	ran     atomic.Bool
	ready   chan struct{} // closed when we listen and Self has its gossip address
	done    chan struct{} // closed when Run returns
	changes wait.Signal
	keys    *memberlist.Keyring // nil: gossip is not encrypted
	keysMu  sync.Mutex          // one SetKeys at a time
	queue   memberlist.TransmitLimitedQueue
	size    atomic.Int64 // of members, for queue and watch
	quiet   quiet

	looks     wait.Bell       // memberlist has news for watch
	announces wait.Bell       // our metadata changed
	leaves    chan chan error // Leave asks announce
	verdict   chan error      // our name has been taken for too long; holds one error
	joins     wait.Bell       // join should check the urgency again

	// mu is taken by memberlist's callbacks, which run under its own locks: it
	// is never held while memberlist is called.
	mu       sync.Mutex
	self     meta            // guarded by mu
	address  string          // our gossip address, IP:port, once known; guarded by mu
	left     bool            // guarded by mu
	roster   roster          // guarded by mu
	members  []shard.Member  // sorted by name, never changed in place; guarded by mu
	conflict conflict        // guarded by mu
	standing standing        // guarded by mu
	company  string          // cluster ID of the nodes we have met, "": none; guarded by mu
	joinErr  error           // guarded by mu
	told     map[string]bool // messages that were logged once; guarded by mu

	news        MapNews     // guarded by mu
	newsChanged wait.Signal // of news
}

// New returns a Membership for cfg. It starts nothing.
func New(cfg Config) (*Membership, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.LookupHost == nil {
		cfg.LookupHost = net.DefaultResolver.LookupHost
	}
	m := &Membership{
		cfg:       cfg,
		log:       cfg.Logger,
		ready:     make(chan struct{}),
		done:      make(chan struct{}),
		looks:     wait.NewBell(),
		announces: wait.NewBell(),
		leaves:    make(chan chan error),
		verdict:   make(chan error, 1),
		joins:     wait.NewBell(),
		quiet:     quiet{interval: cfg.GossipInterval},
		self:      meta{Member: cfg.Self},
		roster:    roster{retention: cfg.DeadRetention},
		// Claims repeat with each attempt to join, and with each push/pull.
		conflict: conflict{limit: cfg.ConflictTimeout, pause: max(5*cfg.RetryInterval, cfg.PushPullInterval)},
		told:     make(map[string]bool),
	}
	// memberlist calls this under its own locks, so it must not take ours.
	m.queue = memberlist.TransmitLimitedQueue{RetransmitMult: memberlist.DefaultLANConfig().RetransmitMult, NumNodes: func() int { return int(m.size.Load()) }}
	if len(cfg.SecretKeys) > 0 {
		keys, err := memberlist.NewKeyring(cfg.SecretKeys, cfg.SecretKeys[0])
		if err != nil {
			return nil, fmt.Errorf("membership: gossip keys: %w", err)
		}
		m.keys = keys
	}
	m.self.GossipAddress = ""
	if m.self.Level == 0 {
		m.self.Level = shard.Level
	}
	m.roster.observe(time.Now(), []shard.Member{m.selfLocked()})
	m.members = m.roster.list()
	m.size.Store(1)
	return m, nil
}

// Run takes part in gossip until ctx ends; then it returns nil, and the others
// will see us as dead unless [Membership.Leave] was called before. It returns
// an error when it cannot listen, and a *[NameTakenError] when a live node
// keeps our name. It may be called once.
func (m *Membership) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return errors.New("membership: Run was called before")
	}
	defer close(m.done)
	g, ctx := errgroup.WithContext(ctx)
	ml, obs, err := m.start(ctx)
	if err != nil {
		return err
	}
	close(m.ready)
	g.Go(func() error { return m.watch(ctx, obs) })
	g.Go(func() error { return m.join(ctx, ml) })
	g.Go(func() error { return m.announce(ctx, ml) })
	err = g.Wait()
	obs.close()
	m.stop(ml)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// start listens and starts memberlist. ctx ends exchanges in progress.
func (m *Membership) start(ctx context.Context) (*memberlist.Memberlist, *observer, error) {
	logger := newLogger(m.log)
	host, port, err := m.resolveAdvertise(ctx)
	if err != nil {
		return nil, nil, err
	}
	transport := m.cfg.Transport
	if transport == nil {
		s, err := listenSockets(ctx, m.cfg.BindAddr, host, m.cfg.Streams, logger)
		if err != nil {
			return nil, nil, err
		}
		if port == 0 {
			port = s.GetAutoBindPort()
		}
		transport = s
	}
	ip, n, err := transport.FinalAdvertiseAddr(host, port)
	if err != nil {
		_ = transport.Shutdown()
		return nil, nil, fmt.Errorf("find the gossip address to advertise: %w; give one", err)
	}
	m.mu.Lock()
	m.address = net.JoinHostPort(ip.String(), strconv.Itoa(n))
	m.self.started = time.Now()
	m.mu.Unlock()

	conf := m.memberlistConfig(transport, logger)
	conf.AdvertiseAddr, conf.AdvertisePort, conf.BindPort = host, port, n
	time.Sleep(beat.Until(m.cfg.GossipInterval)) // its rounds begin now
	ml, err := memberlist.Create(conf)
	if err != nil {
		_ = transport.Shutdown()
		return nil, nil, fmt.Errorf("start gossip: %w", err)
	}
	obs, err := newObserver(transport, conf.Keyring, m.cfg.StreamTimeout, logger)
	if err != nil {
		m.stop(ml)
		return nil, nil, err
	}
	return ml, obs, nil
}

// stop shuts memberlist down and waits for it. memberlist does not wait for a
// probe in progress, which ends after its interval, stretched by the health
// score. The probe timeout is a margin.
func (m *Membership) stop(ml *memberlist.Memberlist) {
	probing := ml.NumMembers() > 1
	_ = ml.Shutdown() // it only logs
	if probing {
		t := time.NewTimer(m.cfg.ProbeInterval*time.Duration(ml.GetHealthScore()+1) + m.cfg.ProbeTimeout)
		defer t.Stop()
		<-t.C
	}
}

// resolveAdvertise returns the IP address and port to advertise; "" and 0 mean
// those of the socket.
func (m *Membership) resolveAdvertise(ctx context.Context) (string, int, error) {
	if m.cfg.AdvertiseAddr == "" || m.cfg.Transport != nil {
		return "", 0, nil
	}
	host, port, _ := splitAdvertise(m.cfg.AdvertiseAddr)
	if _, err := netip.ParseAddr(host); err == nil {
		return host, port, nil
	}
	ips, err := m.cfg.LookupHost(ctx, host)
	if err == nil && len(ips) == 0 {
		err = errors.New("no address")
	}
	if err != nil {
		return "", 0, fmt.Errorf("resolve the gossip address to advertise, %s: %w", host, err)
	}
	return ips[0], port, nil
}

// memberlistConfig returns the configuration of memberlist.
func (m *Membership) memberlistConfig(transport Transport, logger *log.Logger) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = string(m.cfg.Self.Name)
	c.Transport = transport
	c.Logger = logger
	d := (*delegate)(m)
	c.Delegate, c.Events, c.Conflict, c.Merge, c.Alive = d, d, d, d, d

	c.ProbeInterval, c.ProbeTimeout = m.cfg.ProbeInterval, m.cfg.ProbeTimeout
	c.SuspicionMult = m.cfg.SuspicionMult
	c.GossipInterval, c.PushPullInterval = m.cfg.GossipInterval, m.cfg.PushPullInterval
	c.TCPTimeout = m.cfg.StreamTimeout
	c.DeadNodeReclaimTime = m.cfg.ReclaimTime
	// A node that considers itself unhealthy probes less often, up to this many
	// times the interval. memberlist's default of 8 blinds it for 8 s.
	c.AwarenessMaxMultiplier = 4
	// Packets hold a few hundred bytes of names and metadata: compressing each
	// costs CPU and gains nothing under the MTU.
	c.EnableCompression = false
	c.Keyring = m.keys
	return c
}

// Ready is closed when Run listens, and Self has its gossip address.
func (m *Membership) Ready() <-chan struct{} { return m.ready }

// Self returns this node as other nodes see it.
func (m *Membership) Self() shard.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.members, func(x shard.Member) bool { return x.Name == m.self.Name })
	self := m.selfLocked()
	if i >= 0 {
		self.Since = m.members[i].Since
	}
	return self
}

// Members returns all members, sorted by name: this node, live and suspect
// members, and for a bounded time dead and departed members.
func (m *Membership) Members() []shard.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.members)
}

// Changes returns a channel that is closed when Members changes. Call it before Members to
// miss no change.
func (m *Membership) Changes() <-chan struct{} { return m.changes.Wait() }

// JoinError reports why this node is alone although it should join others, or
// why they do not accept it; nil otherwise.
func (m *Membership) JoinError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.standing.refused && !m.aloneLocked() {
		return nil // a node has joined since
	}
	return m.joinErr
}

// SetClusterID announces the cluster of this node, an ID of at most 36 bytes.
// From then on nodes of other clusters are refused.
func (m *Membership) SetClusterID(id string) {
	if len(id) > maxClusterID {
		m.log.Error("cluster ID is too long for gossip, not announced", "cluster", id, "bytes", len(id), "limit", maxClusterID)
		return
	}
	m.changeSelf(func(self *meta) { self.ClusterID = id })
}

// SetDraining announces whether this node asks to hand over its shards.
func (m *Membership) SetDraining(draining bool) {
	m.changeSelf(func(self *meta) { self.Draining = draining })
}

// SetVoter announces whether this node votes on the shard map.
func (m *Membership) SetVoter(voter bool) {
	m.changeSelf(func(self *meta) { self.Voter = voter })
}

func (m *Membership) changeSelf(f func(*meta)) {
	m.mu.Lock()
	before := m.self
	f(&m.self)
	changed := m.self != before
	if changed {
		self := m.selfLocked()
		members := slices.Clone(m.members)
		for i := range members {
			if members[i].Name == self.Name {
				self.Since = members[i].Since
				members[i] = self
				m.roster.members[self.Name] = self
			}
		}
		m.members = members
	}
	m.mu.Unlock()
	if changed {
		m.announces.Wake()
		m.changes.Notify()
	}
}

// Leave announces that this node leaves on purpose, so that others need not
// detect it. It returns when enough nodes have received this, or when ctx or
// the leave timeout ends. Run continues until its context ends.
func (m *Membership) Leave(ctx context.Context) error {
	select {
	case <-m.ready:
	default:
		return errors.New("leave gossip: not running")
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LeaveTimeout)
	defer cancel()
	answer := make(chan error, 1)
	select {
	case m.leaves <- answer:
	case <-m.done:
		return errors.New("leave gossip: not running")
	case <-ctx.Done():
		return fmt.Errorf("leave gossip: %w", ctx.Err())
	}
	select {
	case err := <-answer:
		return err
	case <-m.done:
		return errors.New("leave gossip: stopped before the other nodes were notified")
	case <-ctx.Done():
		return fmt.Errorf("leave gossip: %w", ctx.Err())
	}
}

// selfLocked returns this node as a member, without Since.
func (m *Membership) selfLocked() shard.Member {
	self := m.self.Member
	self.GossipAddress = m.address
	host, _, _ := net.SplitHostPort(m.address)
	for _, a := range addressFields(&self) {
		// as other nodes read it
		if h, port, err := splitAddress(*a.value); err == nil && h == "" && host != "" {
			*a.value = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
	}
	self.State, self.Since = shard.Alive, time.Time{}
	if m.left {
		self.State = shard.Left
	}
	return self
}

// onceLocked reports whether the message has not been logged before, and records it.
func (m *Membership) onceLocked(what string) bool {
	if m.told[what] {
		return false
	}
	if len(m.told) >= maxGone {
		clear(m.told)
	}
	m.told[what] = true
	return true
}
