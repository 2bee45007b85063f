package port

import (
	"net/http"
	"sync"
	"time"
)

// Watchdog ends a write that takes too long. A deadline for each write would cost two
// messages to the connection's goroutine.
type Watchdog struct {
	control *http.ResponseController
	after   time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // guarded by mu; the handler returns, and the writer is not its any more
}

// NewWatchdog returns a watchdog of a writer, whose writes may take a time.
func NewWatchdog(control *http.ResponseController, after time.Duration) *Watchdog {
	d := &Watchdog{control: control, after: after}
	d.timer = time.AfterFunc(after, d.bark)
	d.timer.Stop()
	return d
}

// bark ends the write.
func (d *Watchdog) bark() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		_ = d.control.SetWriteDeadline(time.Unix(1, 0)) // the connection may have gone
	}
}

// Begin begins a write.
func (d *Watchdog) Begin() { d.timer.Reset(d.after) }

// Pause ends a write.
func (d *Watchdog) Pause() { d.timer.Stop() }

// End ends the use of the writer.
func (d *Watchdog) End() {
	d.timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}
