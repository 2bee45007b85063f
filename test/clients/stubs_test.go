package clients_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStubsAreChecked: tools/stubs --check accepts the committed messages of the clients, and
// names each file that differs from api/proto. Without npm it says that it has checked nothing.
func TestStubsAreChecked(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	root := filepath.Join("..", "..")
	dir := t.TempDir()
	for _, part := range []string{"clients", "api/proto"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile(filepath.Join(root, "tools", "stubs"))
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "tools"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tools", "stubs"), script, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "tools", "stubs"), "--check")
		cmd.Env = append(os.Environ(), append([]string{"TOOLS=" + filepath.Join(cache, "shardwatch", "stubs")}, env...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const unchecked = "was NOT checked"

	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	dirname, err := exec.LookPath("dirname")
	if err != nil {
		t.Skip(err)
	}
	few := t.TempDir() // neither python3 nor npm
	for name, path := range map[string]string{"bash": bash, "dirname": dirname} {
		if err := os.Symlink(path, filepath.Join(few, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := check("PATH=" + few); err != nil || !strings.Contains(out, unchecked) {
		t.Errorf("without python3 and npm: %v, %s", err, out)
	}

	out, err := check()
	if strings.Contains(out, unchecked) {
		t.Skip(out)
	}
	if err != nil {
		t.Fatalf("the committed messages: %v\n%s", err, out)
	}
	for _, stub := range []string{"python/src/shardwatch/v1/kv_pb2.py", "typescript/src/proto/shardwatch/v1/kv.ts"} {
		path := filepath.Join(dir, "clients", stub)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Replace(text, []byte("version"), []byte("versio"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := check(); err == nil || !strings.Contains(out, stub) {
			t.Errorf("%s is changed: %v\n%s", stub, err, out)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
