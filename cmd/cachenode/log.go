package main

import (
	"io"
	"log/slog"

	"github.com/shardwatch/shardwatch/internal/config"
)

// newLogger returns a logger that writes records of at least level to w, in
// one of config's formats.
func newLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
