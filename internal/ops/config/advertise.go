package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Advertised are the addresses under which others reach a node, host:port.
type Advertised struct {
	Client, Peer, Raft, Gossip, HTTP string
}

// Advertised returns the addresses to announce to others. The host of the clients' address is
// AdvertiseClients when that is set. Else the host of an address is Advertise, else the host that the listener is bound to, else
// the best of local's, which are the machine's own addresses: a private one
// before a public one, IPv4 before IPv6. c is valid. LocalAddresses is local outside of tests;
// it is only called if it is needed.
//
// It fails when a listener is bound to all addresses and local has none that
// others could reach.
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
				return Advertised{}, errors.New("--advertise: found no address of this machine that others could reach; name one, or listen on a certain address")
			}
			host = ip.String()
		}
		out[i] = net.JoinHostPort(host, port)
	}
	return Advertised{Client: out[0], Peer: out[1], Raft: out[2], Gossip: out[3], HTTP: out[4]}, nil
}

// Joins returns Join as host:port. Where no port is given it is our own of gossip:
// nodes are usually alike. c is valid.
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

// LocalAddresses returns the addresses of this machine's interfaces, in the
// system's order.
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
