package devetcd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/devetcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs an etcd until the returned function is called, which returns the result of Run.
func run(t *testing.T, cfg devetcd.Config) (addr string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(addr string) { ready <- addr }
	go func() { ended <- devetcd.Run(ctx, cfg) }()
	stop = func() error { cancel(); return <-ended }
	select {
	case addr = <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready", stop())
	}
	return addr, stop
}

func client(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

// Written data is still there after a restart on the same port.
func TestRunKeepsItsData(t *testing.T) {
	cfg := devetcd.Config{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", NoSync: true, Logger: slog.New(slog.DiscardHandler)}
	addr, stop := run(t, cfg)
	cli := client(t, addr)
	if _, err := cli.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	_ = cli.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cfg.ClientAddr = addr
	again, stop := run(t, cfg)
	if again != addr {
		t.Errorf("the address was %s and is now %s", addr, again)
	}
	cli = client(t, again)
	if r, err := cli.Get(t.Context(), "k"); err != nil || r.Count != 1 {
		t.Error(r, err)
	}
	_ = cli.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A watch is cut when Run ends, and does not delay it.
func TestRunEndsUnderAWatch(t *testing.T) {
	addr, stop := run(t, devetcd.Config{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", NoSync: true, Logger: slog.New(slog.DiscardHandler)})
	cli := client(t, addr)
	defer cli.Close()
	watch, err := etcdserverpb.NewWatchClient(cli.ActiveConnection()).Watch(t.Context())
	if err == nil {
		err = watch.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("k")}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || !m.GetCreated() {
		t.Fatal(m, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if m, err := watch.Recv(); err == nil {
		t.Errorf("the watch continues: %v", m)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunNamesATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = devetcd.Run(t.Context(), devetcd.Config{Dir: t.TempDir(), ClientAddr: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
	var taken *devetcd.AddrInUseError
	if !errors.As(err, &taken) || taken.Addr != l.Addr().String() {
		t.Errorf("got %v", err)
	}
}

func TestRunNamesAnUnusableDirectory(t *testing.T) {
	var log bytes.Buffer
	err := devetcd.Run(t.Context(), devetcd.Config{Dir: "/dev/null/x", ClientAddr: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil || !strings.Contains(err.Error(), "/dev/null/x") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "source=etcd") {
		t.Errorf("etcd's messages are missing in the log: %s", log.String())
	}
}
