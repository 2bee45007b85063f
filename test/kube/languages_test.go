package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// language is a program of testdata with informers of another language's client. It answers each
// line with the objects of its stores as JSON.
type language struct {
	name string
	// fetch downloads the packages into a new directory, which is kept for the next run. build, if
	// any, needs nothing else.
	fetch, build func(from, into string) error
	// command returns the program and its arguments.
	command func(from, built string) []string
}

var languages = []language{
	{
		"rust", func(from, _ string) error {
			return tool(from, nil, "cargo", "fetch", "--locked")
		}, func(from, into string) error {
			return tool(from, []string{"CARGO_TARGET_DIR=" + into}, "cargo", "build", "--locked", "--offline")
		}, func(_, built string) []string { return []string{filepath.Join(built, "debug", "informers")} },
	},
	{
		"java", func(from, into string) error {
			return tool(from, nil, "mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory="+into)
		}, nil, func(from, built string) []string {
			return []string{"java", "-cp", filepath.Join(built, "*"), filepath.Join(from, "Informers.java")}
		},
	},
	{
		"python", func(from, into string) error {
			if err := tool(from, nil, "python3", "-m", "venv", into); err != nil {
				return err
			}
			return tool(from, nil, filepath.Join(into, "bin", "python"), "-m", "pip", "install", "-q", "-r", "requirements.txt")
		}, nil, func(from, built string) []string {
			return []string{filepath.Join(built, "bin", "python"), filepath.Join(from, "informers.py")}
		},
	},
}

func tool(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

// install returns the program's command; see testkit.Missing for a machine without the language's
// tools or packages. Builds are kept in a directory named after their sources.
func (l *language) install(t *testing.T) []string {
	t.Helper()
	from, err := filepath.Abs(filepath.Join("testdata", l.name))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	sum := sha256.New()
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "shardwatch", fmt.Sprintf("kube-%s-%.8x", l.name, sum.Sum(nil)))
	ready := filepath.Join(dir, "ready") // a directory of Python cannot be renamed
	if _, err := os.Stat(ready); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := l.fetch(from, dir); err != nil {
			testkit.Missing(t, "there are no packages of %s here: %v", l.name, err)
		}
		if l.build != nil {
			if err := l.build(from, dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(ready, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l.command(from, dir)
}

// program is a running program.
type program struct {
	in  io.Writer
	out *bufio.Reader
	log *bytes.Buffer // read once the program has ended
}

// run starts a program at a URL; it ends with the test.
func (c *cluster) run(t *testing.T, url string, command []string) *program {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "SERVER="+url, "TOKEN="+c.token, "CA_FILE="+filepath.Join(c.dir, "ca.pem"))
	p := &program{log: &bytes.Buffer{}}
	cmd.Stderr = p.log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // it has ended, or ends now
		_ = cmd.Wait()
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s:\n%s", command[0], text[max(0, len(text)-6000):])
		}
	})
	p.in, p.out = in, bufio.NewReader(out)
	return p
}

// stores returns the objects of the program's informers.
func (p *program) stores() (all map[string]map[string]string, err error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(line, &all)
}

// equals waits until all informers have the objects of an apiserver.
func (p *program) equals(ctx context.Context, t *testing.T, informers int, set *kubernetes.Clientset) {
	t.Helper()
	list, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	eventually(ctx, t, "the informers have all config maps", func() error {
		stores, err := p.stores()
		if err != nil {
			t.Fatalf("the program has ended: %v", err)
		}
		if len(stores) != informers {
			return fmt.Errorf("%d informers, want %d", len(stores), informers)
		}
		for name, held := range stores {
			want := map[string]string{}
			for i := range list.Items {
				m := &list.Items[i]
				value := m.Data["value"]
				if strings.HasSuffix(name, "-metadata") {
					value = ""
				}
				if parity := m.Labels["parity"]; parity == "1" || !strings.HasSuffix(name, "-selector") {
					want[m.Name] = m.ResourceVersion + " " + parity + " " + value
				}
			}
			if !maps.Equal(held, want) {
				return fmt.Errorf("%s has %v\nwant %v", name, held, want)
			}
		}
		return nil
	})
}

// TestOtherLanguages runs informers of kube-rs, of fabric8's client and of the Python client at
// nodes that share their watches, while nodes die, the apiservers restart, and etcd is compacted
// during their absence. No informer lists again, and each has the apiserver's objects.
func TestOtherLanguages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs with other languages' packages")
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) { l.test(t) })
	}
}

func (l *language) test(t *testing.T) {
	command := l.install(t)
	c := newCluster(t)
	behind, beside := c.apiserver(t), c.apiserver(t)
	writer := c.clients(t, beside.url, nil)
	r := rand.New(rand.NewPCG(25, 26))
	churn(t, writer, r, 40)
	nodes := c.shared(t, []string{behind.url}, []string{"a", "b", "c"}, "--kube-preload", "configmaps.v1/json", "--drain-timeout", "5s")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	tap := c.tap(t, nodes...)
	p := c.run(t, tap.url, command)
	stores, err := p.stores()
	if err != nil {
		t.Fatal(err)
	}
	informers := len(stores)
	p.equals(ctx, t, informers, writer)
	first := len(tap.listed())
	if first < informers {
		t.Fatalf("%d lists for %d informers: they are not counted", first, informers)
	}
	for _, fault := range []struct {
		name       string
		fail, mend func()
	}{
		{"a node was killed", nodes[0].kill, func() { nodes[0].start(t) }},
		{"two nodes were killed", func() { nodes[1].kill(); nodes[2].kill() }, func() { nodes[1].start(t); nodes[2].start(t) }},
		{"the apiserver was restarted", behind.kill, func() { behind.start(t) }},
		{"etcd was compacted without the apiserver", func() { behind.kill(); churn(t, writer, r, 30); c.compact(ctx, t) }, func() { behind.start(t) }},
		{"all nodes were restarted", func() {}, func() {
			for _, n := range nodes {
				n.drain()
				n.start(t)
			}
		}},
	} {
		churn(t, writer, r, 30)
		fault.fail()
		churn(t, writer, r, 30)
		fault.mend()
		p.equals(ctx, t, informers, writer)
		lists := tap.listed()
		t.Logf("%s: %d informers have all objects, lists again: %q", fault.name, informers, lists[first:])
		if len(lists) > first {
			t.Errorf("%d lists after: %s", len(lists)-first, fault.name)
			first = len(lists)
		}
	}
}
