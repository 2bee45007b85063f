package etcdtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// Etcd runs on when the thread ends on which it was started: any goroutine that stays
// locked to its thread takes that along.
func TestEtcdOutlivesTheThreadOfItsStart(t *testing.T) {
	p := etcdtest.StartProcess(t)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	thread, started := 0, make(chan error)
	go func() {
		runtime.LockOSThread()
		thread = syscall.Gettid()
		started <- p.Start(t.Context())
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(end) {
			t.Skip("the thread does not end")
		}
	}
	if _, err := get(t, p.Endpoint(), "k", 10*time.Second); err != nil {
		t.Errorf("etcd: %v", err)
	}
}
