package etcdwatch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A client that has used its part of the memory waits for the next part of the log, and so do its
// other watches. Watches of another client do not wait.
func TestACatchUpDoesNotWaitForAnotherClient(t *testing.T) {
	b := budget.New(1 << 20)
	all := b.Share(budget.CatchUps)
	half := func(name string) budget.Client { return budget.Client{Name: name, Max: budget.HalfOfTotal} }
	if err := b.Take(half("unread"), budget.CatchUps, all, 0); err != nil {
		t.Fatal(err)
	}
	p := newPast(&Streams{cfg: Config{Budget: b}})
	wants := func(client string) *watch {
		return &watch{s: &stream{of: p.of, holder: half(client)}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 10}
	}
	watches := []*watch{wants("unread"), wants("unread"), wants("reader"), wants("reader")}
	for i, parts := range []int{1, 1, 2, 2} {
		w := watches[i]
		if _, _, ok := p.take(w); ok {
			t.Fatal("the watch got a part of the log")
		}
		if n := len(p.parts[pastKey{rng: w.rng}]); n != parts {
			t.Errorf("watch %d: %d parts are requested, want %d", i, n, parts)
		}
	}
	if watches[0].rides != watches[1].rides || watches[2].rides != watches[3].rides || watches[0].rides == watches[2].rides {
		t.Error("watches wait for another client")
	}
	for _, w := range watches {
		p.leave(w)
	}
	p.running.Wait()
	b.Give(half("unread"), budget.CatchUps, all)
	for _, s := range b.Status() {
		if s.Held != 0 || s.Waiting != 0 || s.Clients != 0 {
			t.Errorf("%v: %+v", s.Use, s)
		}
	}
}

// counted is a log that counts its reads.
type counted struct{ reads atomic.Int32 }

func (l *counted) History(context.Context, etcd.HistoryRequest) (etcd.LogPage, error) {
	l.reads.Add(1)
	return etcd.LogPage{}, errors.New("it is not there")
}

// A watch whose client has just made etcd read its log pauses before the next read, and no longer
// pauses once it ends.
func TestACatchUpWaitsForItsClientsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(counted)
		p := newPast(&Streams{cfg: Config{Log: log}})
		w := &watch{s: &stream{of: p.of, holder: budget.Client{Name: "busy"}}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 10}
		p.paces.took("busy", time.Second, time.Now(), 100_000, 0)
		if _, _, ok := p.take(w); ok {
			t.Fatal("the watch got a part of the log")
		}
		time.Sleep(maxPace - time.Millisecond) // of fake time
		synctest.Wait()
		p.leave(w)
		p.running.Wait()
		if n := log.reads.Load(); n != 0 {
			t.Errorf("the log was read %d times before the pause was over", n)
		}
	})
}

// A watch does not pause for another client that needs the same part of the log.
func TestACatchUpDoesNotWaitForAnotherClientsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(counted)
		p := newPast(&Streams{cfg: Config{Log: log, Router: router.New(router.Config{Shards: noMap{}}), Logger: slog.New(slog.DiscardHandler)}})
		watchOf := func(client string) *watch {
			return &watch{s: &stream{of: p.of, holder: budget.Client{Name: client}}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 10}
		}
		p.paces.took("busy", time.Second, time.Now(), 100_000, 0)
		busy, other := watchOf("busy"), watchOf("other")
		p.take(busy)
		synctest.Wait()
		p.take(other)
		synctest.Wait()
		if n := log.reads.Load(); n != 1 {
			t.Errorf("the log was read %d times, want once for the client that need not pause", n)
		}
		p.leave(busy)
		p.leave(other)
		p.running.Wait()
	})
}

// failing is a script whose reads fail with err, if it is set.
type failing struct {
	script
	err error
}

func (l *failing) History(ctx context.Context, r etcd.HistoryRequest) (etcd.LogPage, error) {
	if l.err != nil {
		return etcd.LogPage{}, l.err
	}
	return l.script.History(ctx, r)
}

// For a watch that catches up, etcd counts as unavailable from its first failed read until a read succeeds. Other
// waits of the watch do not count.
func TestUnavailabilityOfEtcdForACatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := &kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "no endpoint answers"}
		log := &failing{script: script{first: 5, n: 10}, err: errors.New("it is not there")}
		p := newPast(&Streams{cfg: Config{Log: log, Budget: budget.New(64 << 20), Router: router.New(router.Config{Shards: noMap{}}), Logger: slog.New(slog.DiscardHandler)}})
		client := budget.Client{Name: "client", Max: budget.HalfOfTotal}
		w := &watch{s: &stream{of: p.of, holder: client}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 15}
		want := func(when string, age time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := p.away(w); got != age {
				t.Errorf("%s: etcd is away for %v, want %v", when, got, age)
			}
		}
		read := func() { // after the pause that follows the previous read
			time.Sleep(fetchRetry) // of fake time
			synctest.Wait()
			p.take(w)
		}
		p.take(w)
		want("a read that fails otherwise", 0)
		log.err = gone
		read()
		time.Sleep(fetchRetry / 2)
		want("the first read", fetchRetry/2)
		time.Sleep(fetchRetry / 2)
		want("before the next read", 0)
		p.take(w)
		want("the second read", fetchRetry)
		p.paces[client.Name] = pace{next: time.Now().Add(2 * fetchRetry)}
		read()
		want("its client's pause", 0)
		time.Sleep(fetchRetry)
		want("the third read", 3*fetchRetry)
		log.err = errors.New("it is not there")
		read()
		want("another failure", 0)
		log.err = gone
		read()
		time.Sleep(fetchRetry / 2)
		want("from the beginning", fetchRetry/2)
		log.err = nil
		time.Sleep(fetchRetry / 2)
		synctest.Wait()
		p.take(w)
		synctest.Wait()
		if _, _, ok := p.take(w); !ok || !w.away.IsZero() {
			t.Errorf("a read succeeds: %t, and etcd is away since %v", ok, w.away)
		}
		time.Sleep(keepPart + keepSpare)
		synctest.Wait()
		p.running.Wait()
	})
}

// A part of the log that no watch reads is kept for watches that resume. etcd reads its log again only after a
// minute, or if another part has needed the bytes.
func TestUnreadPartsOfTheLogAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		free  int  // bytes of the budget for parts, beside those that are reserved for one
		other bool // another range is read in between
		pause time.Duration
		reads int32
	}{
		"kept":                   {1 << 20, false, keepSpare / 2, 1},
		"dropped after a minute": {1 << 20, false, keepPart + keepSpare, 2},
		"kept beside another":    {1 << 20, true, keepSpare / 2, 2},
		"dropped for another":    {0, true, keepSpare / 2, 3},
		"not while it is in use": {0, true, time.Second, 1}, // the other one leaves before it has bytes
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &counting{script: script{first: 5, n: 10}}
				b := budget.New(64 << 20)
				kept := b.Share(budget.CatchUps) - int64(leastPart+c.free)
				if err := b.Take(budget.Client{}, budget.CatchUps, kept, 0); err != nil {
					t.Fatal(err)
				}
				p := newPast(&Streams{cfg: Config{Log: log, Budget: b, Router: router.New(router.Config{Shards: noMap{}}), Logger: slog.New(slog.DiscardHandler)}})
				reads := func(prefix string) *watch {
					w := &watch{s: &stream{of: p.of}, readerKind: readerKind{rng: kv.Prefix(prefix)}, next: 5, before: 15}
					p.take(w)
					synctest.Wait()
					return w
				}
				reads("/a/")
				time.Sleep(c.pause) // of fake time
				if c.other {
					w := reads("/b/")
					time.Sleep(time.Second)
					p.leave(w)
				}
				time.Sleep(keepPart)
				if batches, next, ok := p.take(reads("/a/")); c.reads < 3 && (!ok || next != 15 || len(batches) != 10) {
					t.Errorf("%d revisions up to %d, %v", len(batches), next, ok)
				}
				if n := log.reads.Load(); n != c.reads {
					t.Errorf("etcd has read its log %d times, want %d", n, c.reads)
				}
				time.Sleep(keepPart + keepSpare + time.Second)
				synctest.Wait()
				if n := b.Held(budget.CatchUps) - kept; n != 0 || len(p.parts) != 0 {
					t.Errorf("%d parts hold %d bytes in the end", len(p.parts), n)
				}
			})
		})
	}
}

// noMap is a node without a shard map.
type noMap struct{ router.Shards }

func (noMap) Map() *shard.Map { return nil }

// counting is a script that counts its reads.
type counting struct {
	script
	reads atomic.Int32
}

func (l *counting) History(ctx context.Context, r etcd.HistoryRequest) (etcd.LogPage, error) {
	l.reads.Add(1)
	return l.script.History(ctx, r)
}

// script is a log with n revisions of 1 KiB, the first of which is first.
type script struct{ first, n kv.Revision }

func (l script) History(_ context.Context, r etcd.HistoryRequest) (h etcd.LogPage, err error) {
	for h.Next = r.From; h.Next < l.first+l.n && len(h.Batches) < r.MaxBytes>>10; h.Next++ {
		value := kv.NewKeyValue(kv.Fields{Key: []byte("/a/k"), Value: make([]byte, 1<<10), CreateRevision: h.Next, ModRevision: h.Next, Version: 1})
		h.Batches = append(h.Batches, kv.Batch{Revision: h.Next, Events: []kv.Event{{Type: kv.Put, KV: value}}})
	}
	return h, nil
}

// For each part of the log, etcd reads its whole log from the part's first revision on. So a part keeps
// the whole result if the budget allows it, and otherwise as much as fits into its reserved bytes.
func TestPartsOfTheLogAreBounded(t *testing.T) {
	const first, revisions = 5, 1000
	for name, free := range map[string]bool{"free": true, "taken": false} {
		b := budget.New(64 << 20)
		if !free {
			if err := b.Take(budget.Client{}, budget.CatchUps, b.Share(budget.CatchUps)-2*leastPart, 0); err != nil {
				t.Fatal(err)
			}
		}
		p := newPast(&Streams{cfg: Config{Budget: b}})
		x := &part{key: pastKey{rng: kv.Prefix("/a/")}, from: first, next: first + revisions, size: leastPart}
		if err := b.Take(budget.Client{}, budget.CatchUps, leastPart, 0); err != nil {
			t.Fatal(err)
		}
		before := b.Held(budget.CatchUps)
		h, _ := script{first, revisions}.History(t.Context(), etcd.HistoryRequest{From: first, MaxBytes: mostPart})
		p.keepLocked(x, &h)
		n := kv.Revision(len(h.Batches))
		if want := n == revisions; want != free || n < 50 || h.Next != first+n {
			t.Errorf("%s: %d revisions up to %d", name, n, h.Next)
		}
		if held := b.Held(budget.CatchUps) - before; held != int64(x.size-leastPart) || !free && x.size > leastPart {
			t.Errorf("%s: a part of %d bytes holds %d more than before", name, x.size, held)
		}
	}
}
