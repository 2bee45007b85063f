package clients_test

import (
	"path/filepath"
	"testing"

	"github.com/shardwatch/shardwatch/test/conformance"
)

// TestPython installs the Python client as a package, and runs it.
func TestPython(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages, starts an etcd and nodes")
	}
	dir := installed(t, "python", []string{"python3"}, func(dir string) error {
		if err := in(dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		python := filepath.Join(dir, "venv", "bin", "python")
		if err := in(dir, python, "-m", "pip", "install", "--quiet", "setuptools>=77", "mypy", "types-grpcio", "types-protobuf",
			"grpcio", "protobuf>=6.31.1,<8", "googleapis-common-protos"); err != nil {
			return err
		}
		if err := build(dir, python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "./source"); err != nil {
			return err
		}
		return build(dir, python, "-m", "pip", "check") // that the package's dependencies are these
	})
	python := filepath.Join(dir, "venv", "bin", "python")
	t.Run("types", func(t *testing.T) {
		if err := in(filepath.Join(dir, "source"), python, "-m", "mypy", "--cache-dir", t.TempDir()); err != nil {
			t.Error(err)
		}
	})
	t.Run("interop", func(t *testing.T) { interoperates(t, nil, python, filepath.Join("testdata", "interop.py")) })
	client := conformance.Command(python, "-m", "shardwatch.conformance")
	t.Run("conformance", func(t *testing.T) { conforms(t, client) })
	t.Run("exit", func(t *testing.T) { exits(t, "get", client) })
	t.Run("close", func(t *testing.T) {
		exits(t, "start-now", conformance.Command(python, filepath.Join("testdata", "watch.py"), "1"))
	})
	t.Run("token", func(t *testing.T) { // the map is followed, although there was no token at first
		exits(t, "map-silent", conformance.Command(python, filepath.Join("testdata", "watch.py"), "2"))
	})
	t.Run("chaos", func(t *testing.T) { survives(t, client, 1) })
}
