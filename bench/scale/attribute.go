package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// purpose classifies CPU time of a node by functions on the stack. Earlier purposes take
// precedence.
type purpose struct {
	name string
	// of has parts of function names.
	of []string
}

// The purposes that [attributed] counts in addition to those of purposes.
const (
	// transport is gRPC and the in-memory network, without a handler on the stack.
	transport = "gRPC between nodes and to etcd"
	// golang is the scheduler, timers and garbage collection, caused by all other purposes.
	golang = "the Go runtime"
	others = "all else"
)

// gossiping and mapping are the purposes whose sum docs/scaling.md bounds.
const (
	gossiping = "gossip"
	mapping   = "the shard map: raft, its distribution, planning"
)

func purposes() []purpose {
	return []purpose{
		{"etcd, in the same process", []string{"/sim/memetcd."}},
		{gossiping, []string{"/internal/membership.", "hashicorp/memberlist."}},
		{"watches at etcd, and etcd's revision", []string{"/internal/etcd.", "node.(*clock)", "/internal/data/lineage.", "/internal/ops/delivery.", "/internal/auth/etcdauth."}},
		{mapping, []string{
			"/internal/control/placement.", "hashicorp/raft.", "/internal/shard.", "/internal/control/",
			"node.(*Node).announce", "node.(*Node).Status", ").FollowMap", ").WatchShardMap", "mapStream",
		}},
		{"copies of shards, and heartbeats of their sources", []string{"/internal/cache.", "/internal/replica.", "/internal/router.", "/internal/history.", "/internal/data/copies.", "/internal/data/verify.", "node.(*suspects)"}},
		{others, []string{"shardwatch/internal/node.", "shardwatch/internal/edge/server.", "shardwatch/internal/edge/native.", "shardwatch/internal/edge/syncbatch.", "shardwatch/internal/edge/pump.", "shardwatch/internal/edge/etcdapi.", "shardwatch/internal/edge/etcdwatch.", "shardwatch/internal/edge/etcdview."}},
		{transport, []string{"google.golang.org/grpc", "golang.org/x/net/http2", "shardwatch/internal/testing/sim."}},
	}
}

// profiler takes CPU profiles outside of a bubble of fake time: the reader of a profile waits for
// the CPU, and fake time would not advance.
type profiler struct {
	// All are created outside.
	starts, stops chan struct{}
	started       chan error
	stopped       chan []byte
}

func newProfiler() *profiler {
	p := &profiler{make(chan struct{}), make(chan struct{}), make(chan error), make(chan []byte)}
	go func() {
		for range p.starts {
			var out bytes.Buffer
			err := pprof.StartCPUProfile(&out)
			if p.started <- err; err != nil {
				continue
			}
			<-p.stops
			pprof.StopCPUProfile()
			p.stopped <- out.Bytes()
		}
	}()
	return p
}

func (p *profiler) close() { close(p.starts) }

func (p *profiler) start() error {
	p.starts <- struct{}{}
	return <-p.started
}

func (p *profiler) stop() []byte {
	p.stops <- struct{}{}
	return <-p.stopped
}

// share is CPU time by purpose.
type share struct {
	name string
	took time.Duration
}

// attributed sums the samples of a CPU profile by purpose, in the order of purposes. It needs the
// go command.
func attributed(profile []byte) ([]share, error) {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "cpu")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command("go", "tool", "pprof", "-traces", "-unit=ms", file).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w", err)
	}
	return sumUp(out)
}

// sumUp sums the output of pprof -traces: for each stack it has a line with its milliseconds and
// the innermost function, and one line for each function further out.
func sumUp(traces []byte) ([]share, error) {
	all := purposes()
	sums := make([]share, 0, len(all)+1)
	for _, p := range all {
		sums = append(sums, share{name: p.name})
	}
	sums = append(sums, share{name: golang})
	blocks := bytes.Split(traces, []byte("-----------+"))
	for _, block := range blocks[min(1, len(blocks)):] {
		_, stack, _ := strings.Cut(string(block), "\n")
		fields := strings.Fields(stack)
		if len(fields) == 0 {
			continue
		}
		ms, err := strconv.ParseFloat(strings.TrimSuffix(fields[0], "ms"), 64)
		if err != nil {
			return nil, fmt.Errorf("go tool pprof -traces prints a stack that begins with %q", fields[0])
		}
		at := len(all)
		for i, p := range all {
			if p.on(stack) {
				at = i
				break
			}
		}
		sums[at].took += time.Duration(ms * float64(time.Millisecond))
	}
	return sums, nil
}

func (p purpose) on(stack string) bool {
	for _, of := range p.of {
		if strings.Contains(stack, of) {
			return true
		}
	}
	return false
}
