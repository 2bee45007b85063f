package devetcd

import (
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger forwards etcd's warnings and errors to log. It drops etcd's other messages:
// users who did not start an etcd themselves cannot use them.
func logger(log *slog.Logger) *zap.Logger {
	return zap.New(&core{LevelEnabler: zapcore.WarnLevel, log: log})
}

// core is a zapcore.Core that writes to slog.
type core struct {
	zapcore.LevelEnabler
	log *slog.Logger
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{LevelEnabler: c.LevelEnabler, log: c.log.With(attributes(fields)...)}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	log := c.log.With("source", "etcd").With(attributes(fields)...)
	if e.Level >= zapcore.ErrorLevel {
		log.Error(e.Message)
	} else {
		log.Warn(e.Message)
	}
	return nil
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	out := make([]any, 0, len(m.Fields))
	for key, value := range m.Fields {
		out = append(out, slog.Any(key, value))
	}
	return out
}
