package nodetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Shipped has the settings and the memory limit of a node in deploy/k8s/base.
type Shipped struct {
	// Env is the settings, as NAME=value.
	Env []string
	// Memory is the limit of a node's memory in bytes.
	Memory int64
}

// ReadShipped reads the manifests of this repository. The working directory must
// be in the module.
func ReadShipped(ctx context.Context) (Shipped, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/shardwatch/shardwatch").Output()
	if err != nil {
		return Shipped{}, fmt.Errorf("find deploy/k8s: %w", err)
	}
	base := filepath.Join(strings.TrimSpace(string(root)), "deploy", "k8s", "base")
	env, err := os.ReadFile(filepath.Join(base, "node.env"))
	if err != nil {
		return Shipped{}, fmt.Errorf("read the shipped settings: %w", err)
	}
	var out Shipped
	for line := range strings.Lines(string(env)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out.Env = append(out.Env, line)
		}
	}
	set, err := os.ReadFile(filepath.Join(base, "statefulset.yaml"))
	if err != nil {
		return Shipped{}, fmt.Errorf("read the shipped limits: %w", err)
	}
	out.Memory, err = memoryLimit(set)
	return out, err
}

// memoryLimit returns the limit of the first container of a StatefulSet.
func memoryLimit(manifest []byte) (int64, error) {
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Resources struct {
							Limits struct{ Memory string }
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(manifest, &set); err != nil {
		return 0, fmt.Errorf("read the shipped limits: %w", err)
	}
	containers := set.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return 0, fmt.Errorf("read the shipped limits: the StatefulSet has no container")
	}
	text := containers[0].Resources.Limits.Memory
	for unit, bits := range map[string]int{"Mi": 20, "Gi": 30} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			return n << bits, err
		}
	}
	return 0, fmt.Errorf("read the shipped limits: memory: %q is no number of Mi or Gi", text)
}
