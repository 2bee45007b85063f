package etcdtest_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, endpoint, key string, patience time.Duration) (int64, error) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := cli.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	return r.Count, nil
}

func TestEmbeddedKeepsEndpointAndData(t *testing.T) {
	s := etcdtest.Start(t)
	before := s.Endpoint()
	if _, err := s.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Stop()
	s.Restart()
	if n, err := get(t, s.Endpoint(), "k", time.Minute); n != 1 || err != nil || s.Endpoint() != before {
		t.Errorf("%d, %v at %s, was %s", n, err, s.Endpoint(), before)
	}
}

func TestScrapeCountsWatchersAndRanges(t *testing.T) {
	s := etcdtest.StartProcess(t)
	scrape := func() etcdtest.Metrics {
		m, err := etcdtest.Scrape(t.Context(), s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := scrape()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	for range 3 {
		if _, err := cli.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		<-cli.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	}
	after := scrape()
	if n := after.Ranges() - before.Ranges(); n != 3 {
		t.Errorf("%d ranges", n)
	}
	if before.Watchers() != 0 || after.Watchers() != 2 || after.WatchStreams() != 1 {
		t.Errorf("%d watchers, then %d on %d streams", before.Watchers(), after.Watchers(), after.WatchStreams())
	}
}

func TestProcessSurvivesItsFaults(t *testing.T) {
	p := etcdtest.StartProcess(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint()}, Logger: zap.NewNop()})
	must(err)
	_, err = cli.Put(t.Context(), "k", "v")
	must(err)
	must(cli.Close())

	must(p.Pause())
	paused := func() bool { // its last thread may stop a moment later
		_, err := get(t, p.Endpoint(), "k", 300*time.Millisecond)
		return errors.Is(err, context.DeadlineExceeded)
	}
	for end := time.Now().Add(time.Minute); !paused(); {
		if time.Now().After(end) {
			t.Fatal("a paused etcd answers")
		}
	}
	must(p.Cont())
	for name, end := range map[string]func() error{
		"kill": p.Kill, "stop": p.Stop, "kill while paused": func() error { return errors.Join(p.Pause(), p.Kill()) },
	} {
		pid := p.PID()
		must(end())
		must(end2(p))
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: the process still exists: %v", name, err)
		}
		if p.PID() != 0 || p.Pause() == nil {
			t.Errorf("%s: the process is reported as running", name)
		}
		must(p.Start(t.Context()))
		if n, err := get(t, p.Endpoint(), "k", time.Minute); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if p.Start(t.Context()) == nil {
		t.Error("the second Start did not fail")
	}
}

// end2 stops and kills a process that has ended.
func end2(p *etcdtest.Process) error { return errors.Join(p.Stop(), p.Kill()) }

func TestProcessThatCannotStart(t *testing.T) {
	p := etcdtest.StartProcess(t)
	for name, cfg := range map[string]etcdtest.ProcessConfig{
		"port is taken":  {Dir: t.TempDir(), ClientAddr: p.Endpoint()},
		"wrong argument": {Dir: t.TempDir(), Args: []string{"--no-such-flag"}},
	} {
		other, err := etcdtest.NewProcess(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(t.Context()); err == nil {
			t.Errorf("%s: etcd started", name)
		}
	}
	if _, err := etcdtest.NewProcess(t.Context(), etcdtest.ProcessConfig{}); err == nil {
		t.Error("no error without a directory")
	}
}

// Concurrent callers share one build, and all get its path.
func TestBinaryIsBuiltOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks at a Linux home directory")
	}
	var all sync.WaitGroup
	var paths [3]string
	for i := range paths {
		all.Go(func() {
			path, err := etcdtest.Binary(t.Context())
			if err != nil {
				t.Error(err)
			}
			paths[i] = path
		})
	}
	all.Wait()
	if paths[0] != paths[1] || paths[1] != paths[2] {
		t.Errorf("different paths: %v", paths)
	}
	if info, err := os.Stat(paths[0]); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("%s is not executable: %v", paths[0], err)
	}
}
