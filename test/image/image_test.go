package image

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// user is that of the Dockerfile.
const user = 65532

// In a root with nothing else, where it may write to its data alone, a node serves,
// and drains when it is told to.
func TestANodeRunsInTheImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds what is in the image")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	root := t.TempDir()
	must(t, os.Chmod(root, 0o755))
	bin := filepath.Join(root, "usr", "local", "bin")
	layOut := exec.CommandContext(t.Context(), "tools/image", "--contents", runtime.GOARCH, bin)
	layOut.Dir = "../.."
	if out, err := layOut.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var found []string
	entries, err := os.ReadDir(bin)
	must(t, err)
	for _, e := range entries {
		found = append(found, e.Name())
		isStatic(t, filepath.Join(bin, e.Name()))
	}
	if want := []string{"cachectl", "cachenode"}; !slices.Equal(found, want) {
		t.Errorf("the image has %q, want %q", found, want)
	}
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to change the root")
	}

	var version struct {
		Tags string `json:"tags"`
	}
	out, err := inside(t, root, "version", "--output", "json").Output()
	must(t, err)
	must(t, json.Unmarshal(out, &version))
	if version.Tags != "nodev" {
		t.Errorf("built with the tags %q", version.Tags)
	}
	if out, err := inside(t, root, "dev").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("without the etcd")) {
		t.Errorf("dev: %v: %s", err, out)
	}
	serves(t, root)
}

// isStatic fails when a program asks for a loader or a library.
func isStatic(t *testing.T, file string) {
	t.Helper()
	f, err := elf.Open(file)
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static: it has %v", file, p.Type)
		}
	}
}

// serves runs a node until it is ready, and has it drain.
func serves(t *testing.T, root string) {
	t.Helper()
	const data = "/var/lib/shardwatch"
	must(t, os.MkdirAll(root+data, 0o755))
	must(t, os.Chown(root+data, user, user))
	e := etcdtest.Start(t)
	at, err := freeport.Take(5)
	must(t, err)
	cmd := inside(t, root, "run", "--name", "n1", "--data-dir", data, "--etcd", e.Endpoint(), "--bootstrap-expect", "1",
		"--listen", at[0], "--peer-listen", at[1], "--raft-listen", at[2], "--gossip-listen", at[3], "--http-listen", at[4])
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	probe := time.NewTicker(50 * time.Millisecond)
	defer probe.Stop()
	for deadline := time.Now().Add(time.Minute); !ready(t, at[4]); {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v\n%s", err, log.String())
		case <-probe.C:
			if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				<-ended
				t.Fatalf("it was not ready within a minute\n%s", log.String())
			}
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
}

func ready(t *testing.T, address string) bool {
	t.Helper()
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// inside is cachenode as the image runs it, on this machine's network.
func inside(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/local/bin/cachenode", args...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/local/bin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
