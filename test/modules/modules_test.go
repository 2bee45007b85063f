package modules_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outside is a folder away from this tree, with the settings of a user who has the modules
// from a proxy.
type outside struct {
	dir string
	env []string
}

func newOutside(t *testing.T, version string) *outside {
	t.Helper()
	o := &outside{dir: t.TempDir()}
	cache := o.run(t, "go", "env", "GOMODCACHE")
	others := o.run(t, "go", "env", "GOPROXY")
	o.env = append(os.Environ(), "GOWORK=off", "GOBIN="+o.dir,
		// Other people's modules come from the cache that built this test. A file system
		// has no checksum database.
		"GOPROXY=file://"+proxy(t, version)+",file://"+filepath.Join(cache, "cache", "download")+","+others, "GOSUMDB=off",
		// The versions of this tree must not stay in the user's cache.
		"GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -buildvcs=false")
	return o
}

// run runs a command and returns its output.
func (o *outside) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = o.dir, o.env, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// write writes a file into the folder.
func (o *outside) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGoInstall installs cachectl as its users do, without a clone.
func TestGoInstall(t *testing.T) {
	version := released(t)
	o := newOutside(t, version)
	o.run(t, "go", "install", project+"/cmd/cachectl@"+version)
	if got := o.run(t, filepath.Join(o.dir, "cachectl"), "version", "--client"); !strings.Contains(got, version) {
		t.Errorf("the version of the installed cachectl is %q, want %s", got, version)
	}
}

const program = `package main

import (
	"fmt"

	"github.com/shardwatch/shardwatch/client"
)

func main() {
	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
	if err == nil {
		err = c.Close()
	}
	fmt.Println("closed:", err)
}
`

// TestProgramOfAUser builds a program that imports the client. Its module graph has
// nothing of the servers.
func TestProgramOfAUser(t *testing.T) {
	version := released(t)
	o := newOutside(t, version)
	o.write(t, "go.mod", "module example.com/program\n\ngo 1.26.0\n\nrequire "+project+"/client "+version+"\n")
	o.write(t, "main.go", program)
	o.run(t, "go", "build", "-mod=mod", "-o", "program", ".")
	if got := o.run(t, filepath.Join(o.dir, "program")); got != "closed: <nil>" {
		t.Errorf("the program prints %q", got)
	}
	graph := strings.Split(o.run(t, "go", "list", "-m", "-f", "{{.Path}}", "all"), "\n")
	for _, m := range graph {
		for _, not := range []string{
			"go.etcd.io/etcd/server", "go.etcd.io/etcd/client", "go.etcd.io/raft", "go.etcd.io/bbolt", "github.com/hashicorp/", "github.com/prometheus/",
			"k8s.io/", "github.com/spf13/cobra",
		} {
			if strings.HasPrefix(m, not) {
				t.Errorf("a program that imports the client has %s in its module graph", m)
			}
		}
		if m == project {
			t.Error("a program that imports the client has the servers' module in its module graph")
		}
	}
	t.Logf("%d modules in the graph, %d in the program", len(graph), strings.Count(o.run(t, "go", "version", "-m", "program"), "\n\tdep\t"))
}

// TestRequirements lists the packages of each module with nothing but its own go.mod, as a
// user's build does. In go.work a package may import what another module requires.
func TestRequirements(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders() {
		o := &outside{dir: filepath.Join(top, folder), env: append(os.Environ(), "GOWORK=off")}
		gomod := filepath.Join(t.TempDir(), "go.mod")
		for _, ending := range []string{".mod", ".sum"} {
			text, err := os.ReadFile(filepath.Join(o.dir, "go"+ending))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(strings.TrimSuffix(gomod, ".mod")+ending, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, other := range folders() {
			if other != folder {
				o.run(t, "go", "mod", "edit", "-replace", pathOf(other)+"="+filepath.Join(top, other), gomod)
			}
		}
		o.run(t, "go", "list", "-modfile", gomod, "-mod=readonly", "-deps", "-test", "./...")
	}
}
