// Package tier runs cache nodes in front of an etcd, each in a separate process, for tests that
// must not depend on the module of the nodes.
//
// Read [Start] first. A node never outlives the process that started it.
package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Config configures Start.
type Config struct {
	// Binary is cachenode's path. Required.
	Binary string
	// Dir is the directory of data and logs. Required.
	Dir string
	// Etcd is the URL of etcd's clients. Required.
	Etcd string
	// Args are additional arguments of every node.
	Args []string
}

// size is the number of nodes of a usual cluster.
const size = 3

// Tier is a cluster of three nodes.
type Tier struct {
	Nodes []*Node
}

// Node is one cache node. Its methods belong to one goroutine.
type Node struct {
	// Client and HTTP are host:port. Restarts keep them.
	Client, HTTP string

	cmd  func() *exec.Cmd
	log  string
	live *life // nil: killed, or never started
}

// life is one run of the process.
type life struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it has ended
}

// Start returns when all nodes are ready. Stop ends them.
func Start(ctx context.Context, cfg Config) (*Tier, error) {
	const each = 5
	addrs, err := FreeAddrs(size * each)
	if err != nil {
		return nil, err
	}
	g := &Tier{}
	for i := range size {
		name, a := "node-"+strconv.Itoa(i+1), addrs[i*each:]
		args := []string{
			"run", "--name", name, "--data-dir", filepath.Join(cfg.Dir, name), "--etcd", cfg.Etcd,
			"--listen", a[0], "--peer-listen", a[1], "--raft-listen", a[2], "--gossip-listen", a[3], "--http-listen", a[4],
			"--bootstrap-expect", strconv.Itoa(size),
		}
		for j := range size {
			args = append(args, "--join", addrs[j*each+3])
		}
		args = append(args, cfg.Args...)
		g.Nodes = append(g.Nodes, &Node{
			Client: a[0], HTTP: a[4], log: filepath.Join(cfg.Dir, name+".log"),
			cmd: func() *exec.Cmd { return exec.Command(cfg.Binary, args...) },
		})
	}
	for _, n := range g.Nodes {
		if err = n.Start(); err != nil {
			break
		}
	}
	if err == nil {
		err = g.WaitReady(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, g.Logs(2000))
		g.Stop()
		return nil, err
	}
	return g, nil
}

// Stop kills all nodes. It may be called twice.
func (g *Tier) Stop() {
	for _, n := range g.Nodes {
		n.Kill()
	}
}

// WaitReady waits until all nodes report that they are ready.
func (g *Tier) WaitReady(ctx context.Context) error {
	for _, n := range g.Nodes {
		if err := n.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints returns the addresses for etcd's clients.
func (g *Tier) Endpoints(scheme string) []string {
	var urls []string
	for _, n := range g.Nodes {
		// By name, as in the certificates of tests.
		urls = append(urls, scheme+"://"+strings.Replace(n.Client, "127.0.0.1", "localhost", 1))
	}
	return urls
}

// Logs returns the last bytes of every node's log.
func (g *Tier) Logs(bytes int) string {
	var b strings.Builder
	for _, n := range g.Nodes {
		text, err := os.ReadFile(n.log)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", n.log, text[max(0, len(text)-bytes):])
	}
	return b.String()
}

// Start starts a node with its existing data.
func (n *Node) Start() error {
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	run := &life{cmd: n.cmd(), ended: make(chan struct{})}
	run.cmd.Stdout, run.cmd.Stderr = out, out
	begun := make(chan error)
	go func() {
		Lasting(run.cmd)
		defer out.Close()
		err := run.cmd.Start()
		begun <- err
		if err == nil {
			_ = run.cmd.Wait() // its log has the reason
			close(run.ended)
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("start a cache node: %w", err)
	}
	n.live = run
	return nil
}

// Lasting makes the kernel kill a process that is about to be started when this process dies. The
// calling goroutine must start the process, wait for it, and then return: the kernel watches the
// thread.
func Lasting(cmd *exec.Cmd) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Kill ends a node with SIGKILL and returns once the process has ended.
func (n *Node) Kill() { n.end(syscall.SIGKILL) }

// Drain ends a node with SIGTERM, as operators do, and returns once the process has ended.
func (n *Node) Drain() { n.end(syscall.SIGTERM) }

func (n *Node) end(signal os.Signal) {
	if n.live == nil {
		return
	}
	_ = n.live.cmd.Process.Signal(signal) // it may have ended
	<-n.live.ended
	n.live = nil
}

func (n *Node) waitReady(ctx context.Context) error {
	for {
		err := Answers(ctx, http.DefaultClient, "http://"+n.HTTP+"/readyz")
		if err == nil {
			return nil
		}
		if n.live == nil {
			return fmt.Errorf("%s is not running", n.log)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-n.live.ended:
			return fmt.Errorf("%s has ended before it was ready", n.log)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", n.log, errors.Join(ctx.Err(), err))
		}
	}
}

// Answers requests a page and fails unless the status is 200.
func Answers(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	why, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, why)
	}
	return err
}

// FreeAddrs returns addresses on loopback that are free for TCP and UDP. They are below the ports
// of outgoing connections, so that a killed process finds its own addresses free when it restarts.
func FreeAddrs(n int) ([]string, error) {
	var out []string
	for range 10_000 {
		if len(out) == n {
			return out, nil
		}
		port := 10_000 + rand.IntN(22_000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if !slices.Contains(out, addr) && free(addr) {
			out = append(out, addr)
		}
	}
	return nil, fmt.Errorf("found %d free ports of %d", len(out), n)
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return u.Close() == nil
}
