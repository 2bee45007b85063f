package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that this process has started. It never outlives this
// process: the kernel kills it when this process dies.
type Process struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it is gone
	reason error         // set then
}

// Start runs a program, with its output in the file at log. It ends with Kill.
func Start(log, bin string, args ...string) (*Process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	p := &Process{cmd: exec.Command(bin, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process
		// ends, so that thread must stay as long as the process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if p.reason = p.cmd.Wait(); p.reason == nil {
			p.reason = errors.New("exit status 0")
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPU returns the CPU time that the process has used, also after its end.
func (p *Process) CPU() (time.Duration, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(), nil
	default:
		return CPU([]int{p.PID()})
	}
}

// Kill ends the process and waits until it is gone. It may be called twice.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Interrupt asks the process to end and waits until it is gone.
func (p *Process) Interrupt() {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	<-p.ended
}

// Err returns how the process ended, or nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.ended:
		return p.reason
	default:
		return nil
	}
}
