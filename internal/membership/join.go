package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// join searches for missing nodes until ctx ends: often while we are alone or
// not accepted, seldom otherwise.
func (m *Membership) join(ctx context.Context, ml *memberlist.Memberlist) error {
	delay := m.cfg.RetryInterval
	failed := make(map[string]failure)
	for {
		if err := m.joinRound(ctx, ml, failed); err != nil {
			return err
		}
		urgent, patient := m.urgency()
		switch {
		case !urgent:
			delay = m.cfg.RejoinInterval
		case !patient || delay == m.cfg.RejoinInterval:
			delay = m.cfg.RetryInterval
		default:
			delay = min(2*delay, m.cfg.RejoinInterval)
		}
		if err := m.joinWait(ctx, delay, urgent); err != nil {
			return err
		}
	}
}

// urgency reports whether we should try to join soon, and if so, whether
// growing pauses are acceptable.
func (m *Membership) urgency() (urgent, patient bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.left:
		return false, false
	case m.standing.refused:
		return true, false
	case len(m.cfg.Join) == 0 && len(m.members) == 1:
		return false, false
	}
	return m.aloneLocked(), true
}

func (m *Membership) aloneLocked() bool {
	for i := range m.members {
		if m.members[i].Name != m.self.Name && !gone(m.members[i]) {
			return false
		}
	}
	return true
}

// joinWait waits for delay, or until joining becomes urgent.
func (m *Membership) joinWait(ctx context.Context, delay time.Duration, urgent bool) error {
	t := time.NewTimer(delay)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		case <-m.joins:
			now, _ := m.urgency()
			if now && !urgent {
				t.Reset(m.cfg.RetryInterval)
				urgent = true
			}
		}
	}
}

// joinRound tries each candidate once.
func (m *Membership) joinRound(ctx context.Context, ml *memberlist.Memberlist, failed map[string]failure) error {
	m.mu.Lock()
	self, refused, left := m.address, m.standing.refused, m.left
	members := m.members
	if m.aloneLocked() {
		m.company = ""
	}
	m.standing.accepted, m.standing.elsewhere, m.standing.company = 0, 0, 0
	m.mu.Unlock()
	if left {
		return nil
	}

	failures := make(map[string]error)
	candidates := m.resolve(ctx, failures)
	candidates = append(candidates, lastKnown(members, refused)...)
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	tried := map[string]bool{self: true}
	live := liveAddresses(members)
	for _, a := range candidates {
		if tried[a] || live[a] && !refused {
			continue
		}
		tried[a] = true
		_, err := ml.Join([]string{a})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failures[a] = explain(a, err)
			continue
		}
		live = liveAddresses(m.Members())
	}
	m.judge(failures, failed)
	return nil
}

// failure is the state of an address that cannot be joined.
type failure struct {
	since time.Time // of the first failed attempt
	told  string    // text of the last warning; "": none yet
}

// joinPatience is how long an address may not answer before a warning: nodes
// that start together wait for each other.
const joinPatience = 15 * time.Second

// judge evaluates a round and logs the changes.
func (m *Membership) judge(failures map[string]error, failed map[string]failure) {
	m.mu.Lock()
	s := &m.standing
	switch {
	case s.accepted > 0:
		s.refused = false
		m.conflict.settled()
	case s.elsewhere > 0:
		s.refused = true
	}
	// The members may lag behind the lists of this round.
	alone := m.aloneLocked() && s.company == 0
	before := m.joinErr
	m.joinErr = nil
	switch {
	case s.refused:
		m.joinErr = fmt.Errorf("other nodes still map this node's name to %s", s.holder)
	case alone && len(failures) > 0:
		var errs []error
		for _, a := range slices.Sorted(maps.Keys(failures)) {
			errs = append(errs, failures[a])
		}
		m.joinErr = errors.Join(errs...)
	}
	joined := before != nil && m.joinErr == nil && !alone
	m.mu.Unlock()

	now := time.Now()
	for a, err := range failures {
		f, again := failed[a]
		if !again {
			f.since = now
		}
		// A node with other keys answers, and time does not help.
		patient := now.Sub(f.since) < joinPatience && !errors.Is(err, errKeys)
		if text := err.Error(); alone && !patient && f.told != text {
			f.told = text
			m.log.Warn("cannot join, retrying", "join", a, "error", err)
		} else {
			m.log.Debug("cannot join", "join", a, "error", err)
		}
		failed[a] = f
	}
	maps.DeleteFunc(failed, func(a string, _ failure) bool { return failures[a] == nil })
	if joined {
		m.log.Info("joined the cluster")
	}
}

// resolve returns the addresses, IP:port, of Join, without duplicates.
func (m *Membership) resolve(ctx context.Context, failures map[string]error) []string {
	var out []string
	for _, j := range m.cfg.Join {
		host, port, err := net.SplitHostPort(j)
		if err != nil {
			continue // Validate has reported it
		}
		ips := []string{host}
		if _, err := netip.ParseAddr(host); err != nil {
			lookup, cancel := context.WithTimeout(ctx, m.cfg.StreamTimeout)
			ips, err = m.cfg.LookupHost(lookup, host)
			cancel()
			if err == nil && len(ips) == 0 {
				err = errors.New("no address")
			}
			if err != nil {
				failures[j] = fmt.Errorf("resolve %s: %w", host, err)
				continue
			}
		}
		for _, ip := range ips {
			if a, err := netip.ParseAddr(ip); err == nil {
				out = append(out, net.JoinHostPort(a.Unmap().String(), port))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lastKnownMax bounds how many members are tried at their last address.
const lastKnownMax = 3

// lastKnown returns addresses of the members that died last, because they may
// be back after a partition. While we are refused, it adds addresses of live
// members, which must hear of us.
func lastKnown(members []shard.Member, refused bool) []string {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b shard.Member) int { return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Name, b.Name)) })
	var dead, live []string
	for i := range members {
		switch a := members[i].GossipAddress; {
		case a == "":
		case members[i].State == shard.Dead && len(dead) < lastKnownMax:
			dead = append(dead, a)
		case !gone(members[i]) && refused && len(live) < lastKnownMax:
			live = append(live, a)
		}
	}
	return append(dead, live...)
}

// liveAddresses returns the addresses of live members. (memberlist's own list
// cannot be read: it is changed in place, under a lock that is not ours.)
func liveAddresses(members []shard.Member) map[string]bool {
	out := make(map[string]bool)
	for i := range members {
		if members[i].State == shard.Alive || members[i].State == shard.Suspect {
			out[members[i].GossipAddress] = true
		}
	}
	return out
}

var errKeys = errors.New("the gossip keys differ: the other node has other keys, or one of the two has none; all nodes need the same keys")

// explain adds the remedy to memberlist's error. memberlist formats causes
// away, so only the text is left.
func explain(address string, err error) error {
	text := err.Error()
	for _, s := range []string{
		"no installed keys could decrypt the message",
		"encryption is not configured",
		"encryption is configured but",
		"message authentication failed",
	} {
		if strings.Contains(strings.ToLower(text), s) {
			return fmt.Errorf("join %s: %w", address, errKeys)
		}
	}
	if i := strings.LastIndex(text, address+": "); i >= 0 {
		text = text[i+len(address)+2:]
	}
	return fmt.Errorf("join %s: %s", address, strings.TrimSpace(text))
}
