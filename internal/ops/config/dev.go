package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
)

// Dev is a cluster in one process on loopback, with an etcd of its own.
type Dev struct {
	// Nodes is the number of cache nodes.
	Nodes int
	// Demo keeps a small workload running under /demo/.
	Demo bool
	// DataDir keeps etcd's and the nodes' data. Empty: a temporary directory,
	// removed at the end.
	DataDir string
	// EtcdPort is etcd's client port.
	EtcdPort int
	// ClientPort and HTTPPort are the first node's. Those of each further node are devStride higher. A node's
	// peer, raft and gossip ports follow its client port.
	ClientPort, HTTPPort int
	// Shards and Replicas are as in Config; Shards 0: one for each node.
	Shards, Replicas int
	// LogLevel is the lowest level to log.
	LogLevel slog.Level
}

const (
	// devStride is the distance between the ports of two nodes.
	devStride   = 10
	maxDevNodes = 50
)

// DevDefaults returns the default settings of a dev cluster.
func DevDefaults() Dev {
	d := Defaults()
	return Dev{
		Nodes:      3,
		EtcdPort:   2379,
		ClientPort: 7400,
		HTTPPort:   7480,
		Shards:     d.Shards,
		Replicas:   d.Replicas,
		LogLevel:   slog.LevelWarn,
	}
}

// Flags adds every setting of d to fs, with d's values as defaults.
func (d *Dev) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&d.Nodes, "nodes", d.Nodes, "`number` of cache nodes")
	fs.BoolVar(&d.Demo, "demo", d.Demo, "keep a small workload running under /demo/")
	fs.StringVar(&d.DataDir, "data-dir", d.DataDir, "`directory` for the data (default: a temporary one, removed at the end)")
	fs.IntVar(&d.EtcdPort, "etcd-port", d.EtcdPort, "etcd's client `port`")
	fs.IntVar(&d.ClientPort, "client-port", d.ClientPort, fmt.Sprintf("the first node's client `port`; the next three are its peer, raft and gossip ports; each further node's are %d higher", devStride))
	fs.IntVar(&d.HTTPPort, "http-port", d.HTTPPort, fmt.Sprintf("the first node's HTTP `port`; each further node's is %d higher", devStride))
	fs.IntVar(&d.Shards, "shards", d.Shards, "`number` of shards; 0: one for each node")
	fs.IntVar(&d.Replicas, "replicas", d.Replicas, "`number` of nodes that have each shard; fewer when there are fewer nodes")
	fs.Var((*level)(&d.LogLevel), "log-level", "lowest `level` to log: debug, info, warn or error")
}

// Port is one port that a dev cluster listens on.
type Port struct {
	// Flag is the flag that changes it.
	Flag string
	// Use names its user, such as "node-2 raft".
	Use string
	// Number is the port on 127.0.0.1.
	Number int
}

// Ports are all ports of the cluster, etcd's first.
func (d Dev) Ports() []Port {
	ports := []Port{
		{"etcd-port", "etcd", d.EtcdPort},
	}
	for i := range d.Nodes {
		name, client := devName(i), d.ClientPort+i*devStride
		ports = append(
			ports,
			Port{"client-port", name + " clients", client},
			Port{"client-port", name + " peers", client + 1},
			Port{"client-port", name + " raft", client + 2},
			Port{"client-port", name + " gossip", client + 3},
			Port{"http-port", name + " HTTP", d.HTTPPort + i*devStride},
		)
	}
	return ports
}

// Validate reports all mistakes together, each with its flag. It opens no socket.
func (d Dev) Validate() error {
	var m mistakes
	if d.Nodes < 1 || d.Nodes > maxDevNodes {
		m.addf("--nodes %d: use 1 to %d", d.Nodes, maxDevNodes)
		return errors.Join(append(m, d.validateNode())...)
	}
	used, wrong := map[int]Port{}, map[string]bool{}
	for _, p := range d.Ports() {
		if p.Number < 1 || p.Number > 65535 {
			if !wrong[p.Flag] {
				m.addf("--%s: port %d (%s) is not between 1 and 65535", p.Flag, p.Number, p.Use)
			}
			wrong[p.Flag] = true
			continue
		}
		if q, ok := used[p.Number]; ok {
			m.addf("--%s and --%s: port %d would be used by %s and by %s", q.Flag, p.Flag, p.Number, q.Use, p.Use)
		}
		used[p.Number] = p
	}
	return errors.Join(append(m, d.validateNode())...)
}

// validateNode checks the settings of every node.
func (d Dev) validateNode() error {
	var m mistakes
	Config{Shards: d.Shards, Replicas: d.Replicas}.validateKeys(&m)
	return errors.Join(m...)
}

// Node returns the settings of node i, from 0, with its data in dir. d is valid.
func (d Dev) Node(i int, dir string) Config {
	client := d.ClientPort + i*devStride
	c := Defaults()
	c.Name = devName(i)
	c.DataDir = filepath.Join(dir, c.Name)
	c.Etcd.Endpoints = []string{d.EtcdEndpoint()}
	c.Listen = Listen{
		Client: onLoopback(client),
		Peer:   onLoopback(client + 1),
		Raft:   onLoopback(client + 2),
		Gossip: onLoopback(client + 3),
		HTTP:   onLoopback(d.HTTPPort + i*devStride),
	}
	if i > 0 {
		c.Join = []string{onLoopback(d.ClientPort + 3)}
	}
	if voters := d.voters(); i < voters {
		c.BootstrapExpect = voters
	}
	if c.Shards = d.Shards; c.Shards == 0 {
		c.Shards = d.Nodes
	}
	c.Replicas = min(d.Replicas, d.Nodes)
	c.Elastic.AutoOwners = false // so that each node is an owner
	c.LogLevel = d.LogLevel
	return c
}

// EtcdEndpoint returns the URL of the cluster's etcd.
func (d Dev) EtcdEndpoint() string { return "http://" + onLoopback(d.EtcdPort) }

// voters returns the number of founding nodes: 5 of at least 7 nodes, 3 of at least 3, else 1.
func (d Dev) voters() int {
	switch {
	case d.Nodes >= 7:
		return 5
	case d.Nodes >= 3:
		return 3
	}
	return 1
}

func devName(i int) string { return fmt.Sprintf("node-%d", i+1) }

func onLoopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
