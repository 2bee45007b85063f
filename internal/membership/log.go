package membership

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// lineQuiet is how long a kind of line stays at Debug after it was logged.
const lineQuiet = time.Minute

// lineKinds bounds the kinds of lines that are remembered.
const lineKinds = 256

// lines turns memberlist's log lines into records. memberlist repeats a line for
// each packet and each attempt, so a kind of line is logged at its level once a
// minute and at Debug in between. Lines that duplicate better messages of this
// package (joins, leaves, refusals) stay at Debug.
type lines struct {
	logger *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by kind; guarded by mu
}

func newLogger(logger *slog.Logger) *log.Logger {
	return log.New(&lines{logger: logger, last: make(map[string]time.Time)}, "", 0)
}

// Write logs one line.
func (l *lines) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(errObserver.Error())) {
		return len(b), nil
	}
	level, text := parseLine(string(b))
	if level > slog.LevelDebug && !l.fresh(lineKind(text)) {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, text, "from", "memberlist")
	return len(b), nil
}

func (l *lines) fresh(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, ok := l.last[kind]; ok && now.Sub(at) < lineQuiet {
		return false
	}
	if len(l.last) >= lineKinds {
		clear(l.last)
	}
	l.last[kind] = now
	return true
}

// parseLine splits "[WARN] memberlist: text" into level and text. memberlist's
// errors mostly concern one packet or peer, so they become warnings.
func parseLine(s string) (slog.Level, string) {
	level := slog.LevelDebug
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "["); ok {
		if tag, text, ok := strings.Cut(rest, "]"); ok {
			s = strings.TrimSpace(text)
			switch tag {
			case "ERR", "ERROR", "WARN":
				level = slog.LevelWarn
			}
		}
	}
	s = strings.TrimPrefix(s, "memberlist: ")
	for _, p := range saidByUs {
		if strings.HasPrefix(s, p) {
			return slog.LevelDebug, s
		}
	}
	return level, s
}

// saidByUs are lines for events that this package reports itself, once, and
// lines that only report that a dead node does not answer.
var saidByUs = [...]string{
	"Conflicting address", "ignoring alive message", "Failed push/pull merge", "Refuting",
	"Push/Pull with", "Failed fallback TCP ping", "Failed to send", "Was able to connect",
	"Got ping for unexpected node", "Binding to public address",
}

// lineKind is the part of a line that does not change between repetitions.
func lineKind(s string) string {
	if i := strings.IndexAny(s, ":0123456789'"); i >= 0 {
		s = s[:i]
	}
	return s
}
