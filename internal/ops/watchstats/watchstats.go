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
	Resync                    // the whole state, or waits for it
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

// Watch is the account of one watch. The zero Watch is none: Open it.
type Watch struct {
	since time.Time

	bytes           atomic.Int64 // sent to this watch alone
	shared          atomic.Pointer[share]
	deltas, resyncs atomic.Int32
	mode            atomic.Int32
	// The watch that the window is read by; nil while it is not: then the watch
	// has been at a revision since a time (in Unix nanoseconds).
	window   atomic.Pointer[router.Watch]
	at, left atomic.Int64
	// Bytes at the last sample, and at the one before.
	sample, before atomic.Int64
}

// Open begins the account.
func (w *Watch) Open(now time.Time) { w.since = now }

// Since returns when the account was opened.
func (w *Watch) Since() time.Time { return w.since }

// Mode returns how the watch is served; 0: it has not begun.
func (w *Watch) Mode() Mode { return Mode(w.mode.Load()) }

// Sent counts bytes.
func (w *Watch) Sent(bytes int) { w.bytes.Add(int64(bytes)) }

// Messages counts messages that several watches share, once for all of them. The zero
// Messages is ready.
type Messages struct{ number, bytes atomic.Int64 }

// Sent counts a message of so many bytes to each watch.
func (m *Messages) Sent(bytes int) {
	m.number.Add(1)
	m.bytes.Add(int64(bytes))
}

// share counts messages that a watch gets in common with others: those of of, of so many bytes
// more each, and base. It does not change.
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

// Share makes the watch count the messages of m from now on, and no longer those that the last one
// counted. A message takes so many bytes more than m counts.
func (w *Watch) Share(m *Messages, more int) {
	s := &share{of: m, more: int64(more)}
	s.base = w.shared.Load().bytes() - s.bytes()
	w.shared.Store(s)
}

// sent returns the bytes that the watch was sent.
func (w *Watch) sent() int64 { return w.bytes.Load() + w.shared.Load().bytes() }

// Follow records that the watch is served from the window, by inner.
func (w *Watch) Follow(inner *router.Watch) {
	w.window.Store(inner)
	w.mode.Store(int32(Window))
}

// Begin records that the watch enters another mode: each Delta and Resync is a
// unit more.
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

// Wait records that the watch waits for another mode, or is served by it without
// units that are counted.
func (w *Watch) Wait(r Mode) { w.mode.Store(int32(r)) }

// Leave records that the watch is not served from the window any more, and that
// everything up to a revision was sent.
func (w *Watch) Leave(at kv.Revision, now time.Time) {
	w.at.Store(int64(at))
	w.left.Store(now.UnixNano())
	w.window.Store(nil)
}

// Reached records that everything up to a revision was sent, while the watch is
// not served from the window.
func (w *Watch) Reached(at kv.Revision) { w.at.Store(int64(at)) }

// Sample notes the bytes sent so far, for the rate. Call it at regular
// intervals.
func (w *Watch) Sample() { w.before.Store(w.sample.Swap(w.sent())) }

// Figures is an account at one moment.
type Figures struct {
	Mode Mode
	// Revision: everything up to it was sent. Lag is the number of revisions between
	// it and the newest one that could have been sent; Behind is the duration of that lag.
	Revision, Lag kv.Revision
	Behind        time.Duration
	Since         time.Time
	// Bytes were sent in all, Rate of them per second since the last sample but
	// one.
	Bytes           int64
	Rate            float64
	Deltas, Resyncs int64
}

// Figures returns the account. newest is the newest revision of the node, for a
// watch that is not served from the window; sampled is when the last sample but
// one was taken.
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
	Client net.Addr // the client's address; nil: not known
	User   string   // etcd's, while its authentication is on
	ID     int64    // on its stream
	Range  kv.Range
	*Watch
}
