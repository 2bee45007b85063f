package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
)

func TestMain(m *testing.M) {
	if endpoints := os.Getenv(childEnv); endpoints != "" {
		os.Exit(child(endpoints))
	}
	goleak.VerifyTestMain(m)
}

const patience = scripted.Patience

var (
	start      = scripted.Start
	rebuild    = scripted.Rebuild
	connect    = scripted.Connect
	deadline   = scripted.Deadline
	eventually = scripted.Eventually
)

func waitStarted(t testing.TB, w *client.Watcher) {
	t.Helper()
	select {
	case <-w.Started():
	case <-time.After(patience):
		t.Fatal("the watch did not start")
	}
}

// seen is the delivery of a watcher, and checks the rules that hold for every watch.
type seen struct {
	rng      client.Range
	revision int64 // of the last update
	batches  []client.Update
	state    *client.Update
}

// add takes an update; an error names the broken guarantee.
func (s *seen) add(u client.Update) error {
	if u.Revision <= s.revision {
		return fmt.Errorf("ordered, unique: %v at revision %d after revision %d", u.Kind, u.Revision, s.revision)
	}
	s.revision = u.Revision
	switch u.Kind {
	case client.KindBatch:
		s.batches = append(s.batches, u)
	case client.KindState:
		if s.state != nil || len(s.batches) > 0 {
			return errors.New("a state that is not the first update")
		}
		s.state = &u
	case client.KindProgress:
	}
	return nil
}

// read takes updates until the watcher has reached revision.
func (s *seen) read(ctx context.Context, w *client.Watcher, revision int64) error {
	for s.revision < revision {
		u, err := w.Next(ctx)
		if err != nil {
			return fmt.Errorf("at revision %d of %d: %w", s.revision, revision, err)
		}
		if err := s.add(u); err != nil {
			return err
		}
	}
	return nil
}

// check compares all deliveries after revision from with the history.
func (s *seen) check(history []clienttest.Batch, from int64, prev bool) error {
	got := s.batches
	if s.state != nil {
		from = s.state.Revision
		want := map[string]*pb.KeyValue{}
		for _, b := range history {
			for _, e := range b.Events {
				if key := string(e.GetKv().GetKey()); b.Revision <= from && s.rng.Contains(key) {
					if want[key] = e.GetKv(); e.GetType() == pb.EventType_DELETE {
						delete(want, key)
					}
				}
			}
		}
		if len(want) != len(s.state.KVs) {
			return fmt.Errorf("state at %d has %d keys, want %d", from, len(s.state.KVs), len(want))
		}
		for _, kv := range s.state.KVs {
			if w := want[string(kv.Key)]; w == nil || w.GetModRevision() != kv.ModRevision || !bytes.Equal(w.GetValue(), kv.Value) {
				return fmt.Errorf("state at %d: %q is %+v, want %v", from, kv.Key, kv, w)
			}
		}
	}
	for _, b := range history {
		if b.Revision <= from || b.Revision > s.revision {
			continue
		}
		var want []*pb.Event
		for _, e := range b.Events {
			if s.rng.Contains(string(e.GetKv().GetKey())) {
				want = append(want, e)
			}
		}
		if len(want) == 0 {
			continue
		}
		if len(got) == 0 || got[0].Revision != b.Revision {
			return fmt.Errorf("reliable: revision %d is missing (%d revisions left)", b.Revision, len(got))
		}
		if len(got[0].Events) != len(want) {
			return fmt.Errorf("atomic: revision %d has %d events, want %d", b.Revision, len(got[0].Events), len(want))
		}
		for i, e := range got[0].Events {
			w := want[i]
			if string(e.KV.Key) != string(w.GetKv().GetKey()) || !bytes.Equal(e.KV.Value, w.GetKv().GetValue()) ||
				e.KV.ModRevision != b.Revision || (e.Type == client.EventDelete) != (w.GetType() == pb.EventType_DELETE) {
				return fmt.Errorf("revision %d: event %d is %+v, want %v", b.Revision, i, e, w)
			}
			if prev && ((e.Prev == nil) != (w.GetPrevKv() == nil) || e.Prev != nil && e.Prev.ModRevision != w.GetPrevKv().GetModRevision()) {
				return fmt.Errorf("previous values: revision %d: event %d has %+v, want %v", b.Revision, i, e.Prev, w.GetPrevKv())
			}
		}
		got = got[1:]
	}
	if len(got) > 0 {
		return fmt.Errorf("revision %d does not exist", got[0].Revision)
	}
	return nil
}

// follow reads w up to revision and checks it from its start on.
func follow(t testing.TB, cluster *clienttest.Cluster, w *client.Watcher, s *seen, revision, from int64) {
	t.Helper()
	if err := s.read(deadline(t), w, revision); err != nil {
		t.Fatal(err)
	}
	if err := s.check(cluster.History(), from, false); err != nil {
		t.Fatal(err)
	}
}
