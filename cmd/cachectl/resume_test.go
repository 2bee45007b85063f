package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client/clienttest"
)

// A watch that is killed at any moment loses nothing: its output, or the input of its
// command, has every change in order, some changes more than once.
func TestAKilledWatchLosesNothing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, handler := range map[string]string{"printed": "", "handled": `cat >>"$OUT"`} {
		t.Run(name, func(t *testing.T) {
			cluster, err := clienttest.Start(clienttest.Config{Nodes: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			dir := t.TempDir()
			bin, out := filepath.Join(dir, "cachectl"), filepath.Join(dir, "out") // testscript.Main chooses the command by this name
			if err := os.Symlink(self, bin); err != nil {
				t.Fatal(err)
			}
			run := func(until int64) {
				args := []string{"watch", "--prefix", "/", "--from", "2", "-o", "json", "--resume-file", filepath.Join(dir, "position"), "--endpoints", cluster.Endpoints()[0]}
				if handler != "" {
					args = append(args, "--", "sh", "-c", handler)
				}
				cmd := exec.CommandContext(t.Context(), bin, args...)
				cmd.Env = append(os.Environ(), "OUT="+out, "CACHECTL_CONFIG="+filepath.Join(dir, "none"))
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if handler == "" {
					f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					cmd.Stdout = f
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(time.Minute); last(t, out) < until; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						_ = cmd.Process.Kill()
						_ = cmd.Wait()
						t.Fatalf("revision %d did not arrive; the last revision is %d: %s", until, last(t, out), stderr.String())
					}
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			const runs, each = 5, 20
			for i := range runs {
				for range each {
					cluster.Put("/k"+strconv.Itoa(i), "v")
				}
				run(cluster.Revision() - each/2) // in the middle
			}
			run(cluster.Revision())
			next := int64(2)
			for _, rev := range revisions(t, out) {
				if rev > next {
					t.Fatalf("revision %d is missing before %d", next, rev)
				}
				next = max(next, rev+1)
			}
		})
	}
}

func last(t *testing.T, out string) (rev int64) {
	for _, r := range revisions(t, out) {
		rev = max(rev, r)
	}
	return rev
}

// revisions returns the revisions in the lines of a file, whose last line may be incomplete.
func revisions(t *testing.T, out string) (revs []int64) {
	t.Helper()
	b, err := os.ReadFile(out)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		var e struct{ Revision int64 }
		if strings.HasSuffix(l, "\n") && json.Unmarshal([]byte(l), &e) == nil {
			revs = append(revs, e.Revision)
		}
	}
	return revs
}
