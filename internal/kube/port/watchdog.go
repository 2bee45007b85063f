package port

import (
	"net/http"
	"sync"
	"time"
)

// Watchdog ends the response to a watch if a write takes too long. A deadline for each write would cost two
// messages to the connection's goroutine.
type Watchdog struct {
	w       http.ResponseWriter
	control *http.ResponseController
	after   time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // guarded by mu; the handler returns, and must not use the writer any more
}

// cutter is a writer over HTTP/2. A reflector lists again if the stream of its watch is reset; it resumes
// if the watch or the connection ends, even within an event.
type cutter interface{ Cut() }

// NewWatchdog returns a watchdog that ends writes to w after a time. control must be the controller of w.
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

// Begin marks the begin of a write.
func (d *Watchdog) Begin() { d.timer.Reset(d.after) }

// Pause marks the end of a write.
func (d *Watchdog) Pause() { d.timer.Stop() }

// End stops the watchdog: it does not touch the writer any more.
func (d *Watchdog) End() {
	d.timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}
