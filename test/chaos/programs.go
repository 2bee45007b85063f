package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// program is a program of examples/ as a process. The run compares its output with etcd whenever
// the writes pause.
type program struct {
	name   string
	bin    string
	args   []string
	dies   *rand.Rand // decides when it is repeatedly killed; nil: never
	oracle oracle     // owned by judge

	printed, starts int // judged, since the last count; owned by judge

	mu    sync.Mutex
	lines [][]byte // guarded by mu; not judged yet; a nil line is a start of the program
	ended error    // guarded by mu; why it ended unexpectedly
}

// oracle compares a program's output with etcd.
type oracle interface {
	// began is called at each start of the program.
	began()
	// take judges a line. It returns [errAhead] if the truth does not have it yet.
	take(line []byte, now *era) error
	// complete returns an error if output of the program up to rev is missing.
	complete(now *era, rev kv.Revision) error
}

// errAhead reports that the truth does not have the events of a line yet.
var errAhead = errors.New("the truth is behind the program")

// newPrograms returns the programs, over the keys of the first prefix. They are in cfg.Dir's
// parent, see [buildPrograms].
func newPrograms(cfg Config, nodes []target, keys keyspace, rng *rand.Rand) []*program {
	r := keys.anyPrefix()
	args := append([]string{keys.prefix(0)}, addrs(nodes)...)
	position := filepath.Join(cfg.Dir, "worker.position")
	all := []*program{
		{name: "differences", args: args, oracle: &differences{copied: copied{r: r}}},
		{name: "worker", args: append([]string{position}, args...), dies: rng, oracle: &worker{copied: copied{r: r}}},
		{name: "settings", args: args, oracle: &settings{r: r}},
	}
	for _, p := range all {
		p.bin = filepath.Join(cfg.programs, p.name)
	}
	return all
}

// run keeps the program running until ctx ends. A program that ends unexpectedly is not restarted;
// its end is a violation.
func (p *program) run(ctx context.Context) error {
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		err := p.live(ctx)
		if err != nil && ctx.Err() == nil {
			p.mu.Lock()
			p.ended = err
			p.mu.Unlock()
			return nil
		}
	}
	return ctx.Err()
}

// live runs the program once. It returns nil if it has killed the program.
func (p *program) live(ctx context.Context) error {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	cmd := exec.CommandContext(ctx, p.bin, p.args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.keep(nil)
	if err := cmd.Start(); err != nil {
		return err
	}
	began, lives := time.Now(), p.lifetime()
	killed := false
	for lines := bufio.NewReader(out); err == nil; {
		var line []byte
		if line, err = lines.ReadBytes('\n'); err == nil { // half a line is of an unfinished update
			p.keep(line)
		}
		// Kill at a line: the program then makes progress in each life, and may not have saved its
		// position.
		if time.Since(began) > lives && !killed {
			killed = true
			kill()
		}
	}
	if err := cmd.Wait(); !killed {
		return errors.Join(errors.New("the program ended early"), err)
	}
	return nil
}

// lifetime returns the minimum lifetime of the program.
func (p *program) lifetime() time.Duration {
	if p.dies == nil {
		return math.MaxInt64
	}
	return time.Duration(500+p.dies.IntN(2500)) * time.Millisecond
}

func (p *program) keep(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

// judge waits until the program has printed everything up to rev, and judges its output.
func (p *program) judge(ctx context.Context, t *truth, rev int64, within time.Duration) []check.Violation {
	err := poll(ctx, within, p.name, func() error {
		now := t.now.Load()
		if err := p.drain(now); err != nil {
			return err
		}
		return p.oracle.complete(now, kv.Revision(rev))
	})
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return []check.Violation{{
		Promise: check.PromiseEqual, Watcher: "program " + p.name, Revision: kv.Revision(rev),
		Expected: "the state of etcd", Got: err.Error(),
	}}
}

// count adds the numbers of lines and starts since the last call to a cycle.
func (p *program) count(c *Cycle) {
	if p.dies != nil {
		c.Deaths += p.starts
	}
	c.Printed += p.printed
	p.printed, p.starts = 0, 0
}

// drain passes all lines that the truth has to the oracle.
func (p *program) drain(now *era) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.lines) > 0 {
		if p.lines[0] == nil {
			p.oracle.began()
			p.starts++
		} else if err := p.oracle.take(p.lines[0], now); errors.Is(err, errAhead) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w in %.200s", errHopeless, err, p.lines[0])
		} else {
			p.printed++
		}
		p.lines = p.lines[1:]
	}
	if p.ended != nil {
		return fmt.Errorf("%w: it ended: %w", errHopeless, p.ended)
	}
	return nil
}
