//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/freeport"
)

// ProcessConfig configures NewProcess.
type ProcessConfig struct {
	// Binary is etcd's; empty: see Binary.
	Binary string
	// Dir is its data directory. Required.
	Dir string
	// ClientAddr is its address for clients, PeerAddr its address for other members;
	// empty: a free loopback port.
	ClientAddr, PeerAddr string
	// Cluster is etcd's --initial-cluster, and Name the member's name in it; empty: a
	// cluster of one member.
	Cluster, Name string
	// Args are further arguments.
	Args []string
	// Log receives its output; nil: discarded.
	Log io.Writer
}

// Process is an etcd member in a separate process. Its methods may be called
// from any goroutine, one at a time.
type Process struct {
	cfg  ProcessConfig
	addr string
	peer string

	mu  sync.Mutex
	run *running // nil while stopped; guarded by mu
}

// running is one life of the process.
type running struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it is gone
	reason error         // set then
}

// NewProcess chooses ports, and builds the binary if need be. It starts
// nothing.
func NewProcess(ctx context.Context, cfg ProcessConfig) (*Process, error) {
	if cfg.Dir == "" {
		return nil, errors.New("an etcd process needs a directory")
	}
	if cfg.Binary == "" {
		binary, err := Binary(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Binary = binary
	}
	free, err := freeport.Take(2)
	if err != nil {
		return nil, err
	}
	p := &Process{cfg: cfg, addr: cfg.ClientAddr, peer: cfg.PeerAddr}
	if p.addr == "" {
		p.addr = free[0]
	}
	if p.peer == "" {
		p.peer = free[1]
	}
	if p.cfg.Name == "" {
		p.cfg.Name, p.cfg.Cluster = "test", "test=http://"+p.peer
	}
	return p, nil
}

// StartProcess runs an etcd process until the test ends.
func StartProcess(t TB) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p, err := NewProcess(ctx, ProcessConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("prepare etcd: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Logf("end etcd: %v", err)
		}
	})
	if err := p.Start(ctx); err != nil {
		t.Fatalf("start etcd: %v", err)
		return nil
	}
	return p
}

// Endpoint returns host:port. It does not change with restarts.
func (p *Process) Endpoint() string { return p.addr }

// PID returns the process ID, or 0 while it is stopped.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.cmd.Process.Pid
}

// Start runs etcd and returns when it serves.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return errors.New("etcd is running already")
	}
	// Another etcd at the same address would answer for this one.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	_ = l.Close()
	args := append([]string{
		"--name=" + p.cfg.Name, "--data-dir=" + p.cfg.Dir, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://" + p.addr, "--advertise-client-urls=http://" + p.addr,
		"--listen-peer-urls=http://" + p.peer, "--initial-advertise-peer-urls=http://" + p.peer,
		"--initial-cluster=" + p.cfg.Cluster,
	}, p.cfg.Args...)
	// It ends with Stop, Kill or this process, not with the context of its start.
	cmd := exec.Command(p.cfg.Binary, args...)
	cmd.Stdout, cmd.Stderr = p.cfg.Log, p.cfg.Log
	cmd.SysProcAttr = child()
	run, started := &running{cmd: cmd, ended: make(chan struct{})}, make(chan error)
	go func() {
		// On Linux, etcd is killed when the thread that started it ends (see child):
		// that thread must stay as long as etcd does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(run.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			run.reason = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	if err := p.serves(ctx, run); err != nil {
		_ = cmd.Process.Kill() // it may be gone
		<-run.ended
		return err
	}
	p.run = run
	return nil
}

// serves waits until etcd reports that it is healthy.
func (p *Process) serves(ctx context.Context, run *running) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/health", nil)
		if err != nil {
			return fmt.Errorf("ask etcd for its health: %w", err)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-run.ended:
			return fmt.Errorf("etcd on %s ended at once: %w", p.addr, run.reason)
		case <-ctx.Done():
			return fmt.Errorf("wait for etcd on %s: %w", p.addr, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends etcd gracefully. It has no effect on a stopped etcd.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Kill ends etcd at once, also while it is paused. It has no effect on a stopped etcd.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// end sends a signal that ends the process and waits until it is gone. After 10 s
// it kills the process and fails.
func (p *Process) end(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	run := p.run
	p.run = nil
	if err := run.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end etcd: %w", err)
	}
	select {
	case <-run.ended:
		return nil
	case <-time.After(10 * time.Second):
		_ = run.cmd.Process.Kill() // it may be gone
		<-run.ended
		return errors.New("etcd did not end within 10 s and was killed")
	}
}

// Pause suspends etcd's process; its connections stay open.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Cont resumes a paused etcd.
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return errors.New("etcd is not running")
	}
	if err := p.run.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to etcd: %w", sig, err)
	}
	return nil
}
