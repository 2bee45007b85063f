package placement

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes raft's logs to our logger. Raft's info messages are only
// useful for debugging raft. The changes that matter to operators are logged by
// this package.
type raftLogger struct {
	hclog.Logger // for methods that are not called
	log          *slog.Logger
}

func newRaftLogger(l *slog.Logger) raftLogger {
	return raftLogger{Logger: hclog.NewNullLogger(), log: l.With("part", "raft")}
}

func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Warn:
		to = slog.LevelInfo
	case hclog.Error:
		to = slog.LevelWarn
	}
	if repeats(msg) {
		to = slog.LevelDebug
	}
	if !l.log.Enabled(context.Background(), to) {
		return
	}
	attrs := make([]any, 0, len(args))
	for _, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if s, ok := f[0].(string); ok {
				a = fmt.Sprintf(s, f[1:]...)
			}
		}
		attrs = append(attrs, a)
	}
	l.log.Log(context.Background(), to, msg, attrs...)
}

func (l raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l raftLogger) With(args ...any) hclog.Logger {
	return raftLogger{Logger: l.Logger, log: l.log.With(args...)}
}
func (l raftLogger) Named(string) hclog.Logger      { return l }
func (l raftLogger) ResetNamed(string) hclog.Logger { return l }

// repeats reports whether raft logs msg repeatedly while a voter is away.
// Gossip reports absent voters.
func repeats(msg string) bool {
	switch msg {
	case "failed to heartbeat to", "failed to appendEntries to", "failed to pipeline appendEntries",
		"failed to make requestVote RPC", "failed to contact", "failed to decode incoming command",
		"unable to get address for server, using fallback address", "no known peers, aborting election":
		return true
	}
	return false
}
