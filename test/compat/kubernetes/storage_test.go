package kubernetes_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apiserver is the module whose tests are run, at the version in go.mod.
const apiserver = "k8s.io/apiserver"

// suites are the packages whose tests need an etcd.
var suites = []string{
	"pkg/storage/etcd3",
	"pkg/storage/cacher",
	"pkg/storage/storagebackend/factory",
	"pkg/registry/generic/registry",
	"pkg/reconcilers",
}

// targets are the servers under test, with the arguments of the nodes; the first, a plain etcd,
// defines the expected verdicts.
var targets = []struct {
	name string
	tier bool
	args string
}{
	{name: "etcd"},
	{name: "tier", tier: true},
	// Two of three nodes have no shards and forward to the third.
	{name: "relayed", tier: true, args: "--replicas 1"},
}

// known are tests with a different verdict than with an etcd, and the reasons.
var known = map[string]string{}

// TestStorage runs the unchanged storage tests of kube-apiserver against an etcd and against the
// tier. Each must have the same verdict.
func TestStorage(t *testing.T) {
	node := cachenode(t)
	work := withOurServer(t)
	for _, name := range suites {
		t.Run(name, func(t *testing.T) {
			s := suite{bin: filepath.Join(t.TempDir(), "suite.test"), dir: filepath.Join(filepath.Dir(work), apiserver, name), only: os.Getenv("SUITE")}
			build := buildCommand(".", "test", "-c", "-o", s.bin, apiserver+"/"+name)
			build.Env = append(os.Environ(), "GOWORK="+work)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build the tests of %s: %v\n%s", name, err, out)
			}
			var right map[string]verdict
			for _, target := range targets {
				s.env = []string{"SHARDWATCH_TIER=", "SHARDWATCH_TIER_ARGS=" + target.args}
				if target.tier {
					s.env[0] = "SHARDWATCH_TIER=" + node
				}
				got := s.verdicts(t, s.only)
				s.again(t, got)
				count := map[string]int{}
				for _, v := range got {
					count[v.action]++
				}
				t.Logf("%-8s %v", target.name, count)
				if right == nil {
					right = got
					if count["pass"] == 0 {
						t.Fatal("no test passes against an etcd: there is nothing to compare")
					}
					continue
				}
				compare(t, target.name, right, got)
			}
		})
	}
}

// compare fails for each test with a different verdict than with an etcd.
func compare(t *testing.T, target string, right, got map[string]verdict) {
	t.Helper()
	all := maps.Clone(right)
	maps.Copy(all, got)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r, g := right[name], got[name]
		if r.action == g.action {
			continue
		}
		if why := known[name]; why != "" {
			t.Logf("%s: %q against etcd, %q against %s: %s", name, r.action, g.action, target, why)
			continue
		}
		t.Errorf("%s: %q against etcd, %q against %s\n%s", name, r.action, g.action, target, g.output)
	}
}

// suite is the built tests of a package.
type suite struct {
	bin, dir string
	env      []string
	only     string // a pattern of names, or "" for all
}

// verdict is the result of a test: pass, fail or skip, or empty if it did not run.
type verdict struct {
	action string
	output string // the beginning of it
}

// again repeats the failed tests, alone, and keeps the last result of each. Many give a watch 150
// ms, which is too short even for an etcd on a busy machine.
func (s suite) again(t *testing.T, all map[string]verdict) {
	t.Helper()
	const tries = 3
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for try := 1; try < tries && all[name].action == "fail" && !strings.Contains(name, "/"); try++ {
			for _, of := range slices.Sorted(maps.Keys(all)) {
				if all[of].action == "fail" && strings.HasPrefix(of+"/", name+"/") {
					t.Logf("%s failed, try %d", of, try)
				}
			}
			maps.Copy(all, s.verdicts(t, "^"+name+"$"))
		}
	}
}

// verdicts runs the tests that match a pattern and returns the result of each.
func (s suite) verdicts(t *testing.T, pattern string) map[string]verdict {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "test2json", s.bin, "-test.v=test2json", "-test.timeout=40m", "-test.run="+pattern)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), append(s.env, "TMPDIR="+t.TempDir())...)
	if s.only != "" {
		cmd.Env = append(cmd.Env, "SHARDWATCH_TIER_LOGS=1")
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	const kept = 10_000
	found, output := map[string]verdict{}, map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		switch e.Action {
		case "output":
			text := output[e.Test] + e.Output
			output[e.Test] = text[:min(len(text), kept)]
		case "pass", "fail", "skip":
			if e.Test != "" { // not a package's event
				found[e.Test] = verdict{e.Action, output[e.Test]}
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// withOurServer returns a go.work of this module and a copy of k8s.io/apiserver in the user's cache
// with one replaced package: the one that starts etcd for tests. The tests themselves are
// unchanged.
func withOurServer(t *testing.T) (work string) {
	t.Helper()
	var module struct{ Dir, Version string }
	goCommand(t, ".", "mod", "download", apiserver)
	if err := json.Unmarshal(goCommand(t, ".", "list", "-m", "-json", apiserver), &module); err != nil {
		t.Fatal(err)
	}
	// Its path stays the same for go's build cache.
	dir := install(t, "apiserver-"+module.Version, func(dir string) error {
		return os.CopyFS(filepath.Join(dir, apiserver), os.DirFS(module.Dir))
	})
	theirs := filepath.Join(dir, apiserver, "pkg/storage/etcd3/testserver/test_server.go")
	if _, err := os.Stat(theirs); err != nil { // otherwise another file has to be replaced
		t.Fatal(err)
	}
	server, err := os.ReadFile("testdata/testserver/test_server.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, server, 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	work = filepath.Join(dir, "go.work")
	text := fmt.Sprintf("go 1.26.0\n\nuse %q\n\nreplace %s => %q\n", here, apiserver, filepath.Join(dir, apiserver))
	if err := os.WriteFile(work, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return work
}

// install returns a directory of the user's cache; fill fills a new one. It appears by a rename, so
// it is complete or absent.
func install(t *testing.T, name string, fill func(dir string) error) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	parent := filepath.Join(cache, "shardwatch")
	dir := filepath.Join(parent, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	part, err := os.MkdirTemp(parent, name+".part-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(part)
	if err := fill(part); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // and no other run created it
			t.Fatal(err)
		}
	}
	return dir
}

// cachenode builds the nodes' program.
func cachenode(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "cachenode")
	goCommand(t, "../../..", "build", "-o", bin, "./cmd/cachenode")
	return bin
}

// goCommand runs the go command in a directory and returns its output.
func goCommand(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", args...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return out
}
