package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Advertised are the addresses, host:port, at which others reach a node.
type Advertised struct {
	Client, Peer, Raft, Gossip, HTTP string
}

// Advertised returns the addresses to announce to others. The host of an address is, in this order:
// AdvertiseClients, for the clients' address; Advertise; the host of the listener; the best of local's, which
// are the machine's own addresses: a private one before a public one, IPv4 before IPv6. c is valid. local is
// LocalAddresses, except in tests; it is only called if needed.
//
// It fails if a listener is bound to all addresses and local has none that others can reach.
func (c Config) Advertised(local func() ([]netip.Addr, error)) (Advertised, error) {
	var out [5]string
	for i, l := range c.listeners() {
		host, port, err := net.SplitHostPort(l.address)
		if err != nil {
			return Advertised{}, err
		}
		switch {
		case i == 0 && c.AdvertiseClients != "":
			host = c.AdvertiseClients
		case c.Advertise != "":
			host = c.Advertise
		case anyHost(host):
			own, err := local()
			if err != nil {
				return Advertised{}, fmt.Errorf("--advertise: list the addresses of this machine: %w; name one", err)
			}
			ip, ok := reachable(own)
			if !ok {
				return Advertised{}, errors.New("--advertise: found no address of this machine that others can reach; name one, or listen on a specific address")
			}
			host = ip.String()
		}
		out[i] = net.JoinHostPort(host, port)
	}
	return Advertised{Client: out[0], Peer: out[1], Raft: out[2], Gossip: out[3], HTTP: out[4]}, nil
}

// Joins returns Join as host:port. The default port is the node's own gossip port: nodes are usually alike. c
// is valid.
func (c Config) Joins() []string {
	_, port, _ := net.SplitHostPort(c.Listen.Gossip)
	out := make([]string, 0, len(c.Join))
	for _, j := range c.Join {
		if _, _, err := net.SplitHostPort(j); err != nil {
			j = net.JoinHostPort(j, port)
		}
		out = append(out, j)
	}
	return out
}

// LocalAddresses returns the addresses of this machine's interfaces, in the system's order.
func LocalAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}

func reachable(local []netip.Addr) (best netip.Addr, ok bool) {
	rank := func(ip netip.Addr) int {
		switch {
		case !ip.IsGlobalUnicast():
			return 0
		case ip.Is4() && ip.IsPrivate():
			return 4
		case ip.Is4():
			return 3
		case ip.IsPrivate():
			return 2
		}
		return 1
	}
	for _, ip := range local {
		if r := rank(ip); r > 0 && (!ok || r > rank(best)) {
			best, ok = ip, true
		}
	}
	return best, ok
}
