package placement

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

type sink struct{ bytes.Buffer }

func (*sink) ID() string    { return "s" }
func (*sink) Cancel() error { return nil }
func (*sink) Close() error  { return nil }

func (f *fsm) applyCommand(t *testing.T, c shard.Command) outcome {
	t.Helper()
	b, err := shard.EncodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return f.Apply(&raft.Log{Data: b}).(outcome)
}

func TestFSMSnapshotKeepsRequests(t *testing.T) {
	show := func(*shard.Map) error { return nil }
	f := newFSM(show, func() {})
	found := shard.Command{RequestID: "first", Change: shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}}}
	if out := f.applyCommand(t, found); out.err != nil || out.version != 1 {
		t.Fatalf("%+v", out)
	}
	split := shard.Command{RequestID: "second", IfVersion: 1, Change: shard.Split{Shard: 1, At: []string{"a\xff"}}}
	f.applyCommand(t, split)

	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	f.applyCommand(t, shard.Command{RequestID: "behind the snapshot", IfVersion: 2, Change: shard.Split{Shard: 2, At: []string{"A"}}})
	var s sink
	if err := snap.Persist(&s); err != nil {
		t.Fatal(err)
	}
	snap.Release()

	g := newFSM(show, func() {})
	if err := g.Restore(io.NopCloser(&s.Buffer)); err != nil {
		t.Fatal(err)
	}
	if g.m.Version != 2 || len(g.m.Shards) != 2 {
		t.Errorf("restored %+v", g.m)
	}
	if out := g.applyCommand(t, split); out.err != nil || out.version != 2 {
		t.Errorf("repeated after a restore: %+v", out)
	}
	split.RequestID = "third"
	if out := g.applyCommand(t, split); !errors.Is(out.err, shard.ErrRefused) {
		t.Errorf("stale: %+v", out)
	}
}

// A node stops at a command of a newer version.
func TestFSMStopsAtNewerCommand(t *testing.T) {
	f := newFSM(func(*shard.Map) error { return nil }, func() {})
	out := f.Apply(&raft.Log{Data: []byte{shard.Level + 1, '{', '}'}}).(outcome)
	if !errors.Is(out.err, shard.ErrNewer) {
		t.Errorf("%+v", out)
	}
	if err := <-f.broken; !errors.Is(err, shard.ErrNewer) {
		t.Error(err)
	}
	found := shard.Command{Change: shard.Found{ClusterID: "c", Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}}}
	if out := f.applyCommand(t, found); !errors.Is(out.err, shard.ErrNewer) || f.m != nil {
		t.Errorf("a command is applied after the failure: %+v", out)
	}
	if _, err := f.Snapshot(); !errors.Is(err, shard.ErrNewer) {
		t.Errorf("snapshot: %v", err)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	var l requests
	for i := range 3 * requestsKept {
		l.add(request{RequestID: fmt.Sprint(i), Version: uint64(i)})
	}
	if len(l) != requestsKept {
		t.Errorf("%d requests, want %d", len(l), requestsKept)
	}
	if v, ok := l.find(fmt.Sprint(3*requestsKept - 1)); !ok || v != 3*requestsKept-1 {
		t.Error("the newest request is dropped")
	}
	if _, ok := l.find("0"); ok {
		t.Error("the oldest request is kept")
	}
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	id := func() string {
		t.Helper()
		id, err := Identity(dir)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id()
	if id() != first {
		t.Error("the second call returns another identity")
	}
	for _, p := range []string{filepath.Join(raftDir(dir), "snapshots"), filepath.Join(raftDir(dir), "raft.db")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if id() != first {
		t.Error("the identity changes while the log exists")
	}
	if err := os.Remove(filepath.Join(raftDir(dir), "raft.db")); err != nil {
		t.Fatal(err)
	}
	if id() == first {
		t.Error("the identity is kept after the log is lost")
	}
}

func TestConfigNamesEveryMistake(t *testing.T) {
	c := Config{BootstrapExpect: 2, Election: time.Second, Heartbeat: 2 * time.Second, Rules: planner.Rules{Settle: -1}}
	err := c.Validate()
	for _, want := range []string{"name", "UUID", "members", "logger", "--bootstrap-expect is 2", "data directory", "listener", "raft address", "etcd", "spec", "negative", "election (1s)", "split check"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
}
