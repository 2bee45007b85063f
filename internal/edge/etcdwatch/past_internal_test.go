package etcdwatch

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/budget"
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
		return &watch{s: &stream{of: p.of, holder: half(client)}, rng: kv.Prefix("/a/"), next: 5, before: 10}
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
