package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// Attack is one attack on a node and its other clients.
type Attack struct {
	Name, About string
	// API is the API of the attack.
	API string
	// Right is the least right that reaches the code under attack.
	right right
	// run attacks until ctx ends.
	run func(ctx context.Context, a *attacker) error
}

// in reports whether the attack exists in a mode: without TLS no call is forbidden, and names in
// certificates are not checked. Controls run once.
func (a *Attack) in(mode string) bool {
	if mode == plain {
		return a.API != peerAPI && a.Name != "administers" && a.Name != "leases"
	}
	return !a.controls()
}

// controls reports whether the attack is a control, which does not touch the node.
func (a *Attack) controls() bool {
	return a.Name == control || a.Name == machineControl || a.Name == etcdControl
}

// readsLog reports whether the attack makes the node read etcd's log.
func (a *Attack) readsLog() bool {
	return a.Name == "catch-up" || a.Name == "catch-up-keys" || a.Name == "json-catch-up"
}

// counterpart returns the control for the rounds after the attack. An attack that makes etcd read
// its log is compared with a watch that does so at etcd itself.
func (a *Attack) counterpart() string {
	if a.readsLog() {
		return etcdControl
	}
	return machineControl
}

// logRound is the minimum length of a round that makes the node read etcd's log. The node keeps the result for a
// minute, a client pauses after its reads, and etcd blocks all writes for some 0.1 s meanwhile: more than one percent
// of a shorter round, however rarely it is read.
const logRound = 30 * time.Second

// round returns the length of a round of the attack or of its control.
func (a *Attack) round(hot time.Duration) time.Duration {
	if a.readsLog() {
		return max(hot, logRound)
	}
	return hot
}

// order is the input of an attacker's process.
type order struct {
	Attack             string
	Client, Peer, HTTP string // host:port
	Etcd               string // host:port, without TLS
	PKI                pki
	// Cores is the number of cores for the attack [machineControl]; 0: as many as it gets.
	Cores float64
}

// attacker is one attacker. Its methods may be called from any goroutine.
type attacker struct {
	order
	tls *tls.Config // nil: without TLS

	mu      sync.Mutex
	done    map[string]int // guarded by mu
	refused map[string]int // by reason; guarded by mu
	breach  string         // guarded by mu
}

// report counts the actions of an attacker so far.
type report struct {
	Done, Refused map[string]int
	// Breach is an answer that the attacker had no right to.
	Breach string
	// Error is the reason why the attacker cannot continue.
	Error string
}

// did counts actions against the node.
func (a *attacker) did(what string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done[what] += n
}

// was counts an answer; errors by reason.
func (a *attacker) was(what string, err error) {
	if err == nil {
		a.did(what, 1)
		return
	}
	reason := status.Code(err).String()
	if reason == "Unknown" {
		reason = "connection failed"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused[reason]++
}

// got records an answer that the attacker has no right to.
func (a *attacker) got(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breach = what
}

func (a *attacker) report() report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return report{Done: maps.Clone(a.done), Refused: maps.Clone(a.refused), Breach: a.breach}
}

func (r *report) empty() bool { return len(r.Done)+len(r.Refused) == 0 }

// String shows a report in one line.
func (r report) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.Done)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Done[what], what))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		parts = append(parts, fmt.Sprintf("%d × %s", r.Refused[reason], reason))
	}
	return strings.Join(parts, ", ")
}

// dial returns a gRPC connection, which connects on its first use.
func (a *attacker) dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+a.Client, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds(a.tls)), grpc.WithContextDialer(connect), grpc.WithAuthority("127.0.0.1"),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec()), grpc.MaxCallRecvMsgSize(1<<31-1)),
	}, opts...)...)
}

// connect opens a connection from a separate source address: nodes count connections by address,
// and the real crowd would connect from another machine.
func connect(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	return d.DialContext(ctx, "tcp", addr)
}

// tcp connects to an address; with TLS it names the protocol (ALPN).
func (a *attacker) tcp(ctx context.Context, addr, protocol string) (net.Conn, error) {
	conn, err := connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if a.tls == nil {
		return conn, nil
	}
	cfg := a.tls.Clone()
	cfg.ServerName, cfg.NextProtos = "127.0.0.1", []string{protocol}
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// many repeats n copies of f concurrently until ctx ends. A copy pauses after an error.
func (a *attacker) many(ctx context.Context, n int, f func(context.Context, int) error) error {
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() {
			for ctx.Err() == nil {
				if err := f(ctx, i); err != nil && ctx.Err() == nil {
					a.was("", err)
					_ = pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	g.Wait()
	return nil
}

// Perform runs an attacker's process: it reads its order from in, attacks until in ends, and writes
// its reports to out, one line of JSON each.
func Perform(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	a := &attacker{done: map[string]int{}, refused: map[string]int{}}
	if err := json.Unmarshal(line, &a.order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	go func() {
		_, _ = lines.ReadByte() // ends with the parent process
		cancel()
	}()
	all := Attacks()
	at := slices.IndexFunc(all, func(x Attack) bool { return x.Name == a.Attack })
	if at < 0 {
		return fmt.Errorf("there is no attack %q", a.Attack)
	}
	if a.PKI != "" {
		if a.tls, err = a.PKI.client(all[at].right); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- all[at].run(ctx, a) }()
	tell := json.NewEncoder(out)
	for {
		select {
		case <-time.After(100 * time.Millisecond):
			if err := tell.Encode(a.report()); err != nil {
				return err
			}
		case err := <-ended:
			r := a.report()
			if err != nil && ctx.Err() == nil {
				r.Error = err.Error()
			}
			if err := tell.Encode(r); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
	}
}

// launch starts an attacker in a separate process and returns once it has begun. The returned function ends it and
// returns its report.
func launch(ctx context.Context, cfg *Config, o order) (pid int, end func() (report, error), err error) {
	command, nice := cfg.Program, cfg.Nice
	if nice == Idle {
		command, nice = append([]string{"chrt", "--idle", "0"}, command...), 0
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), AttackEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	started := make(chan error)
	go func() {
		// A process inherits the priority of the thread that starts it. This thread stays locked,
		// so it ends with this function.
		runtime.LockOSThread()
		err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		return 0, nil, fmt.Errorf("start an attacker: %w", err)
	}
	last, begun := make(chan report, 1), make(chan struct{})
	go func() {
		var r report
		begin := sync.OnceFunc(func() { close(begun) })
		defer begin()
		for lines := json.NewDecoder(out); ; {
			var next report
			if lines.Decode(&next) != nil {
				last <- r
				return
			}
			if r = next; !r.empty() || r.Error != "" || o.Attack == control {
				begin()
			}
		}
	}()
	end = func() (report, error) {
		_ = cmd.Process.Kill() // the process may have ended
		r := <-last
		_ = cmd.Wait() // killed
		if r.Error != "" {
			return r, errors.New(r.Error)
		}
		return r, nil
	}
	if err := json.NewEncoder(in).Encode(o); err != nil {
		_, broken := end()
		return 0, nil, errors.Join(fmt.Errorf("give an attacker its order: %w", err), broken)
	}
	select {
	case <-begun:
	case <-time.After(headStart):
	case <-ctx.Done():
	}
	return cmd.Process.Pid, end, nil
}

// headStart bounds the time until an attacker's first action against the node.
const headStart = 3 * time.Minute

// AttackEnv marks the process of an attacker, for programs without arguments: tests.
const AttackEnv = "SHARDWATCH_HOSTILE_ATTACK"
