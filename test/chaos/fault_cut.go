package chaos

import (
	"context"
	"slices"
	"time"
)

// cuts are networks that drop packets: between a node and etcd, or between nodes.
func cuts() []Fault {
	cut := func(name, about string, inject func(context.Context, *Scene) (heal, error)) Fault {
		return Fault{
			Name: name, About: about, Needs: Needs{Network: true}, For: 6 * time.Second, Stall: 2500 * time.Millisecond, Inject: inject,
		}
	}
	fromEtcd := func(by string) func(context.Context, *Scene) (heal, error) {
		return func(ctx context.Context, s *Scene) (heal, error) {
			return s.cutVictim(ctx, "etcd", func(*Node) []string { return both(by, s.etcdIPs()...) })
		}
	}
	return []Fault{
		cut("cut-etcd", "the owner of most shards and etcd do not hear each other (DROP)", fromEtcd(dropped)),
		cut("reset-etcd", "the owner of most shards has every connection with etcd reset (RST)", fromEtcd(reset)),
		cut("cut-peer", "the owner of most shards and one of its followers do not hear each other", cutPeer),
		cut("oneway-etcd", "the owner of most shards does not hear etcd, or etcd does not hear it, by turns", onewayEtcd),
		cut("oneway-peer", "the owner of most shards does not hear the other nodes, or they do not hear it, by turns", onewayPeer),
	}
}

// cutVictim applies rules to a victim.
func (s *Scene) cutVictim(ctx context.Context, what string, rules func(*Node) []string) (heal, error) {
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	s.Say("cut %s: %s", victim.Name, what)
	return victim.host.apply(ctx, rules(victim)...)
}

func cutPeer(ctx context.Context, s *Scene) (heal, error) {
	return s.cutVictim(ctx, "one follower", func(victim *Node) []string {
		others := s.others(victim)
		return both(dropped, others[s.rng().IntN(len(others))].ip())
	})
}

// oneway returns rules against one direction, which alternates.
func (s *Scene) oneway(ips []string) (rules []string) {
	for _, ip := range ips {
		if s.Turn%2 == 0 {
			rules = append(rules, from(ip, dropped))
		} else {
			rules = append(rules, to(ip, dropped))
		}
	}
	return rules
}

func onewayEtcd(ctx context.Context, s *Scene) (heal, error) {
	return s.cutVictim(ctx, "one way from or to etcd", func(*Node) []string { return s.oneway(s.etcdIPs()) })
}

func onewayPeer(ctx context.Context, s *Scene) (heal, error) {
	return s.cutVictim(ctx, "one way from or to the other nodes", func(v *Node) []string { return s.oneway(ips(s.others(v))) })
}

// cutOff returns the rules that leave a node only its clients.
func (s *Scene) cutOff(n *Node) []string {
	return both(dropped, slices.Concat(s.etcdIPs(), ips(s.others(n)))...)
}
