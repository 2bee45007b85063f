package api

import (
	"net/http"
	"sync"
	"time"
)

// watchdog ends a write that takes too long. A deadline for each write would cost two
// messages to the connection's goroutine.
type watchdog struct {
	control *http.ResponseController
	after   time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // guarded by mu; the handler returns, and the writer is not its any more
}

func newWatchdog(control *http.ResponseController, after time.Duration) *watchdog {
	d := &watchdog{control: control, after: after}
	d.timer = time.AfterFunc(after, d.bark)
	d.timer.Stop()
	return d
}

// bark ends the write.
func (d *watchdog) bark() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		_ = d.control.SetWriteDeadline(time.Unix(1, 0)) // the connection may have gone
	}
}

// begin begins a write, and pause ends it.
func (d *watchdog) begin() { d.timer.Reset(d.after) }

func (d *watchdog) pause() { d.timer.Stop() }

// end ends the use of the writer.
func (d *watchdog) end() {
	d.timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}
