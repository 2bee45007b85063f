package chaos

import (
	"context"
	"fmt"
	"time"
)

// compactions are faults in which etcd compacts around the nodes' last revision (r-1, r and r+1 in
// turn) while they are cut off.
func compactions() []Fault {
	return []Fault{
		{
			Name: "compact-node", About: "the owner of most shards is cut from etcd and all nodes for 6 s; etcd compacts at r-1, r or r+1, r being its last revision",
			Needs: Needs{Network: true}, For: time.Second, Stall: 2500 * time.Millisecond,
			Inject: func(ctx context.Context, s *Scene) (heal, error) {
				victim, err := s.Victim(ctx)
				if err != nil {
					return nil, err
				}
				return s.compactBehind(ctx, victim)
			},
		},
		{
			Name: "compact-tier", About: "all nodes are cut from etcd for 6 s, which compacts at r-1, r or r+1, r being their last revision",
			Needs: Needs{Network: true}, For: time.Second, Lists: true,
			Inject: func(ctx context.Context, s *Scene) (heal, error) {
				s.last = nil
				return s.compactBehind(ctx, s.Cluster.Nodes...)
			},
		},
	}
}

// compactBehind cuts nodes from etcd, and a single node also from the other nodes, waits until etcd
// is ahead of them, and compacts it.
func (s *Scene) compactBehind(ctx context.Context, nodes ...*Node) (heal, error) {
	var heals []heal
	for _, n := range nodes {
		rules := both(dropped, s.etcdIPs()...)
		if len(nodes) == 1 {
			rules = s.cutOff(n)
		}
		h, err := n.host.apply(ctx, rules...)
		if err != nil {
			return nil, err
		}
		heals = append(heals, h)
	}
	mend := together(heals...)
	if err := pause(ctx, time.Second); err != nil { // events in flight arrive
		return mend, err
	}
	last := int64(0)
	for _, n := range nodes {
		p, err := n.progress(ctx)
		if err != nil {
			return mend, fmt.Errorf("learn how far %s is: %w", n.Name, err)
		}
		last = max(last, p)
	}
	at := last + int64(s.Turn%3) - 1
	s.Say("%d nodes are cut at revision %d", len(nodes), last)
	// No watch of the test may be older than the compact revision.
	if err := pause(ctx, 4*time.Second); err != nil {
		return mend, err
	}
	if err := s.truth.reach(ctx, at, patience); err != nil {
		return mend, err
	}
	done, err := s.load.compact(ctx, at)
	if err != nil {
		return mend, err
	}
	s.Say("etcd has compacted up to %d (asked: %d)", done, at)
	return mend, nil
}
