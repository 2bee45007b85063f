package chaos

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// remotes are watches of a native client in a separate process, so that a fault can stop the client
// and not only the nodes. The process reads a [remoteJob] from its standard input and writes
// [remoteNote]s to its standard output, both with encoding/gob; the watchers of this process judge
// them.
type remotes struct {
	bin     string
	nodes   []target
	watches []*watcher

	mu   sync.Mutex
	proc *exec.Cmd // guarded by mu; nil: it is not running
}

// remoteJob is the input of the process: the nodes' addresses and the watches.
type remoteJob struct {
	Endpoints []string
	Wishes    []remoteWish
}

// remoteWish is a [wish] for the process.
type remoteWish struct {
	Watch    check.Watch
	Start    start
	Conflate time.Duration
}

// remoteNote is a call of a method of [observer].
type remoteNote struct {
	Watch int // index of the wish
	Call  remoteCall
	Op    check.Op
	// For a resume, or the error of the other calls.
	From, To, Reason string
	Behind           int64
}

// remoteCall names a method of [observer].
type remoteCall uint8

const (
	callSaw remoteCall = iota
	callResumed
	callNoticed
	callRelisted
	callResynced
	callEnded
)

// run watches until ctx ends. If the process ends earlier, its watches end.
func (r *remotes) run(ctx context.Context) {
	err := r.follow(ctx)
	if ctx.Err() != nil {
		return
	}
	for _, w := range r.watches {
		w.ended(fmt.Errorf("the client's process ended: %w", err))
	}
}

func (r *remotes) follow(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, r.bin, "clients")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // only the run itself handles an interrupt
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.set(cmd)
	defer r.set(nil)
	job := remoteJob{Endpoints: addrs(r.nodes)}
	for _, w := range r.watches {
		job.Wishes = append(job.Wishes, remoteWish{Watch: w.wish.watch, Start: w.wish.start, Conflate: w.wish.conflate})
	}
	err = gob.NewEncoder(in).Encode(job)
	for notes := gob.NewDecoder(out); err == nil; {
		var n remoteNote
		if err = notes.Decode(&n); err == nil {
			n.tell(r.watches[n.Watch])
		}
	}
	_ = in.Close() // ends the process
	return errors.Join(err, cmd.Wait())
}

func (r *remotes) set(cmd *exec.Cmd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc = cmd
}

// signal sends s to the process, if it is running.
func (r *remotes) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return nil
	}
	return r.proc.Process.Signal(s)
}

func (r *remotes) close() error { return nil }

// tell makes the noted call.
func (n remoteNote) tell(w observer) {
	switch n.Call {
	case callSaw:
		w.saw(n.Op, time.Now())
	case callResumed:
		w.resumed(resume{from: n.From, to: n.To, reason: errors.New(n.Reason), behind: n.Behind})
	case callNoticed:
		w.noticed()
	case callRelisted:
		w.relisted(errors.New(n.Reason))
	case callResynced:
		w.resynced()
	case callEnded:
		w.ended(errors.New(n.Reason))
	}
}

// Clients runs the native client of a [remotes]: it reads a job from in, and writes notes to out
// until in ends. The command `chaos clients` calls it.
func Clients(ctx context.Context, in io.Reader, out io.Writer) error {
	var job remoteJob
	if err := gob.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // until the run ends
	}()
	notes := &noteWriter{to: gob.NewEncoder(out), failed: cancel}
	var nodes []target
	for _, e := range job.Endpoints {
		nodes = append(nodes, target{e, e})
	}
	var watches []nativeWatch
	for i, w := range job.Wishes {
		watches = append(watches, nativeWatch{wish{watch: w.Watch, start: w.Start, conflate: w.Conflate}, newGate(), &remoteObserver{notes, i}})
	}
	n, err := newNatives(nodes, watches)
	if err != nil {
		return err
	}
	n.run(ctx)
	return n.close()
}

// noteWriter writes the notes of all watches, one at a time.
type noteWriter struct {
	mu     sync.Mutex
	to     *gob.Encoder // guarded by mu
	failed func()       // ends the process: the run has stopped reading
}

func (w *noteWriter) write(n remoteNote) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to.Encode(n) != nil {
		w.failed()
	}
}

// remoteObserver records the updates of one watch.
type remoteObserver struct {
	notes *noteWriter
	watch int
}

func (o *remoteObserver) saw(op check.Op, _ time.Time) {
	o.notes.write(remoteNote{Watch: o.watch, Call: callSaw, Op: op})
}

func (o *remoteObserver) resumed(r resume) {
	o.notes.write(remoteNote{Watch: o.watch, Call: callResumed, From: r.from, To: r.to, Reason: fmt.Sprint(r.reason), Behind: r.behind})
}

func (o *remoteObserver) noticed() { o.notes.write(remoteNote{Watch: o.watch, Call: callNoticed}) }

func (o *remoteObserver) relisted(err error) {
	o.notes.write(remoteNote{Watch: o.watch, Call: callRelisted, Reason: err.Error()})
}

func (o *remoteObserver) resynced() { o.notes.write(remoteNote{Watch: o.watch, Call: callResynced}) }

func (o *remoteObserver) ended(err error) {
	o.notes.write(remoteNote{Watch: o.watch, Call: callEnded, Reason: err.Error()})
}

// slept is unused: the process has no slow watches.
func (o *remoteObserver) slept() {}
