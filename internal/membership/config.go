package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"
	"unicode"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config configures a Membership. Start from [Defaults].
type Config struct {
	// Self is this node as other nodes see it. Name and UUID are required.
	// GossipAddress, State and Since are ignored; Level 0 is shard.Level. An
	// address without a host (":7400"), or with an unspecified host
	// ("0.0.0.0:7400"), gets the host of the gossip address when others read it.
	Self shard.Member

	// BindAddr is the host:port for gossip, UDP and TCP. The host is an IP
	// address or empty (all IPv4 addresses); port 0 takes any port. Not used
	// with Transport.
	BindAddr string
	// AdvertiseAddr is the address at which others reach us: a host, or
	// host:port. Empty: the host of BindAddr, or the machine's private IPv4
	// address when that is unspecified. A name is resolved once, at the start.
	AdvertiseAddr string
	// Join are the host:port of nodes to join. A DNS name stands for all its
	// addresses and is resolved again with each try. Our own address may be
	// among them. Empty: others join us.
	Join []string

	// Transport carries the gossip; nil: UDP and TCP on BindAddr. Run shuts it
	// down, so it can serve only one Membership.
	Transport Transport
	// Streams bounds the TCP connections that others open; they never count as
	// settled. nil: no bound. Not used with Transport.
	Streams *netlimit.Limit
	// SecretKeys encrypt the gossip, AES-GCM with 16, 24 or 32 bytes each. The
	// first encrypts, all decrypt; SetKeys changes them. None: not encrypted.
	SecretKeys [][]byte
	// Logger receives messages for operators. nil: nothing is logged.
	Logger *slog.Logger
	// LookupHost resolves a DNS name to all its addresses. nil: the system's
	// resolver.
	LookupHost func(ctx context.Context, host string) ([]string, error)

	// ProbeInterval is the time between two probes; each goes to the next
	// member in a shuffled round.
	ProbeInterval time.Duration
	// ProbeTimeout is how long an answer to a direct probe may take. Other
	// members are asked to probe in our place for the rest of ProbeInterval.
	ProbeTimeout time.Duration
	// SuspicionMult: a suspect is dead after SuspicionMult x log10(members, at
	// least 10) x ProbeInterval, unless it objects.
	SuspicionMult int
	// GossipInterval is the time between two rounds of gossip.
	GossipInterval time.Duration
	// PushPullInterval is the time between two full exchanges with a member.
	PushPullInterval time.Duration
	// StreamTimeout bounds a TCP exchange, from dialling to the last byte.
	StreamTimeout time.Duration
	// ReclaimTime is how long a member must be dead before a node at another
	// address may take its name.
	ReclaimTime time.Duration
	// ViewInterval is the time between two reads of memberlist's states while they
	// change. Without changes it is five times as long, and a tenth of the members
	// times as long from sixty members on. Joins and departures are seen at once. A
	// suspicion that begins and ends within this time is not seen.
	ViewInterval time.Duration
	// RetryInterval is the time between two attempts to join while we are alone
	// or not accepted; it doubles up to RejoinInterval.
	RetryInterval time.Duration
	// RejoinInterval is the time between two searches for missing nodes: after
	// a long partition both sides have forgotten each other.
	RejoinInterval time.Duration
	// ConflictTimeout is how long another node may hold our name before Run
	// gives up.
	ConflictTimeout time.Duration
	// LeaveTimeout bounds Leave when its context does not.
	LeaveTimeout time.Duration
	// DeadRetention is how long Members shows a dead or departed member.
	DeadRetention time.Duration
}

// Defaults returns a Config with all default values.
func Defaults() Config {
	return Config{
		BindAddr: ":7946",
		// Dead after 5 to 7 s with few nodes. Failover does not wait for this:
		// a replica that loses its owner takes over by itself. Only moves of
		// shards wait, and a wrong death of a node costs more than a few
		// seconds. So these are memberlist's own values for a LAN.
		ProbeInterval:  time.Second,
		ProbeTimeout:   500 * time.Millisecond,
		SuspicionMult:  4,
		GossipInterval: beat.Every,
		// Half of memberlist's default. The full exchange repairs losses of
		// gossip, above all of metadata.
		PushPullInterval: 15 * time.Second,
		// Short, because joining is retried, and a dead address must not delay
		// the others.
		StreamTimeout: 5 * time.Second,
		// A dead node has already been suspect for long enough to object. A
		// second more lets the announcement of the death spread first, so that
		// it does not hit the new node, which would have to object to it. While
		// others still see the old node as alive or suspect, they refuse a new
		// node at another address, which retries.
		ReclaimTime:     time.Second,
		ViewInterval:    2 * beat.Every,
		RetryInterval:   time.Second,
		RejoinInterval:  15 * time.Second,
		ConflictTimeout: 30 * time.Second,
		LeaveTimeout:    3 * time.Second,
		DeadRetention:   10 * time.Minute,
	}
}

// maxName bounds a node's name in bytes: an announcement with name and metadata
// must fit into a packet. The name of a Kubernetes pod has at most 63.
const maxName = 128

// Validate names every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := validName(string(c.Self.Name)); err != nil {
		errs = append(errs, err)
	}
	if c.Self.UUID == "" {
		add("the node has no UUID")
	}
	if err := checkMeta(c.Self); err != nil {
		errs = append(errs, err)
	}
	if c.Transport == nil {
		if err := c.validBind(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, j := range c.Join {
		host, port, err := net.SplitHostPort(j)
		if err == nil {
			err = validPort(port, false)
		}
		if err == nil && host == "" {
			err = errors.New("no host")
		}
		if err != nil {
			add("join address %q is not host:port: %w", j, err)
		}
	}
	if err := validKeys(c.SecretKeys); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"probe interval", c.ProbeInterval},
		{"probe timeout", c.ProbeTimeout},
		{"gossip interval", c.GossipInterval},
		{"push/pull interval", c.PushPullInterval},
		{"stream timeout", c.StreamTimeout},
		{"reclaim time", c.ReclaimTime},
		{"view interval", c.ViewInterval},
		{"retry interval", c.RetryInterval},
		{"rejoin interval", c.RejoinInterval},
		{"conflict timeout", c.ConflictTimeout},
		{"leave timeout", c.LeaveTimeout},
		{"dead retention", c.DeadRetention},
	} {
		if d.value <= 0 {
			add("%s (%s) must be more than 0", d.name, d.value)
		}
	}
	if c.SuspicionMult < 1 {
		add("suspicion multiplier (%d) must be at least 1", c.SuspicionMult)
	}
	if c.ProbeTimeout > 0 && c.ProbeTimeout >= c.ProbeInterval {
		add("probe timeout (%s) must be shorter than probe interval (%s)", c.ProbeTimeout, c.ProbeInterval)
	}
	if c.RetryInterval > c.RejoinInterval {
		add("retry interval (%s) must not be longer than rejoin interval (%s)", c.RetryInterval, c.RejoinInterval)
	}
	if c.ReclaimTime >= c.ConflictTimeout {
		add("reclaim time (%s) must be shorter than conflict timeout (%s)", c.ReclaimTime, c.ConflictTimeout)
	}
	return errors.Join(errs...)
}

func (c *Config) validBind() error {
	host, port, err := net.SplitHostPort(c.BindAddr)
	if err == nil {
		err = validPort(port, true)
	}
	if err != nil {
		return fmt.Errorf("gossip listen address %q is not host:port: %w", c.BindAddr, err)
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return fmt.Errorf("gossip listen address %q: the host must be an IP address or empty", c.BindAddr)
		}
	}
	if ip == netip.IPv6Unspecified() && c.AdvertiseAddr == "" {
		return fmt.Errorf("gossip listen address %q: with every IPv6 address an address to advertise must be given", c.BindAddr)
	}
	if h, p, ok := splitAdvertise(c.AdvertiseAddr); !ok || h == "" && c.AdvertiseAddr != "" || p > 65535 {
		return fmt.Errorf("gossip address to advertise %q is not a host or host:port", c.AdvertiseAddr)
	}
	return nil
}

// splitAdvertise splits host or host:port; the port is 0 when there is none.
func splitAdvertise(s string) (host string, port int, ok bool) {
	if _, err := netip.ParseAddr(s); err == nil || s == "" {
		return s, 0, true
	}
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return s, 0, validHost(s)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	return h, int(n), err == nil && n > 0 && validHost(h)
}

func validHost(s string) bool {
	if s == "" {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r == '/' || r == '[' || r == ']' || r > unicode.MaxASCII {
			return false
		}
	}
	return true
}

func validPort(s string, zero bool) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 && !zero {
		return fmt.Errorf("port %q is not a number from 1 to 65535", s)
	}
	return nil
}

func validName(s string) error {
	switch {
	case s == "":
		return errors.New("the node has no name")
	case len(s) > maxName:
		return fmt.Errorf("node name %q has %d bytes: at most %d", s, len(s), maxName)
	}
	for _, r := range s {
		if r <= ' ' || r == '/' || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return fmt.Errorf("node name %q: %q is not allowed", s, r)
		}
	}
	return nil
}
