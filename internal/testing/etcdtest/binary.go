package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// serverModule is etcd's server, and its main package.
const serverModule = "go.etcd.io/etcd/server/v3"

// Binary returns the path of an etcd of the version in go.mod. It builds it
// with the go command, once per version for this user. The working directory
// must be in the module.
func Binary(ctx context.Context) (string, error) {
	version, err := goCommand(ctx, "list", "-m", "-f", "{{.Version}}", serverModule)
	if err != nil {
		return "", fmt.Errorf("learn etcd's version: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "shardwatch")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache for etcd: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("etcd-%s-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH, runtime.Version()))
	if built(path) {
		return path, nil
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("wait for others that build etcd: %w", err)
	}
	defer unlock()
	if built(path) { // the previous holder of the lock has built it
		return path, nil
	}
	unfinished := path + ".part"
	if _, err := goCommand(ctx, "build", "-o", unfinished, serverModule); err != nil {
		return "", fmt.Errorf("build etcd %s: %w", version, err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return "", fmt.Errorf("keep the etcd that was built: %w", err)
	}
	return path, nil
}

func built(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// goCommand runs the go command and returns its output.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
