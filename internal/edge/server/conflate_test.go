package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

const conflated = pb.SyncKind_SYNC_KIND_CONFLATED

// A conflated watch that was quiet gets a change at once, and nothing more until the interval is
// over. Until then its position does not change.
func TestConflatedOncePerInterval(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{server: brief})
	f := follow(t, h, kv.Range{})
	f.allow.Conflate = durationpb.New(time.Hour)
	s := f.on(r.watch())
	at := h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"), cachetest.Put("q", "1"))
	f.until(s, at)
	if f.units[conflated] != 1 || f.keys[conflated] != 3 {
		t.Fatalf("got %v units with %v keys", f.units, f.keys)
	}
	withheld := time.Now()
	h.Commit(cachetest.Put("a", "2"))
	h.Commit(cachetest.Delete("p"))
	r.serving()
	r.node.Replica(1).Observe(time.Now(), h.Now())
	for range 3 {
		m := s.next()
		if age := m.GetProgress().GetAge(); age != nil && time.Now().Add(-age.AsDuration()).After(withheld) {
			t.Errorf("the data that was sent is reported to be %v old, a change is withheld for %v", age.AsDuration(), time.Since(withheld))
		}
		if m.GetProgress() == nil || m.GetProgress().GetRevision() != int64(at) {
			t.Errorf("before the end of the interval: %v, the client is at %d", m, at)
		}
	}
	s.cancel(1)
	m := s.next()
	for m.GetProgress() != nil {
		m = s.next()
	}
	if e := m.GetEnded(); e.GetResumeRevision() != int64(at)+1 {
		t.Errorf("the end of the watch: %v, the client is at %d", m, at)
	}
}

// If few keys change often, a conflated watch gets their latest values, at most once per interval.
func TestConflatedSendsTheLatest(t *testing.T) {
	const interval = 50 * time.Millisecond
	rng := testseed.Rand(t)
	h := cachetest.New()
	here, _ := pairOf(t, h, nil)
	f := follow(t, h, kv.Range{})
	f.allow.Conflate = durationpb.New(interval)
	s := f.on(here.watch())
	began := time.Now()
	var last kv.Revision
	for range 100 {
		last = write(h, rng, 50)
		for f.at < int64(last)-500 {
			f.take(s.next())
		}
	}
	f.until(s, last)
	most := int(time.Since(began)/interval) + 2
	t.Logf("%d units in %v", f.units[conflated], time.Since(began))
	if n := f.units[conflated]; n > most || n == 0 || f.units[delta] != 0 {
		t.Errorf("%v, want at most %d", f.units, most)
	}
	// There are 26 letters with 4 keys each.
	if f.keys[conflated] > 104*f.units[conflated] {
		t.Errorf("%d keys in %d units", f.keys[conflated], f.units[conflated])
	}
}

// A large unit is sent in parts; other watches have their turn in between.
func TestConflatedInParts(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{server: func(c *server.Config) { c.FragmentBytes = 4 << 10 }})
	f := follow(t, h, kv.Range{})
	f.allow.Conflate = durationpb.New(10 * time.Millisecond)
	s := f.on(r.watch())
	var ops []cachetest.Op
	for i := range 500 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("%c/%d", 'a'+i%26, i), strings.Repeat("v", 100)))
	}
	h.Commit(ops...)
	for i := range ops {
		if i%2 == 0 {
			ops[i].Value = nil
		}
	}
	f.until(s, h.Commit(ops...))
	if f.keys[conflated] < 500 {
		t.Errorf("%v keys", f.keys)
	}
}

// The error of an invalid watch of units names the field.
func TestUnitsRefused(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	d := durationpb.New
	other := wire.ResumeToken(wire.Position{Cluster: wire.ClusterKey("test"), Lineage: 1, Range: kv.Single("other"), Revision: 5})
	for _, x := range []struct {
		name, field string
		c           *pb.CreateWatch
	}{
		{"conflated too often", "conflate", &pb.CreateWatch{AllowSync: true, Conflate: d(time.Millisecond)}},
		{"conflated too seldom", "conflate", &pb.CreateWatch{AllowSync: true, Conflate: d(2 * time.Hour)}},
		{"a negative interval", "conflate", &pb.CreateWatch{AllowSync: true, Conflate: d(-time.Second)}},
		{"no duration", "conflate", &pb.CreateWatch{AllowSync: true, Conflate: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"conflated without units", "conflate", &pb.CreateWatch{Conflate: d(time.Second)}},
		{"conflated with previous values", "conflate", &pb.CreateWatch{AllowSync: true, PrevKv: true, Conflate: d(time.Second)}},
		{"a token of another range", "resume_token", &pb.CreateWatch{AllowSync: true, Start: &pb.CreateWatch_ResumeToken{ResumeToken: other}}},
		{"a revision below 1", "start_revision", &pb.CreateWatch{AllowSync: true, Start: &pb.CreateWatch_StartRevision{StartRevision: -7}}},
	} {
		s := r.watch()
		x.c.WatchId, x.c.Key = 1, []byte("k")
		s.create(x.c)
		if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_INVALID || !strings.HasPrefix(e.GetMessage(), x.field+": ") {
			t.Errorf("%s: %v", x.name, e)
		}
		s.end()
	}
}
