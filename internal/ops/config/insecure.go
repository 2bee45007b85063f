package config

import (
	"fmt"
	"slices"
	"strings"
)

// Ports names the node's ports by their purpose: PortClient, PortPeer, PortGossip and PortHTTP. As a flag
// without a value it means all of them.
type Ports []string

// The names of ports. PortPeer is the port for other nodes and raft's.
const (
	PortClient = "client"
	PortPeer   = "peer"
	PortGossip = "gossip"
	PortHTTP   = "http"

	allPorts = "all"
)

func portNames() []string { return []string{PortClient, PortPeer, PortGossip, PortHTTP} }

// Set adds ports, comma separated; "all" stands for all, "none" for none.
func (p *Ports) Set(text string) error {
	for _, name := range strings.Split(text, ",") {
		if err := p.Append(name); err != nil {
			return err
		}
	}
	return nil
}

// Append implements pflag.SliceValue.
func (p *Ports) Append(name string) error {
	switch {
	case name == allPorts || name == "true": // from YAML or the environment
		*p = portNames()
	case name == "none" || name == "false" || name == "":
	case !slices.Contains(portNames(), name):
		return fmt.Errorf("%q is not a port: use %s, or %s", name, strings.Join(portNames(), ", "), allPorts)
	case !slices.Contains(*p, name):
		*p = append(*p, name)
	}
	return nil
}

// Replace implements pflag.SliceValue.
func (p *Ports) Replace(names []string) error {
	*p = nil
	return p.Set(strings.Join(names, ","))
}

// GetSlice implements pflag.SliceValue.
func (p *Ports) GetSlice() []string { return *p }

// String returns the ports in the syntax of Set.
func (p *Ports) String() string { return strings.Join(*p, ",") }

// Type is the word for the value in --help.
func (p *Ports) Type() string { return "ports" }

// exposure is an unprotected port that other machines reach.
type exposure struct {
	port string
	// listener names the port, missing the flags that would protect it, and risk the actions that any client at
	// the port can take.
	listener, missing, risk string
}

func (c Config) exposures() (out []exposure) {
	if c.Kube.Listen == "" {
		out = c.exposed(out, c.ClientTLS.Cert+c.ClientTLS.Key != "", PortClient, "--tls-cert and --tls-key",
			"can read and change every key, unless etcd's authentication is on, and then its passwords",
			listener{"listen", c.Listen.Client})
		out = c.exposed(out, !c.PeerTLS.IsZero(), PortPeer, peerMissing,
			"can read every key and change the shard map",
			listener{"peer-listen", c.Listen.Peer}, listener{"raft-listen", c.Listen.Raft})
	} else if len(c.Join) > 0 {
		out = c.exposed(out, !c.PeerTLS.IsZero(), PortPeer, peerMissing,
			"can read every object that the node holds", listener{"peer-listen", c.Listen.Peer})
	}
	if c.Kube.Listen == "" || len(c.Join) > 0 {
		out = c.exposed(out, c.GossipKeyFile != "", PortGossip, "--gossip-key-file",
			"can declare nodes dead", listener{"gossip-listen", c.Listen.Gossip})
	}
	return append(out, c.httpExposure()...)
}

const peerMissing = "--peer-tls-cert, --peer-tls-key and --peer-tls-ca"

// exposed adds the listeners that other machines reach, unless they are secured.
func (c Config) exposed(out []exposure, secured bool, port, missing, risk string, listeners ...listener) []exposure {
	for _, l := range listeners {
		host, _, err := splitAddress(l.address)
		if !secured && err == nil && !loopback(host) {
			out = append(out, exposure{port, "--" + l.flag + " " + l.address, missing, risk})
		}
	}
	return out
}

// httpExposure returns the HTTP port if it is exposed.
func (c Config) httpExposure() []exposure {
	host, _, err := splitAddress(c.Listen.HTTP)
	if c.HTTPTLS.Cert+c.HTTPTLS.Key != "" || err != nil || loopback(host) {
		return nil
	}
	shows := "which nodes serve and which clients watch which keys"
	if c.Kube.Listen != "" {
		shows = "the apiservers, the other nodes, and which resources this node follows"
	}
	return []exposure{{PortHTTP, "--http-listen " + c.Listen.HTTP, "--http-tls-cert and --http-tls-key", "can see " + shows}}
}
