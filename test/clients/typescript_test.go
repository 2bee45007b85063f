package clients_test

import (
	"path/filepath"
	"testing"

	"github.com/shardwatch/shardwatch/test/conformance"
)

// TestTypeScript builds the TypeScript client as a package, installs that, and runs it.
func TestTypeScript(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages, starts an etcd and nodes")
	}
	dir := installed(t, "typescript", []string{"node", "npm"}, func(dir string) error {
		source := filepath.Join(dir, "source")
		if err := in(source, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
			return err
		}
		if err := build(source, "npm", "run", "build"); err != nil {
			return err
		}
		if err := build(source, "npm", "pack", "--ignore-scripts", "--pack-destination", dir); err != nil {
			return err
		}
		return in(dir, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", filepath.Join(dir, "shardwatch-0.1.0.tgz"))
	})
	t.Run("interop", func(t *testing.T) {
		interoperates(t, []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}, "node", filepath.Join("testdata", "interop.cjs"))
	})
	dist := filepath.Join(dir, "node_modules", "shardwatch", "dist")
	client := conformance.Command("node", filepath.Join(dist, "conformance.js"))
	t.Run("conformance", func(t *testing.T) { conforms(t, client) })
	t.Run("exit", func(t *testing.T) { exits(t, "get", client) })
	t.Run("close", func(t *testing.T) {
		exits(t, "start-now", conformance.Command("node", filepath.Join("testdata", "watch.mjs"), filepath.Join(dist, "index.js"), "1"))
	})
	t.Run("token", func(t *testing.T) { // the map is followed, although there was no token at first
		exits(t, "map-silent", conformance.Command("node", filepath.Join("testdata", "watch.mjs"), filepath.Join(dist, "index.js"), "2"))
	})
	t.Run("keys that are not UTF-8", func(t *testing.T) {
		if err := in(".", "node", filepath.Join("testdata", "mirror.mjs"), filepath.Join(dist, "index.js")); err != nil {
			t.Error(err)
		}
	})
	t.Run("a node that hangs", func(t *testing.T) {
		if err := in(".", "node", filepath.Join("testdata", "reads.mjs"), filepath.Join(dist, "index.js")); err != nil {
			t.Error(err)
		}
	})
	t.Run("chaos", func(t *testing.T) { survives(t, client, 1) })
}
