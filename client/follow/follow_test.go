package follow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/follow"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var demo = client.Prefix("/demo/")

// copied is the copy that a worker keeps of a range.
type copied map[string]string

// state returns the expected copy of the range.
func state(cluster *clienttest.Cluster, r client.Range) copied {
	out := copied{}
	for _, kv := range cluster.State(cluster.Lineage(), cluster.Revision()) {
		if r.Contains(string(kv.GetKey())) {
			out[string(kv.GetKey())] = string(kv.GetValue())
		}
	}
	return out
}

var errBoom = errors.New("the database is gone")

// If apply fails, its update is passed again, and no earlier update. The next Run resumes
// from the file.
func TestRunPassesAFailedUpdateAgain(t *testing.T) {
	cluster := scripted.Start(t, clienttest.Config{})
	cluster.Put("/demo/a", "1")
	c := scripted.Connect(t, cluster)
	store := follow.File(filepath.Join(t.TempDir(), "position"))
	var got []string
	run := func(fails, ends int64) error {
		ctx, cancel := context.WithCancel(scripted.Deadline(t))
		defer cancel()
		return follow.Run(ctx, c, demo, store, func(_ context.Context, u client.Update) error {
			got = append(got, fmt.Sprintf("%v %d", u.Kind, u.Revision))
			switch u.Revision {
			case fails:
				return errBoom
			case ends:
				cancel()
			}
			return nil
		})
	}
	if err := run(0, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
	for range 3 {
		cluster.Put("/demo/a", "1")
	}
	if err := run(4, 0); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "apply batch at revision 4") {
		t.Errorf("after apply failed: %v", err)
	}
	if at, err := store.Load(t.Context(), demo); err != nil || at != cluster.At(3) {
		t.Errorf("the saved position is %v, %v", at, err)
	}
	if err := run(0, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
	if want := []string{"state 2", "batch 3", "batch 4", "batch 4", "batch 5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// crashing is a position store of a program that crashes: after the crash nothing is saved.
type crashing struct {
	saved   client.Position
	applied client.Position
	crashed bool
}

func (s *crashing) Load(context.Context, client.Range) (client.Position, error) { return s.saved, nil }

func (s *crashing) Save(_ context.Context, _ client.Range, p client.Position) error {
	if s.crashed {
		return errBoom
	}
	s.saved = p
	return nil
}

// A worker that crashes at any moment, even while it applies an update, loses nothing. Meanwhile nodes
// die, history is compacted and etcd is restored; in the end nodes and etcd are rebuilt.
func TestAWorkerThatCrashesLosesNothing(t *testing.T) {
	rng := testseed.Rand(t)
	cluster := scripted.Start(t, clienttest.Config{ChunkKeys: 2, FragmentEvents: 2})
	have, s := copied{}, &crashing{}
	work := func(until func() bool, crash int) {
		t.Helper()
		c := scripted.Connect(t, cluster)
		ctx, cancel := context.WithCancel(scripted.Deadline(t))
		defer cancel()
		s.crashed = false
		n := 0
		err := follow.Run(ctx, c, demo, s, func(_ context.Context, u client.Update) error {
			calls := 0
			if n++; n == crash {
				calls = 1 + rng.IntN(3)
			}
			call := func(f func()) error {
				if calls--; calls == 0 {
					s.crashed = true
					return errBoom
				}
				f()
				return nil
			}
			err := u.Apply(
				func(kv client.KeyValue) error { return call(func() { have[string(kv.Key)] = string(kv.Value) }) },
				func(key []byte) error { return call(func() { delete(have, string(key)) }) },
				func() error { return call(func() { clear(have) }) })
			if err != nil {
				return err
			}
			if s.applied = u.Position(); until() {
				cancel()
			}
			return nil
		})
		_ = c.Close()
		switch {
		case errors.Is(err, errBoom):
		case !errors.Is(err, context.Canceled):
			t.Fatal(err)
		case s.saved.Lineage != s.applied.Lineage || s.saved.Revision < s.applied.Revision:
			t.Errorf("Run ended at the saved position %v, but %v was applied", s.saved, s.applied)
		}
	}
	for range 30 {
		for range 1 + rng.IntN(8) {
			if key := fmt.Sprintf("/demo/%d", rng.IntN(10)); rng.IntN(3) == 0 {
				cluster.Delete(key)
			} else {
				cluster.Txn(clienttest.Op{Key: key, Value: fmt.Sprint(rng.IntN(100))}, clienttest.Op{Key: "/demo/last", Value: fmt.Sprint(rng.Int())})
			}
		}
		switch n := cluster.Nodes()[rng.IntN(3)]; rng.IntN(5) {
		case 0:
			n.Kill()
			if err := n.Restart(); err != nil {
				t.Fatal(err)
			}
		case 1:
			cluster.Compact(cluster.Revision())
		case 2:
			cluster.Compact(cluster.Revision())
			cluster.ForgetDeletes(cluster.Revision())
		case 3:
			cluster.Restore(max(2, cluster.Revision()-3))
		case 4:
			n.CutAfter(1 + rng.Int64N(5))
		}
		rev := cluster.Put("/demo/last", fmt.Sprint(rng.Int()))
		done := func() bool { return s.applied == cluster.At(rev) }
		work(done, 1+rng.IntN(3))
		if !done() {
			work(done, 0)
		}
		if want := state(cluster, demo); !maps.Equal(have, want) {
			t.Fatalf("the worker has %v, want %v", have, want)
		}
	}
	cluster = scripted.Rebuild(t, cluster, 3)
	work(func() bool { return s.applied == cluster.At(cluster.Revision()) }, 0)
	if want := state(cluster, demo); !maps.Equal(have, want) {
		t.Errorf("after the rebuild the worker has %v, want %v", have, want)
	}
}

// If the store fails, Run ends, and the updates after the last saved position are passed again.
func TestRunEndsWithItsStore(t *testing.T) {
	cluster := scripted.Start(t, clienttest.Config{Nodes: 1})
	cluster.Put("/demo/a", "1")
	c := scripted.Connect(t, cluster)
	n := 0
	count := func(context.Context, client.Update) error { n++; return nil }
	for range 2 {
		err := follow.Run(scripted.Deadline(t), c, demo, follow.File(filepath.Join(t.TempDir(), "none", "position")), count)
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "save the position") {
			t.Errorf("a directory that does not exist: %v", err)
		}
	}
	if n != 2 {
		t.Errorf("the state was passed %d times", n)
	}
	if err := follow.Run(scripted.Deadline(t), c, demo, follow.File(t.TempDir()), count); err == nil || !strings.Contains(err.Error(), "load the position") || n != 2 {
		t.Errorf("a file that cannot be read: %v", err)
	}
	if err := follow.Run(scripted.Deadline(t), c, client.Between("b", "a"), follow.File(filepath.Join(t.TempDir(), "position")), count); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty range: %v", err)
	}
}

func TestFileOfAnotherRange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position")
	f, at := follow.File(path), client.Position{Cluster: "c", Lineage: 2, Revision: 7}
	if got, err := f.Load(t.Context(), demo); err != nil || got != (client.Position{}) {
		t.Errorf("no file: %v, %v", got, err)
	}
	if err := f.Save(t.Context(), demo, at); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Load(t.Context(), demo); err != nil || got != at {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := f.Load(t.Context(), client.Prefix("/other/")); err == nil || !strings.Contains(err.Error(), "one file per range") {
		t.Errorf("another range: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                           "not a position file",
		"password: secret":           "not a position file",
		`{"revision":7,"more":1}`:    "not a position file",
		`{"range":"x","revision":7}`: "has no position",
		`{"range":"x","lineage":1,"cluster_id":"c"}`:               "has no position",
		`{"range":"x","revision":7,"cluster_id":"c"}`:              "has no position",
		`{"range":"x","revision":-7,"cluster_id":"c","lineage":1}`: "has no position",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(t.Context(), demo); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "delete it") || got != (client.Position{}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
