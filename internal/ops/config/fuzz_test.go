package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// Any file is parsed, or refused with an error that contains the file name.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"name: a\nprefix: [/a/, /b/]\n", "shards: 4\nshards: 5\n", "? [a]\n: b\n", "a: &x 1\nshards: *x\n", "--- a\n--- b\n",
		"join: [{a: b}]\n", "zone: ~\n", "zone: |\n  a\n  b\n", "<<: {a: b}\n", "\xff", "window-bytes: 1e9\n", "",
	} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "node.yaml")
	f.Fuzz(func(t *testing.T, file string) {
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		c := config.Defaults()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Flags(fs)
		fs.String(config.FileFlag, path, "")
		if _, err := config.Layer(fs, nil); err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
		_ = c.Validate()
	})
}
