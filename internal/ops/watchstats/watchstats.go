package watchstats

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// Mode is how a watch is served. The values are those of the API's
// WatcherServeMode.
type Mode int32

// The modes.
const (
	Window    Mode = iota + 1 // events from the window
	Delta                     // a delta since its position
	Resync                    // the whole state, or a wait for it
	Conflated                 // the latest values, at an interval
	Log                       // events from etcd's log that the window no longer has

	modes
)

// String returns the mode as metrics name it.
func (r Mode) String() string {
	if r <= 0 || r >= modes {
		return "none"
	}
	return [...]string{"none", "window", "delta", "resync", "conflated", "log"}[r]
}

// Modes returns all modes.
func Modes() []Mode { return []Mode{Window, Delta, Resync, Conflated, Log} }

// Watch is the statistics of one watch. The zero Watch is unused: Open it.
type Watch struct {
	since time.Time

	bytes           atomic.Int64 // sent to this watch alone
	shared          atomic.Pointer[share]
	deltas, resyncs atomic.Int32
	mode            atomic.Int32
	// The window's watch; nil while the watch is not served from the window: then it has been at revision at
	// since left (Unix nanoseconds).
	window   atomic.Pointer[router.Watch]
	at, left atomic.Int64
	// Bytes at the last sample, and at the previous one.
	sample, before atomic.Int64
}

// Open starts the statistics.
func (w *Watch) Open(now time.Time) { w.since = now }

// Since returns the time of Open.
func (w *Watch) Since() time.Time { return w.since }

// Mode returns the current mode; 0: not served yet.
func (w *Watch) Mode() Mode { return Mode(w.mode.Load()) }

// Sent counts bytes.
func (w *Watch) Sent(bytes int) { w.bytes.Add(int64(bytes)) }

// Messages counts messages that several watches share, once for all of them. The zero
// Messages is ready.
type Messages struct{ number, bytes atomic.Int64 }

// Sent counts a message of a number of bytes to each watch.
func (m *Messages) Sent(bytes int) {
	m.number.Add(1)
	m.bytes.Add(int64(bytes))
}

// share counts the messages that a watch shares with others: base bytes, plus the messages of of with more
// additional bytes each. It does not change.
type share struct {
	of         *Messages
	more, base int64
}

func (s *share) bytes() int64 {
	if s == nil {
		return 0
	}
	return s.base + s.of.bytes.Load() + s.more*s.of.number.Load()
}

// Share makes the watch count the messages of m from now on, instead of those of the previous Share. Each
// message takes more bytes in addition to those that m counts.
func (w *Watch) Share(m *Messages, more int) {
	s := &share{of: m, more: int64(more)}
	s.base = w.shared.Load().bytes() - s.bytes()
	w.shared.Store(s)
}

// sent returns the bytes sent to the watch.
func (w *Watch) sent() int64 { return w.bytes.Load() + w.shared.Load().bytes() }

// Follow records that the watch is served from the window, by inner.
func (w *Watch) Follow(inner *router.Watch) {
	w.window.Store(inner)
	w.mode.Store(int32(Window))
}

// Begin records that the watch enters another mode, and counts deltas and resyncs.
func (w *Watch) Begin(r Mode) {
	switch r {
	case Delta:
		w.deltas.Add(1)
	case Resync:
		w.resyncs.Add(1)
	case Window, Conflated, Log, modes:
	}
	w.mode.Store(int32(r))
}

// Wait records that the watch waits for another mode, or is served by it without counted deltas or resyncs.
func (w *Watch) Wait(r Mode) { w.mode.Store(int32(r)) }

// Leave records that the watch is no longer served from the window, and has been sent everything up to a
// revision.
func (w *Watch) Leave(at kv.Revision, now time.Time) {
	w.at.Store(int64(at))
	w.left.Store(now.UnixNano())
	w.window.Store(nil)
}

// Reached records that a watch outside of the window has been sent everything up to a revision.
func (w *Watch) Reached(at kv.Revision) { w.at.Store(int64(at)) }

// Sample records the bytes sent so far, for the rate. Call it at regular intervals.
func (w *Watch) Sample() { w.before.Store(w.sample.Swap(w.sent())) }

// Figures is a snapshot of the statistics.
type Figures struct {
	Mode Mode
	// Revision: everything up to it was sent. Lag is the number of revisions between
	// it and the newest one that could have been sent; Behind is the duration of that lag.
	Revision, Lag kv.Revision
	Behind        time.Duration
	Since         time.Time
	// Bytes is the total sent, Rate the bytes per second since the second-last sample.
	Bytes           int64
	Rate            float64
	Deltas, Resyncs int64
}

// Figures returns a snapshot. newest is the newest revision of the node, for a watch that is not served from
// the window; sampled is the time of the second-last sample.
func (w *Watch) Figures(now time.Time, newest kv.Revision, sampled time.Time) Figures {
	f := Figures{
		Mode: w.Mode(), Since: w.since, Bytes: w.sent(),
		Deltas: int64(w.deltas.Load()), Resyncs: int64(w.resyncs.Load()),
	}
	if inner := w.window.Load(); inner != nil {
		p, _ := inner.Position()
		f.Revision, newest = p.Revision, p.Newest
		if !p.Since.IsZero() {
			f.Behind = max(0, now.Sub(p.Since))
		}
	} else {
		f.Revision = kv.Revision(w.at.Load())
		if left := w.left.Load(); left > 0 {
			f.Behind = max(0, now.Sub(time.Unix(0, left)))
		}
	}
	if f.Lag = max(0, newest-f.Revision); f.Lag == 0 {
		f.Behind = 0
	}
	if sampled.Before(w.since) {
		sampled = w.since
	}
	if d := now.Sub(sampled); d > 0 {
		f.Rate = float64(f.Bytes-w.before.Load()) / d.Seconds()
	}
	return f
}

// Watcher is a watch of a client: its owner, its range, and its statistics.
type Watcher struct {
	Client net.Addr // nil: unknown
	User   string   // etcd user, while etcd's authentication is on
	ID     int64    // on its stream
	Range  kv.Range
	*Watch
}
