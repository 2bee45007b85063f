package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// process is a program, running or ended, with its output in a file. It never outlives this
// process: the kernel kills it when its parent dies.
type process struct {
	name, bin string
	args      []string
	env       []string // in addition to this process's
	log       string   // path of the file; every start appends to it

	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu; nil: not running
	done chan struct{} // guarded by mu; closed when cmd has ended
	err  error         // guarded by mu; how cmd ended
}

// start runs the program. It fails if the program is already running.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("start %s: it is already running", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd := exec.Command(p.bin, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends, so that thread
		// must exist as long as the process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		p.mu.Lock()
		p.err, p.cmd = err, nil
		p.mu.Unlock()
		close(done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// signal sends s to the process. It fails if the process is not running.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%v to %s: it is not running", s, p.name)
	}
	return p.cmd.Process.Signal(s)
}

// running reports whether the process is running, and otherwise how it ended.
func (p *process) running() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil, p.err
}

// wait waits until the process has ended.
func (p *process) wait() {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done != nil {
		<-done
	}
}

// kill sends SIGKILL and waits for the end. It is no error if the process is not running.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		if on, _ := p.running(); on {
			return err
		}
	}
	p.wait()
	return nil
}

// tail returns the last bytes of the log.
func (p *process) tail(n int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > n {
		_, _ = f.Seek(-n, 2)
	}
	b := make([]byte, n)
	k, _ := f.Read(b)
	return string(b[:k])
}

// pid returns the process ID; 0: it is not running.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}
