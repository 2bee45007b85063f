package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// build compiles cachenode from this repository into dir and returns its path.
func build(ctx context.Context, dir string) (string, error) {
	return compile(ctx, dir, "cmd/cachenode")
}

// buildClients compiles the chaos command, which runs clients in separate processes.
func buildClients(ctx context.Context, dir string) (string, error) {
	return compile(ctx, dir, "test/chaos/cmd/chaos")
}

// buildPrograms compiles the programs of examples/ into a directory and returns its path.
func buildPrograms(ctx context.Context, dir string) (string, error) {
	dir = filepath.Join(dir, "programs")
	if err := makeDir(dir); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "github.com/shardwatch/shardwatch/examples/...").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return dir, nil
}

func compile(ctx context.Context, dir, program string) (string, error) {
	bin := filepath.Join(dir, filepath.Base(program))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/shardwatch/shardwatch/"+program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return bin, nil
}
