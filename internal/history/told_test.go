package history

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// told keeps the log lines.
type told struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func newTold() *told { return &told{} }

func (l *told) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *told) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// lines returns the lines that contain text, and drops all lines.
func (l *told) lines(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	l.b.Reset()
	return out
}
