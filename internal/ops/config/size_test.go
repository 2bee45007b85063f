package config_test

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]config.Size{
		"0": 0, "1": 1, "1024": config.KiB, "64MiB": 64 << 20, "64mib": 64 << 20, "2 GiB": 2 << 30,
		"3kB": 3000, "3MB": 3e6, "3GB": 3e9, "7B": 7, "8589934591GiB": 8589934591 << 30,
	} {
		var s config.Size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%q: %d, %v; want %d", text, s, err, want)
			continue
		}
		var back config.Size
		if err := back.Set(s.String()); err != nil || back != s {
			t.Errorf("%q is written %q, which reads back as %d, %v", text, s, back, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "1Mi", "1 X", "8589934592GiB", "9999999999999999999", "0x10"} {
		var s config.Size
		if err := s.Set(text); err == nil {
			t.Errorf("%q was read as %d", text, s)
		}
	}
}
