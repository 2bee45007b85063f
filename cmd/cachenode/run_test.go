package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// startProcess runs the real binary (this test binary, through testscript) with separate
// ports.
func startProcess(t *testing.T, endpoint string, args ...string) (cmd *exec.Cmd, http string, out *bytes.Buffer) {
	t.Helper()
	ports := make([]string, 5)
	for i := range ports {
		ports[i] = free(t)
	}
	exe := t.TempDir() + "/cachenode"
	if self, err := os.Executable(); err != nil {
		t.Fatal(err)
	} else if err := os.Symlink(self, exe); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe, append([]string{
		"run", "--name", "n1", "--data-dir", t.TempDir(), "--etcd", endpoint, "--bootstrap-expect", "1",
		"--listen", ports[0], "--peer-listen", ports[1], "--raft-listen", ports[2], "--gossip-listen", ports[3], "--http-listen", ports[4],
	}, args...)...)
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, "http://" + ports[4], out
}

func TestTermDrainsAndExitsZero(t *testing.T) {
	e := etcdtest.Start(t)
	cmd, http, out := startProcess(t, e.Endpoint(), "--drain-timeout", "20s")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !awaitReady(ctx, []string{http + "/readyz"}) {
		t.Fatal("not ready")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v after %v: %s", err, time.Since(began), out)
	}
	if !strings.Contains(out.String(), "drained") {
		t.Errorf("the drain is not logged: %s", out)
	}
}

func TestTakenPortNamesItsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--peer-listen", "--raft-listen", "--http-listen", "--gossip-listen"} {
		cmd, _, out := startProcess(t, "127.0.0.1:1", flag, taken.Addr().String())
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), flag) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
}
