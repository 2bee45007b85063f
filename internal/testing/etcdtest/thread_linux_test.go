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

// Etcd survives the end of the thread that started it: a goroutine that ends while it is
// locked to its thread also ends the thread.
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
