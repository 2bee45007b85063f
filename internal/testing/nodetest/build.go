package nodetest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build compiles cachenode from this repository into dir and returns its path.
// The working directory must be in the module.
func Build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "cachenode")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/shardwatch/shardwatch/cmd/cachenode").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cachenode: %w\n%s", err, out)
	}
	return bin, nil
}
