package etcdwatch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// A watch waits with those of its own client for the part of the log that a client which
// has its part of the memory waits for, and not with those of another one.
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
			t.Fatal("there is something to take")
		}
		if n := len(p.parts[pastKey{rng: w.rng}]); n != parts {
			t.Errorf("watch %d: %d parts are wanted, want %d", i, n, parts)
		}
	}
	if watches[0].rides != watches[1].rides || watches[2].rides != watches[3].rides || watches[0].rides == watches[2].rides {
		t.Error("watches wait with those of another client")
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

func (l *counted) History(context.Context, etcd.HistoryRequest) (etcd.History, error) {
	l.reads.Add(1)
	return etcd.History{}, errors.New("it is not there")
}

// A watch whose client has just had etcd read its log waits before etcd reads it again, and
// stops waiting when it is not wanted any more.
func TestACatchUpWaitsForItsClientsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(counted)
		p := newPast(&Streams{cfg: Config{Log: log}})
		w := &watch{s: &stream{of: p.of, holder: budget.Client{Name: "busy"}}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 10}
		p.paces.took("busy", time.Now().Add(-time.Second), time.Now())
		if _, _, ok := p.take(w); ok {
			t.Fatal("there is something to take")
		}
		time.Sleep(maxPace - time.Millisecond) // of synctest
		synctest.Wait()
		p.leave(w)
		p.running.Wait()
		if n := log.reads.Load(); n != 0 {
			t.Errorf("the log was read %d times before the pause was over", n)
		}
	})
}

// Each part of the log is a read of all that follows: a watch that is far behind needs few.
func TestPartsOfTheLogGrow(t *testing.T) {
	b := budget.New(1 << 20)
	all := b.Share(budget.CatchUps)
	if err := b.Take(budget.Client{}, budget.CatchUps, all, 0); err != nil {
		t.Fatal(err)
	}
	p := newPast(&Streams{cfg: Config{Budget: b}})
	w := &watch{s: &stream{of: p.of}, readerKind: readerKind{rng: kv.Prefix("/a/")}, next: 5, before: 10}
	for i, want := range []int{64 << 10, 1 << 20, 8 << 20, 8 << 20} {
		if _, _, ok := p.take(w); ok {
			t.Fatal("there is something to take")
		}
		if w.rides.size != want {
			t.Errorf("part %d has %d bytes, want %d", i, w.rides.size, want)
		}
		p.leave(w)
	}
	p.running.Wait()
}
