package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// project loads compose.yaml by the specification's own library, which holds it against
// the schema.
func project(t *testing.T, text string) (*types.Project, error) {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: []byte(text)}},
	}, func(o *loader.Options) { o.SetProjectName("shardwatch", true) })
}

func composeText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(root + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compose.yaml passes the schema of the Compose specification, a misspelt key does not, and
// the files that it mounts and builds from exist. test/lifecycle runs its processes.
func TestComposeFileIsValid(t *testing.T) {
	text := composeText(t)
	p, err := project(t, text)
	if err != nil {
		t.Fatal(err)
	}
	for right, wrong := range map[string]string{"    healthcheck:": "    healthchek:", "condition: service_completed_successfully": "condition: done", "stop_grace_period: 60s": "stop_grace_period: [60]"} {
		if !strings.Contains(text, right) {
			t.Errorf("there is no %q to misspell", right)
		}
		if _, err := project(t, strings.Replace(text, right, wrong, 1)); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
	for name, s := range p.Services {
		if s.Image == "" || !strings.Contains(s.Image, ":") || strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s: image %q has no fixed tag", name, s.Image)
		}
		if s.Build != nil {
			fileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		}
		for _, v := range s.Volumes {
			switch v.Type {
			case types.VolumeTypeBind:
				fileExists(t, v.Source)
			case types.VolumeTypeVolume:
				if _, ok := p.Volumes[v.Source]; !ok {
					t.Errorf("%s: volume %s is not declared", name, v.Source)
				}
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published at %q, want this machine alone", name, port.Published, port.HostIP)
			}
		}
	}
}

// The settings of the nodes in compose.yaml are settings of cachenode.
func TestComposeSettingsExist(t *testing.T) {
	p, err := project(t, composeText(t))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "cachenode")
	command(t, "go", "build", "-tags", "nodev", "-o", bin, "./cmd/cachenode")
	files := t.TempDir()
	command(t, "deploy/compose/certificates.sh", files)
	nodes := 0
	for name, s := range p.Services {
		if !strings.HasPrefix(name, "cachenode-") {
			continue
		}
		nodes++
		var environment []string
		for setting, value := range s.Environment {
			v := strings.Replace(*value, "/certificates", files, 1)
			if strings.HasPrefix(setting, "CACHENODE_") {
				environment = append(environment, setting+"="+v)
			}
		}
		if out, err := configOf(t, bin, environment); err != nil || strings.Contains(out, "has no effect") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if nodes != 3 {
		t.Errorf("compose.yaml has %d nodes, want 3", nodes)
	}
}

func fileExists(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}
