package node

import (
	"crypto/tls"
	"net"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/fair"
)

// limits bound the connections of each port.
type limits struct {
	clients, peers, raft, gossip, http *netlimit.Limit
}

// newLimits allows for a thousand nodes, each with two connections at a time, and for five
// voters with a few raft connections each. A TCP connection of gossip ends within
// milliseconds. At the HTTP port one address gets at most a quarter of the connections, which is
// half of the pending ones, so that it evicts its own connections and not those of a kubelet.
func newLimits(cfg *Config, large *fair.Turns) limits {
	limit := func(port string, most, pending int, turns *netlimit.Turns) *netlimit.Limit {
		return netlimit.New(netlimit.Config{Port: port, Max: most, MaxPending: pending, Turns: turns, Logger: cfg.Logger})
	}
	atPort := func(secure *tls.Config, turns *netlimit.Turns) *netlimit.Turns {
		if secure == nil {
			return nil
		}
		return turns
	}
	shakes := func(secure *tls.Config) int {
		if secure == nil {
			return 0
		}
		return cfg.AddressHandshakes
	}
	turns := netlimit.TurnsOfNode(large) // without the turns of nodes, which do not wait for clients
	return limits{
		clients: netlimit.New(netlimit.Config{
			Port: "client", Max: cfg.MaxConnections, MaxPending: 1024, MaxPerAddress: cfg.MaxConnectionsPerAddress, BytesPerSecond: cfg.AddressRate,
			Turns: atPort(cfg.ClientTLS, turns), HandshakesPerSecond: shakes(cfg.ClientTLS),
			Advice: "see --max-connections, --max-connections-per-address and --address-handshakes", Logger: cfg.Logger,
		}),
		peers: limit("peer", 4096, 256, atPort(cfg.PeerServerTLS, netlimit.NewTurns(1))), raft: limit("raft", 256, 64, nil),
		gossip: limit("gossip", 64, 64, nil), http: netlimit.New(netlimit.Config{
			Port: "http", Max: 512, MaxPerAddress: 128, BytesPerSecond: cfg.AddressRate, Evict: true, MaxPending: 256, Turns: atPort(cfg.HTTPTLS, turns),
			HandshakesPerSecond: shakes(cfg.HTTPTLS), Logger: cfg.Logger,
		}),
	}
}

func (l limits) all() []*netlimit.Limit {
	return []*netlimit.Limit{l.clients, l.peers, l.raft, l.gossip, l.http}
}

// listeners returns the open ports with bounded connections.
func (l limits) listeners(open Listeners) Listeners {
	bound := func(limit *netlimit.Limit, inner net.Listener) net.Listener {
		if inner == nil {
			return nil
		}
		return limit.Listener(rawconn.Listener(inner))
	}
	return Listeners{
		Client: bound(l.clients, open.Client), Peer: bound(l.peers, open.Peer),
		Raft: bound(l.raft, open.Raft), HTTP: bound(l.http, open.HTTP),
	}
}
