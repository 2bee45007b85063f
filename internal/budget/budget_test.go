package budget_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// none is the anonymous client: its bytes count for the node only.
var none budget.Client

// refused fails the test unless err is a refusal that names the flag.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	flag := budget.Flag
	if what == budget.Watches.String() {
		flag = budget.WatchFlag
	}
	var limit *kv.LimitError
	if !errors.As(err, &limit) || limit.Limit != flag || limit.RetryAfter <= 0 || !strings.Contains(err.Error(), flag) {
		t.Errorf("%s: %v", what, err)
	}
}

// figures returns the status of a use.
func figures(t *testing.T, b *budget.Budget, u budget.Use) budget.Status {
	t.Helper()
	for _, s := range b.Status() {
		if s.Use == u {
			return s
		}
	}
	t.Fatalf("%v is not in the status", u)
	return budget.Status{}
}

// The shares of all uses add up to the total, and a use does not reduce the share of another.
func TestUsesDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	const total, watches = 1 << 20, 1000
	b := budget.New(total)
	b.BoundWatches(watches)
	var sum int64
	for _, s := range b.Status() {
		sum += s.Most
		if err := b.Take(none, s.Use, s.Most, 0); err != nil {
			t.Errorf("%v: %v", s.Use, err)
		}
		refused(t, s.Use.String(), b.Take(none, s.Use, 1, 0))
	}
	if sum -= watches; sum != total {
		t.Errorf("the shares add up to %d bytes, want %d", sum, total)
	}
	for _, s := range b.Status() {
		if s.Held != s.Most || s.Refused != 1 {
			t.Errorf("%v: %+v", s.Use, s)
		}
		b.Give(none, s.Use, s.Most)
		if held := b.Held(s.Use); held != 0 {
			t.Errorf("%v holds %d", s.Use, held)
		}
	}
}

// A caller that holds all bytes of a use may exceed the use's share; other callers may
// not.
func TestASoleHolderMayExceedTheShare(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	if err := b.Take(none, budget.Lists, 10_000, 0); err != nil {
		t.Fatalf("alone: %v", err)
	}
	if err := b.Take(none, budget.Lists, 10_000, 10_000); err != nil {
		t.Errorf("more of the same: %v", err)
	}
	refused(t, "beside it", b.Take(none, budget.Lists, 1, 0))
	refused(t, "with a part of it", b.Take(none, budget.Lists, 1, 19_999))
}

// Waiting callers get bytes in order of arrival: small requests do not overtake a large request.
func TestWaitersAreServedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600) // 300 for JSON
		first, err := b.Reserve(t.Context(), none, budget.JSON, 200)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan int64, 2)
		for _, n := range []int64{250, 100} {
			go func() {
				r, err := b.Reserve(t.Context(), none, budget.JSON, n)
				if err != nil {
					t.Errorf("%d: %v", n, err)
				}
				served <- n
				r.Release()
			}()
			synctest.Wait()
		}
		if s := figures(t, b, budget.JSON); s.Waiting != 2 || s.Waited != 2 || s.Held != 200 {
			t.Errorf("before: %+v", s)
		}
		first.Release()
		first.Release()
		if a, b := <-served, <-served; a != 250 || b != 100 {
			t.Errorf("served %d, then %d", a, b)
		}
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Held != 0 || s.Waiting != 0 || s.Refused != 0 {
			t.Errorf("after: %+v", s)
		}
	})
}

// Waiting clients take turns: a client with many callers delays another client by one caller.
func TestClientsTakeTurnsAtAUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600)
		first, err := b.Reserve(t.Context(), none, budget.JSON, 300)
		if err != nil {
			t.Fatal(err)
		}
		var served []string
		for _, name := range []string{"a", "a", "a", "b"} {
			if _, err := b.Wait(budget.Client{Name: name}, budget.JSON, 100, func() { served = append(served, name) }); err != nil {
				t.Fatal(err)
			}
		}
		first.Release()
		if want := []string{"a", "b", "a"}; !slices.Equal(served, want) {
			t.Errorf("served %v, want %v", served, want)
		}
	})
}

// A caller that stops waiting leaves nothing in the queue, and later callers proceed.
func TestACanceledCallHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600)
		held, err := b.Reserve(t.Context(), none, budget.JSON, 200)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := make(chan error)
		go func() {
			_, err := b.Reserve(soon, none, budget.JSON, 300)
			large <- err
		}()
		synctest.Wait()
		small := make(chan error)
		go func() {
			r, err := b.Reserve(t.Context(), none, budget.JSON, 100)
			if err == nil {
				r.Release()
			}
			small <- err
		}()
		refused(t, "after the deadline", <-large)
		if err := <-small; err != nil {
			t.Errorf("the next caller: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := b.Reserve(gone, none, budget.JSON, 300); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		held.Release()
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Held != 0 || s.Waiting != 0 || s.Refused != 1 {
			t.Errorf("after: %+v", s)
		}
	})
}

// A reservation grows within the share and shrinks at any time.
func TestReservationsAreResized(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	one, err := b.Reserve(t.Context(), none, budget.JSON, 100)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Reserve(t.Context(), none, budget.JSON, 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Resize(200); err != nil {
		t.Error(err)
	}
	refused(t, "more than there is", one.Resize(201))
	if err := one.Resize(50); err != nil || b.Held(budget.JSON) != 150 {
		t.Errorf("smaller: %v, %d bytes are held", err, b.Held(budget.JSON))
	}
	one.Release()
	two.Release()
	if held := b.Held(budget.JSON); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	var unbounded *budget.Budget
	free, err := unbounded.Reserve(t.Context(), none, budget.JSON, 1<<40)
	if err == nil {
		err = free.Resize(1 << 41)
	}
	if err != nil {
		t.Errorf("a nil budget: %v", err)
	}
	free.Release()
}

// Free bytes are available at once, even if the caller's context has expired.
func TestACallerThatDoesNotWaitGetsFreeBytes(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for range 100 {
		r, err := b.Reserve(ctx, none, budget.JSON, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	if held := b.Held(budget.JSON); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// of is a client that may have half of each use.
func of(name string) budget.Client { return budget.Client{Name: name, Max: budget.HalfOfTotal} }

// capped fails the test unless err is a refusal that names the limit of the client.
func capped(t *testing.T, what string, err error, limit, client string) {
	t.Helper()
	var full *kv.LimitError
	if !errors.As(err, &full) || full.Limit != limit || full.RetryAfter <= 0 || !strings.Contains(err.Error(), client) {
		t.Errorf("%s: %v", what, err)
	}
}

// A client has at most half of each use, or the policy's limit, and a client that has used its part does not
// reduce the parts of others.
func TestOneClientDoesNotTakeAll(t *testing.T) {
	t.Parallel()
	b := budget.New(1600) // 300 for JSON
	if err := b.Take(of("a"), budget.JSON, 150, 0); err != nil {
		t.Fatal(err)
	}
	capped(t, "more than half", b.Take(of("a"), budget.JSON, 1, 0), "half of "+budget.Flag, "a")
	if err := b.Take(of("b"), budget.JSON, 150, 0); err != nil {
		t.Errorf("another client: %v", err)
	}
	refused(t, "the share is full", b.Take(of("c"), budget.JSON, 1, 0))
	if s := figures(t, b, budget.JSON); s.Clients != 2 || s.Largest != 150 || s.Capped != 1 || s.Refused != 2 || s.Held != 300 {
		t.Errorf("full: %+v", s)
	}
	b.Give(of("a"), budget.JSON, 100)
	if err := b.Take(of("a"), budget.JSON, 100, 0); err != nil {
		t.Errorf("again: %v", err)
	}
	b.Give(of("a"), budget.JSON, 150)
	b.Give(of("b"), budget.JSON, 150)
	small, all := budget.Client{Name: "small", Max: 160}, budget.Client{Name: "all"}
	if err := b.Take(small, budget.JSON, 30, 0); err != nil {
		t.Error(err)
	}
	capped(t, "more than the policy lets", b.Take(small, budget.JSON, 1, 29), "the policy's pending_bytes", "small")
	if err := b.Take(all, budget.JSON, 270, 0); err != nil {
		t.Errorf("a client without a limit: %v", err)
	}
	b.Give(small, budget.JSON, 30)
	b.Give(all, budget.JSON, 270)
	if s := figures(t, b, budget.JSON); s.Clients != 0 || s.Held != 0 {
		t.Errorf("after all bytes are given back: %+v", s)
	}
}

// A request above a client's part succeeds if the client holds nothing else.
func TestASoleRequestMayExceedTheClientsPart(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	if err := b.Take(of("a"), budget.JSON, 300, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.Take(of("a"), budget.JSON, 100, 300); err != nil {
		t.Errorf("more of the same: %v", err)
	}
	capped(t, "beside it", b.Take(of("a"), budget.JSON, 1, 0), "half of "+budget.Flag, "a")
}

// Bytes that several clients share count once for the node, and for each client.
func TestSharedBytesCountForEachClient(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	for range 3 {
		for _, name := range []string{"a", "b", "c", "d"} {
			if err := b.TakePart(of(name), budget.JSON, 50, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	capped(t, "more than half", b.TakePart(of("a"), budget.JSON, 50, 0), "half of "+budget.Flag, "a")
	if held := b.Held(budget.JSON); held != 0 {
		t.Errorf("the node counts %d bytes", held)
	}
	b.GivePart(of("a"), budget.JSON, 50)
	if err := b.TakePart(of("a"), budget.JSON, 50, 0); err != nil {
		t.Error(err)
	}
}

// Callers of a client that has used its part wait in turn for bytes of the part, and delay no other client. A
// caller that stops waiting holds nothing.
func TestAClientWaitsForItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600) // 300 for JSON
		first, err := b.Reserve(t.Context(), of("a"), budget.JSON, 150)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan int64, 3)
		wait := func(ctx context.Context, n int64) {
			r, err := b.Reserve(ctx, of("a"), budget.JSON, n)
			if err != nil {
				capped(t, "given up", err, "half of "+budget.Flag, "a")
				n = -1
			}
			served <- n
			if err == nil {
				r.Release()
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go wait(soon, 120)
		synctest.Wait()
		go wait(t.Context(), 100)
		synctest.Wait()
		go wait(t.Context(), 90)
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Waiting != 3 || s.Waited != 3 || s.Capped != 3 || s.Held != 150 {
			t.Errorf("while the client waits: %+v", s)
		}
		other, err := b.Reserve(soon, of("b"), budget.JSON, 150)
		if err != nil {
			t.Fatalf("another client: %v", err)
		}
		if n := <-served; n != -1 {
			t.Errorf("served %d", n)
		}
		first.Release()
		if x, y := <-served, <-served; x != 100 || y != 90 {
			t.Errorf("served %d, then %d", x, y)
		}
		other.Release()
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Held != 0 || s.Waiting != 0 || s.Clients != 0 {
			t.Errorf("after: %+v", s)
		}
	})
}

// A caller at the head of its client's queue waits for the use's share, and holds its client's part meanwhile; if
// it stops waiting, the part is free.
func TestAClientWaitsForTheShareAfterItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600)
		var all []*budget.Reservation
		for _, c := range []budget.Client{of("a"), of("b")} {
			r, err := b.Reserve(t.Context(), c, budget.JSON, 140)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error)
		wait := func(ctx context.Context, c budget.Client, n int64) {
			r, err := b.Reserve(ctx, c, budget.JSON, n)
			if err == nil {
				r.Release()
			}
			ended <- err
		}
		go wait(ctx, of("c"), 100) // for the share
		synctest.Wait()
		go wait(t.Context(), of("c"), 60) // for its client's part
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Waiting != 2 || s.Capped != 1 || s.Clients != 3 || s.Held != 280 {
			t.Errorf("while both callers wait: %+v", s)
		}
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if s := figures(t, b, budget.JSON); s.Waiting != 1 || s.Held != 280 {
			t.Errorf("while the other caller waits for the share: %+v", s)
		}
		all[0].Release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		all[1].Release()
		if s := figures(t, b, budget.JSON); s.Held != 0 || s.Clients != 0 {
			t.Errorf("after: %+v", s)
		}
	})
}
