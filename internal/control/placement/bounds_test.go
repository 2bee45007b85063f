package placement

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// state is a snapshot of a map and its requests.
func state(t *testing.T, m *shard.Map, kept ...request) []byte {
	t.Helper()
	var s sink
	if err := (&fsmSnapshot{m: m, requests: kept}).Persist(&s); err != nil {
		t.Fatal(err)
	}
	return s.Bytes()
}

// closes is a reader that records whether it was closed.
type closes struct {
	io.Reader
	err    error
	closed bool
}

func (c *closes) Close() error { c.closed = true; return c.err }

// A snapshot that is torn, from a newer version or from another cluster stops the
// node: it applies nothing to its previous state.
func TestASnapshotThatCannotBeRestoredStopsTheNode(t *testing.T) {
	m := maptest.Pair(t, "a", "b")
	sound := state(t, m, request{"first", 1})
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		r    io.Reader
		show error
		want error
	}{
		"empty":              {bytes.NewReader(nil), nil, nil},
		"of a newer version": {bytes.NewReader(append([]byte{snapshotLevel + 1}, sound[1:]...)), nil, shard.ErrNewer},
		"cut off":            {bytes.NewReader(sound[:len(sound)-1]), nil, nil},
		"without a map":      {strings.NewReader("\x01" + `{"map":"AAAA"}`), nil, nil},
		"unreadable":         {io.MultiReader(bytes.NewReader(sound[:5]), &closes{Reader: errReader{broken}}), nil, broken},
		"of another cluster": {bytes.NewReader(sound), ErrForeign, ErrForeign},
	} {
		f := newFSM(func(*shard.Map) error { return c.show }, func() {})
		f.m = m
		r := &closes{Reader: c.r}
		err := f.Restore(r)
		if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !r.closed {
			t.Errorf("%s: %v, closed %v", what, err, r.closed)
		}
		if told := <-f.broken; told == nil {
			t.Errorf("%s: the node is not notified", what)
		}
		if out := f.applyCommand(t, shard.Command{IfVersion: 1, Change: shard.Split{Shard: 1, At: []string{"c"}}}); out.err == nil || f.m != m {
			t.Errorf("%s: a command is applied after the failure", what)
		}
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// A snapshot replaces the state of the node: the map is published, and requests that
// are not in it are unknown.
func TestASnapshotReplacesTheState(t *testing.T) {
	m := maptest.Pair(t, "a", "b")
	var shown []*shard.Map
	f := newFSM(func(m *shard.Map) error { shown = append(shown, m); return nil }, func() {})
	f.requests.add(request{"before", 7})
	r := &closes{Reader: bytes.NewReader(state(t, m, request{"first", 1}))}
	if err := f.Restore(r); err != nil || !r.closed {
		t.Fatalf("%v, closed %v", err, r.closed)
	}
	if len(shown) != 1 || shown[0] != f.m || f.m.Version != 1 || len(f.m.Shards) != 2 {
		t.Errorf("published %v, the node has %+v", shown, f.m)
	}
	if _, ok := f.requests.find("before"); ok {
		t.Error("a request that is not in the snapshot counts as made")
	}
	if v, ok := f.requests.find("first"); !ok || v != 1 {
		t.Error("a request in the snapshot is missing")
	}
	// Before the cluster is founded there is no map.
	if err := f.Restore(io.NopCloser(bytes.NewReader(state(t, nil, request{"x", 1})))); err != nil || f.m != nil || len(shown) != 1 {
		t.Errorf("%v: map %v, published %d", err, f.m, len(shown))
	}
	if err := f.Restore(&closes{Reader: bytes.NewReader(state(t, m)), err: errors.New("cannot close")}); err == nil {
		t.Error("Restore drops the error of Close")
	}
}

// failing is a sink whose disk is full.
type failing struct {
	sink
	cancelled bool
}

func (*failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }
func (f *failing) Cancel() error           { f.cancelled = true; return nil }

// A failed write of a snapshot is cancelled, not closed as if it were complete.
func TestASnapshotThatCannotBeWrittenIsCancelled(t *testing.T) {
	f := &failing{}
	if err := (&fsmSnapshot{m: maptest.Pair(t, "a", "b")}).Persist(f); err == nil || !f.cancelled || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v, cancelled %v", err, f.cancelled)
	}
}

// A map that is refused is not applied, and a refused request may be repeated.
func TestARefusedRequestIsNotRemembered(t *testing.T) {
	var failed error
	f := newFSM(func(*shard.Map) error { return failed }, func() {})
	f.m = maptest.Pair(t, "a", "b")
	stale := shard.Command{RequestID: "r", IfVersion: 9, Change: shard.Split{Shard: 1, At: []string{"c"}}}
	if out := f.applyCommand(t, stale); !errors.Is(out.err, shard.ErrRefused) || f.failed != nil {
		t.Errorf("%+v, %v", out, f.failed)
	}
	stale.IfVersion = 1
	if out := f.applyCommand(t, stale); out.err != nil || out.version != 2 {
		t.Errorf("%+v", out)
	}
	failed = ErrForeign
	before := f.m
	out := f.applyCommand(t, shard.Command{RequestID: "s", IfVersion: 2, Change: shard.Split{Shard: 2, At: []string{"x"}}})
	if !errors.Is(out.err, ErrForeign) || f.m != before {
		t.Errorf("%+v, map of version %d", out, f.m.Version)
	}
	if _, ok := f.requests.find("s"); ok {
		t.Error("a request that was not applied counts as made")
	}
}

// A node refuses the map of another cluster, and does not return to an older map.
func TestMapsOnlyGoForward(t *testing.T) {
	b := new(versions)
	if m, d := b.since("c", 0); m != nil || d != nil {
		t.Error("a node without a map returns a map or a delta")
	}
	second := maptest.Pair(t, "a", "b")
	second.Version = 2
	_, changed := b.watch()
	if err := b.show(second); err != nil {
		t.Fatal(err)
	}
	<-changed
	_, changed = b.watch()
	for version := range uint64(3) {
		m := maptest.Pair(t, "c", "d")
		m.Version = version
		if err := b.show(m); err != nil {
			t.Error(err)
		}
	}
	foreign := maptest.Pair(t, "a", "b")
	foreign.ClusterID, foreign.Version = "other", 9
	if err := b.show(foreign); !errors.Is(err, ErrForeign) {
		t.Errorf("map of another cluster: %v", err)
	}
	if m, _ := b.watch(); m != second {
		t.Errorf("shows %+v", m)
	}
	select {
	case <-changed:
		t.Error("notified without a change")
	default:
	}
}

// A voter that received its log from others takes the cluster ID that a member announces,
// otherwise the ID computed from the founders.
func TestClusterOfALogFromOthers(t *testing.T) {
	members := []shard.Member{{Name: "a", ClusterID: "x", State: shard.Alive}, {Name: "c", State: shard.Alive}}
	servers := []planner.Server{{ID: "a"}, {ID: "b"}}
	if got := toldCluster(members, servers); got != "x" {
		t.Errorf("cluster announced by a voter: %q", got)
	}
	if got := toldCluster(members[1:], servers); got != clusterIDOf(servers) || got == clusterIDOf(servers[:1]) {
		t.Errorf("cluster computed from the founders: %q", got)
	}
}

// The FSM reports each configuration that is committed.
func TestTheFSMReportsConfigurations(t *testing.T) {
	told := 0
	f := newFSM(nil, func() { told++ })
	f.StoreConfiguration(1, raft.Configuration{})
	if told != 1 {
		t.Error("not notified that the voters may have changed")
	}
}

// The report of one node, which is asked because it should vote, does not stand for the copies of
// the others. A leader that never asks for reports does not wait for them.
func TestOneReportDoesNotCoverTheOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Placement{maps: new(versions)}
		l := &leader{raftRun: &raftRun{Placement: p, r: new(raft.Raft)}}
		if !l.knowsCopies(new(shard.Map), []shard.Member{{Draining: true}}) {
			t.Error("waits for reports that are never requested")
		}
		p.cfg.Members = func() []shard.Member {
			return []shard.Member{{Name: "a", State: shard.Alive}, {Name: "b", State: shard.Alive}}
		}
		p.cfg.Reports = func(_ context.Context, nodes []shard.NodeID) (out []planner.Report) {
			for _, n := range nodes {
				out = append(out, planner.Report{Node: n})
			}
			return out
		}
		l.askReport(t.Context(), "a")
		if l.reported() == nil || l.knowsCopies(new(shard.Map), []shard.Member{{Draining: true}}) {
			t.Error("the report of one node counts for all nodes")
		}
		m := &shard.Map{Shards: []shard.Shard{{Replicas: []shard.NodeID{"b"}}}, Drained: []shard.NodeID{"a", "b"}}
		for node, waits := range map[shard.NodeID]bool{"a": false, "b": true, "c": false} {
			if l.knowsCopies(m, []shard.Member{{Name: node}}) == waits {
				t.Errorf("a and b are drained in the map, b has a shard: waits for reports because of %s: %v", node, !waits)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go l.askReports(ctx)
		synctest.Wait()
		if !l.knowsCopies(new(shard.Map), []shard.Member{{Draining: true}}) {
			t.Error("waits after all nodes were asked")
		}
	})
}
