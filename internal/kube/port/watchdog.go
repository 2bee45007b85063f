package port

import (
	"net/http"
	"sync"
	"time"
)

// Watchdog ends the answer to a watch if a write takes too long. A deadline for each write would cost two
// messages to the connection's goroutine.
type Watchdog struct {
	w       http.ResponseWriter
	control *http.ResponseController
	after   time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // guarded by mu; the handler returns, and the writer is not its any more
}

// cutter is a writer over HTTP/2. A reflector whose watch ends with a reset of its stream lists again;
// one whose watch ends, or whose connection does, within an event or not, resumes.
type cutter interface{ Cut() }

// NewWatchdog returns a watchdog of a writer, whose writes may take a time. control is that of w.
func NewWatchdog(w http.ResponseWriter, control *http.ResponseController, after time.Duration) *Watchdog {
	d := &Watchdog{w: w, control: control, after: after}
	d.timer = time.AfterFunc(after, d.bark)
	d.timer.Stop()
	return d
}

// bark ends the write.
func (d *Watchdog) bark() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	if w, ok := d.w.(cutter); ok {
		w.Cut()
	} else {
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
