package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// The programs of a run: one of this repository, and one of a module that it
// pins.
const (
	cachenodePackage = "github.com/shardwatch/shardwatch/cmd/cachenode"
	etcdPackage      = "go.etcd.io/etcd/server/v3"
)

// build compiles a program into dir and returns its path.
func build(ctx context.Context, dir, name, pkg string) (string, error) {
	bin := filepath.Join(dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}
