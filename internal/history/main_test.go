package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the etcd of one shard, and its cache.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	r       kv.Range
	cache   *cache.Cache
	updates chan kv.Update
	live    map[string]*kv.KeyValue
	begin   kv.Revision // the first revision of the cache
	now     kv.Revision
	value   int // maximum size of a value in bytes
}

// newWorld starts a cache at revision 1. tune may change its config.
func newWorld(t *testing.T, tune func(*cache.Config)) *world {
	t.Helper()
	return newWorldAt(t, 1, tune)
}

// newWorldAt is newWorld at a later revision, without the history before it.
func newWorldAt(t *testing.T, begin kv.Revision, tune func(*cache.Config)) *world {
	t.Helper()
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(testseed.Of(t), uint64(begin))), r: kv.Range{Start: "/a", End: "/z"},
		updates: make(chan kv.Update), live: map[string]*kv.KeyValue{}, begin: begin, now: begin, value: 60,
	}
	cfg := cache.Defaults()
	cfg.Range, cfg.Source = w.r, w
	if tune != nil {
		tune(&cfg)
	}
	w.cache = cache.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.cache.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-w.cache.Ready()
	return w
}

// Follow implements cache.Source.
func (w *world) Follow(ctx context.Context, _ kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: w.begin, Floor: w.begin + 1}, nil) || !yield(kv.Update{Kind: kv.UpdateReady, Revision: w.begin}, nil) {
			return
		}
		for {
			select {
			case u := <-w.updates:
				if !yield(u, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// step makes one revision, in this range or in another one.
func (w *world) step() {
	w.now++
	u := kv.Update{Kind: kv.UpdateProgress, Revision: w.now}
	if w.rng.IntN(6) > 0 {
		u = kv.Update{Kind: kv.UpdateBatch, Revision: w.now, Batch: kv.Batch{Revision: w.now, Received: time.Now(), Events: w.events()}}
	}
	w.updates <- u
}

func (w *world) events() (out []kv.Event) {
	touched := map[string]bool{}
	for range 1 + w.rng.IntN(4)*w.rng.IntN(4) {
		key := fmt.Sprintf("/k/%02d", w.rng.IntN(60))
		if touched[key] {
			continue
		}
		touched[key] = true
		old := w.live[key]
		if old != nil && w.rng.IntN(3) == 0 {
			delete(w.live, key)
			out = append(out, kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), ModRevision: w.now})})
			continue
		}
		f := kv.Fields{Key: []byte(key), Value: []byte(strings.Repeat("v", w.rng.IntN(w.value))), CreateRevision: w.now, ModRevision: w.now, Version: 1}
		if old != nil {
			f.CreateRevision, f.Version = old.CreateRevision(), old.Version()+1
		}
		w.live[key] = kv.NewKeyValue(f)
		out = append(out, kv.Event{Type: kv.Put, KV: w.live[key]})
	}
	return out
}

// run makes n revisions.
func (w *world) run(n int) {
	for range n {
		w.step()
	}
	if err := w.cache.WaitProgress(w.t.Context(), w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) shard(id shard.ID) Shard { return Shard{ID: id, Range: w.r, Export: w.cache.Export} }

func (w *world) past() *cache.Past {
	w.t.Helper()
	x, err := w.cache.Export()
	if err != nil {
		w.t.Fatal(err)
	}
	return x.Past()
}

var origin = Origin{Cluster: "c", Etcd: 7, Lineage: 3}

// load reads one shard from a copy of the directory with a separate store, as after a kill of the process.
func load(t *testing.T, dir string, o Origin, id shard.ID, r kv.Range) (*Store, *cache.Past, *told) {
	t.Helper()
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return reload(t, killed, o, id, r)
}

// reload is load on the directory itself, which no other store has open.
func reload(t *testing.T, dir string, o Origin, id shard.ID, r kv.Range) (*Store, *cache.Past, *told) {
	t.Helper()
	log := newTold()
	s := New(Config{Dir: dir, MaxBytes: 64 << 20, Logger: log.logger()})
	h := s.Load(o, map[shard.ID]kv.Range{id: r})[id]
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, h, log
}

func words(b *kv.Batch) string {
	var out []string
	for i := range b.Events {
		e := &b.Events[i]
		s := fmt.Sprintf("%v %x", e.Type, e.KV.Encoded())
		if e.Prev != nil {
			s += fmt.Sprintf("<%x", e.Prev.Encoded())
		}
		out = append(out, s)
	}
	return fmt.Sprintf("%d: %s", b.Revision, strings.Join(out, ", "))
}

// part returns an error unless h is a part of the known history in the range r, complete up to its progress.
func part(h, known *cache.Past, r kv.Range) error {
	known = known.Part(r)
	all := map[kv.Revision]string{}
	for _, b := range known.Batches {
		all[b.Revision] = words(b)
	}
	last := h.Floor - 1
	for _, b := range h.Batches {
		if b.Revision <= last || b.Revision > h.Progress {
			return fmt.Errorf("revision %d after revision %d, progress %d", b.Revision, last, h.Progress)
		}
		last = b.Revision
		if want, ok := all[b.Revision]; (ok || b.Revision >= known.Floor) && want != words(b) {
			return fmt.Errorf("got  %s\nwant %s", words(b), want)
		}
	}
	got := map[kv.Revision]bool{}
	for _, b := range h.Batches {
		got[b.Revision] = true
	}
	for _, b := range known.Batches {
		if b.Revision >= h.Floor && b.Revision <= h.Progress && !got[b.Revision] {
			return fmt.Errorf("revision %d is missing between %d and %d", b.Revision, h.Floor, h.Progress)
		}
	}
	return sameDeletes(h, known)
}

// sameDeletes compares the deletes of both.
func sameDeletes(h, known *cache.Past) error {
	from, to := max(h.DeltaFloor, known.DeltaFloor), min(h.Progress, known.Progress)
	deletes := func(h *cache.Past) (out []string) {
		last := kv.Revision(0)
		add := func(key string, r kv.Revision) {
			if r < last {
				out = append(out, "deletes out of order")
			}
			if last = r; r >= from && r <= to {
				out = append(out, fmt.Sprintf("%d %s", r, key))
			}
		}
		for _, d := range h.Tombstones {
			add(d.Key, d.Revision)
		}
		for _, b := range h.Batches {
			for i := range b.Events {
				if b.Events[i].Type == kv.Delete {
					add(string(b.Events[i].KV.Key()), b.Revision)
				}
			}
		}
		return out
	}
	if got, want := deletes(h), deletes(known); !slices.Equal(got, want) {
		return fmt.Errorf("deletes from %d to %d: %v, want %v", from, to, got, want)
	}
	return nil
}
