package main

import (
	"io"
	"log/slog"

	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// newLogger returns a logger that writes records of at least level to w, in
// one of config's formats.
func newLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plain}
	if format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// plain replaces errors by their text without gRPC's additions.
func plain(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(wire.Plain(err))
	}
	return a
}
