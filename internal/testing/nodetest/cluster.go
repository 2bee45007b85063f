package nodetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/freeport"
)

// Config configures a cluster.
type Config struct {
	// Binary is cachenode's path; see Build. Required.
	Binary string
	// Dir is the directory of data and logs. Required.
	Dir string
	// Etcd are the endpoints of etcd, comma separated. Required.
	Etcd string
	// Nodes is the number of nodes; 0: three.
	Nodes int
	// Args are further arguments of every node.
	Args []string
	// Env is added to this process's environment for every node.
	Env []string
	// Under is a program with arguments that runs each node: the node's command
	// is appended to it; empty: none.
	Under []string
	// HTTPS: the HTTP port speaks TLS, by Args. Its certificate is not verified.
	HTTPS bool
}

// Cluster is a cluster of node processes. Its methods belong to one goroutine.
type Cluster struct {
	Nodes []*Node
}

// Start runs a cluster and returns when all of its nodes are ready. Stop ends
// it.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	const each = 5
	addrs, err := freeport.Take(cfg.Nodes * each)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	var gossip []string
	for i := range cfg.Nodes {
		gossip = append(gossip, addrs[i*each+3])
	}
	for i := range cfg.Nodes {
		name, a := "node-"+strconv.Itoa(i+1), addrs[i*each:]
		args := []string{
			"run", "--name", name, "--data-dir", filepath.Join(cfg.Dir, name), "--etcd", cfg.Etcd,
			"--listen", a[0], "--peer-listen", a[1], "--raft-listen", a[2], "--gossip-listen", a[3], "--http-listen", a[4],
			"--bootstrap-expect", strconv.Itoa(min(cfg.Nodes, 3)),
		}
		for j, g := range gossip {
			if j != i {
				args = append(args, "--join", g)
			}
		}
		command := slices.Concat(cfg.Under, []string{cfg.Binary}, args, cfg.Args)
		n := &Node{
			Name: name, Client: a[0], Peer: a[1], HTTP: a[4],
			data: filepath.Join(cfg.Dir, name), scheme: "http",
			proc: &process{name: name, bin: command[0], args: command[1:], env: cfg.Env, log: filepath.Join(cfg.Dir, name+".log")},
		}
		if cfg.HTTPS {
			n.scheme = "https"
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, n := range c.Nodes {
		if err := n.proc.start(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs(2000))
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Stop kills all nodes. It may be called twice.
func (c *Cluster) Stop() {
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Endpoints returns host:port of every node, for clients.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Client)
	}
	return out
}

// WaitReady waits until all nodes are ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Logs returns the last bytes of every node's log, for a report of a failure.
func (c *Cluster) Logs(bytes int64) string {
	var b strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "--- %s (%s)\n%s\n", n.Name, n.proc.log, n.proc.tail(bytes))
	}
	return b.String()
}

// Node is one cache node.
type Node struct {
	Name string
	// Client, Peer and HTTP are host:port. They do not change with restarts.
	Client, Peer, HTTP string

	data, scheme string
	proc         *process
}

// PID returns the process ID, or 0 when the node does not run.
func (n *Node) PID() int { return n.proc.pid() }

// Kill ends the node with SIGKILL and returns once it is gone. It has no effect
// if the node does not run.
func (n *Node) Kill() { n.proc.kill() }

// Start restarts a killed node with its data.
func (n *Node) Start() error { return n.proc.start() }

// Log returns the last bytes of the node's log.
func (n *Node) Log(bytes int64) string { return n.proc.tail(bytes) }

// LogFile is the path of the node's log.
func (n *Node) LogFile() string { return n.proc.log }

// End returns how the last process ended.
func (n *Node) End() error { return n.proc.reason() }

// Wipe removes the data of a node that does not run.
func (n *Node) Wipe() error {
	if n.PID() != 0 {
		return fmt.Errorf("wipe %s: it runs", n.Name)
	}
	if err := os.RemoveAll(n.data); err != nil {
		return fmt.Errorf("wipe %s: %w", n.Name, err)
	}
	return nil
}

// WaitReady waits until the node reports that it is ready. It fails if the
// process ends before that.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := n.ready(ctx)
		if err == nil {
			return nil
		}
		if n.PID() == 0 {
			return fmt.Errorf("%s has ended before it was ready: %w", n.Name, n.proc.reason())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", n.Name, errors.Join(ctx.Err(), err))
		}
	}
}

func (n *Node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.scheme+"://"+n.HTTP+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", n.Name, err)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", n.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s is not ready: %s", n.Name, strings.TrimSpace(string(why)))
	}
	return nil
}
