package sim

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// recent keeps the newest lines of all logs: a run of minutes writes too many lines
// to read, and only the logs of failed runs are shown.
type recent struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

const recentLines = 2000

func newRecent() *recent { return &recent{} }

// handler returns a handler for a host's logger. With SIM_DEBUG in the environment it also
// records debug messages.
func (r *recent) handler(host string) slog.Handler {
	level := slog.LevelInfo
	if os.Getenv("SIM_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.NewTextHandler(r, &slog.HandlerOptions{Level: level}).WithAttrs([]slog.Attr{slog.String("host", host)})
}

// Write takes one line.
func (r *recent) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) >= 2*recentLines {
		r.lines = append(r.lines[:0], r.lines[recentLines:]...)
	}
	r.lines = append(r.lines, string(bytes.TrimRight(line, "\n")))
	return len(line), nil
}

// String returns the lines.
func (r *recent) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines[max(0, len(r.lines)-recentLines):], "\n")
}
