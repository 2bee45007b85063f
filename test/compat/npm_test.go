package compat_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each program in npm makes assertions, and prints the same output with every server: the output
// with the tier is compared with the output with an etcd.
func TestNpm(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	modules := npm(t)
	for _, program := range []string{"kv", "watch", "lease"} {
		t.Run(program, func(t *testing.T) {
			if program != "kv" && !everything() {
				t.Skip("make compat runs it")
			}
			said := map[string]string{}
			for _, name := range targets() {
				t.Run(name, func(t *testing.T) {
					said[name] = runNode(t, modules, program, start(t, name, false))
				})
			}
			if want, got := said["etcd"], said["tier"]; got != want && got != "" {
				t.Errorf("the tier is no etcd:\n%s", difference(want, got))
			}
		})
	}
}

// runNode runs a program and returns its output. At the program's request it kills and restarts all
// its servers, with a write after each.
func runNode(t *testing.T, modules, program string, g *target) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join("npm", program+".js"))
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"), "ENDPOINTS="+strings.Join(g.endpoints(), ","))
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
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
	var said strings.Builder
	lines := bufio.NewScanner(out)
	next := func() (string, bool) {
		if !lines.Scan() {
			return "", false
		}
		fmt.Fprintln(&said, lines.Text())
		return lines.Text(), true
	}
	for line, more := next(); more; line, more = next() {
		if line == "break" {
			breakAll(ctx, t, g, in, next)
		}
	}
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(said.String(), "done\n") {
		t.Fatalf("%v\n%s\n%s", err, said.String(), complaints.String())
	}
	return said.String()
}

// breakAll breaks every connection, and sends the program each write that it may see. The program
// answers with a line before the next connection breaks: this client treats events after a
// reconnect as delivered once the watch is created.
func breakAll(ctx context.Context, t *testing.T, g *target, program io.Writer, next func() (string, bool)) {
	t.Helper()
	n := 0
	err := g.restart(ctx, func() error {
		n++
		word := fmt.Sprintf("broken%d", n)
		cli := connect(t, g.etcd.Endpoint())
		if _, err := cli.Put(ctx, "w/"+word, "x"); err != nil {
			return err
		}
		fmt.Fprintln(program, word)
		if line, _ := next(); !strings.HasPrefix(line, word) {
			return fmt.Errorf("it says %q of %s", line, word)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	fmt.Fprintln(program, "mended")
}

// difference returns the lines that are in only one of two texts.
func difference(want, got string) string {
	var b strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, z string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			z = g[i]
		}
		if a != z {
			fmt.Fprintf(&b, "- %s\n+ %s\n", a, z)
		}
	}
	return b.String()
}
