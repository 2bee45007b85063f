package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cachenode": main})
}

// UPDATE=1 go test ./cmd/cachenode rewrites the golden parts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
	})
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"done":             {[]string{"version"}, exitDone},
		"unknown command":  {[]string{"rnu"}, exitUsage},
		"unknown flag":     {[]string{"run", "--shard", "3"}, exitUsage},
		"a bad value":      {[]string{"run", "--shards", "x"}, exitUsage},
		"an argument":      {[]string{"config", "x"}, exitUsage},
		"bad settings":     {[]string{"run"}, exitUsage},
		"bad and shown":    {[]string{"config"}, exitUsage},
		"a bad dev":        {[]string{"dev", "--nodes", "0"}, exitUsage},
		"output that ends": {[]string{"version"}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			p := process{hostname: func() (string, error) { return "h", nil }, stdout: &out, stderr: &errOut}
			if c.code == exitFailed {
				p.stdout = brokenPipe{}
			}
			if code := execute(context.Background(), p, c.args); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errOut.String())
			}
			if (c.code == exitDone) != (errOut.Len() == 0) {
				t.Errorf("exit code %d and on standard error: %q", c.code, errOut.String())
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestFirstSignalCancelsSecondExits(t *testing.T) {
	signals := make(chan os.Signal)
	exited := make(chan int, 1)
	ctx, stop := cancelOnSignal(context.Background(), signals, func(code int) { exited <- code })
	signals <- syscall.SIGTERM
	<-ctx.Done()
	if cause := context.Cause(ctx); !strings.Contains(cause.Error(), "terminated") {
		t.Errorf("cause: %v", cause)
	}
	signals <- syscall.SIGINT
	if code := <-exited; code != exitForced {
		t.Errorf("exit code %d", code)
	}
	stop()
}

func TestStopWithoutSignalEndsTheContext(t *testing.T) {
	ctx, stop := cancelOnSignal(context.Background(), nil, func(code int) { t.Errorf("exit %d", code) })
	stop()
	if ctx.Err() == nil {
		t.Error("the context does not end")
	}
}

func TestATakenPortIsNamedWithItsFlag(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	err = portsFree(context.Background(), []config.Port{{Flag: "client-port", Use: "node-1 raft", Number: port}})
	want := "--client-port: cannot listen on 127.0.0.1:" + text + " (node-1 raft): address already in use; give another --client-port"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, slog.LevelWarn, config.FormatJSON)
	log.Info("not this")
	log.Warn("this", "shard", 3)
	var record map[string]any
	if err := json.Unmarshal(out.Bytes(), &record); err != nil || record["msg"] != "this" || record["shard"] != 3.0 {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	log.Warn("away", "error", fmt.Errorf("node-1: %w", status.Error(codes.Unavailable, "EOF")))
	if !strings.Contains(out.String(), `"error":"node-1: Unavailable: EOF"`) {
		t.Error(out.String())
	}
	out.Reset()
	newLogger(&out, slog.LevelInfo, config.FormatText).Info("plain")
	if !strings.Contains(out.String(), "level=INFO msg=plain") {
		t.Error(out.String())
	}
}
