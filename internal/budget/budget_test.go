package budget_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// refused fails the test unless err is a refusal that names the flag.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	var limit *kv.LimitError
	if !errors.As(err, &limit) || limit.Limit != budget.Flag || limit.RetryAfter <= 0 || !strings.Contains(err.Error(), budget.Flag) {
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

// The shares of all uses are the total, and what one use holds costs the others
// nothing.
func TestUsesDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	const total = 1 << 20
	b := budget.New(total)
	var sum int64
	for _, s := range b.Status() {
		sum += s.Most
		if err := b.Take(s.Use, s.Most, 0); err != nil {
			t.Errorf("%v: %v", s.Use, err)
		}
		refused(t, s.Use.String(), b.Take(s.Use, 1, 0))
	}
	if sum != total {
		t.Errorf("the shares are %d of %d bytes", sum, total)
	}
	for _, s := range b.Status() {
		if s.Held != s.Most || s.Refused != 1 {
			t.Errorf("%v: %+v", s.Use, s)
		}
		b.Give(s.Use, s.Most)
		if held := b.Held(s.Use); held != 0 {
			t.Errorf("%v holds %d", s.Use, held)
		}
	}
}

// A caller that holds all of a use may have more than its share; any other caller
// may not.
func TestWhatIsLargerThanTheShareIsHadAlone(t *testing.T) {
	t.Parallel()
	b := budget.New(1600)
	if err := b.Take(budget.Lists, 10_000, 0); err != nil {
		t.Fatalf("alone: %v", err)
	}
	if err := b.Take(budget.Lists, 10_000, 10_000); err != nil {
		t.Errorf("more of the same: %v", err)
	}
	refused(t, "beside it", b.Take(budget.Lists, 1, 0))
	refused(t, "with a part of it", b.Take(budget.Lists, 1, 19_999))
}

// Callers that wait get bytes in the order in which they came: a large request is
// not overtaken for ever by small ones.
func TestWaitersAreServedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600) // 300 for JSON
		first, err := b.Reserve(t.Context(), budget.JSON, 200)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan int64, 2)
		for _, n := range []int64{250, 100} {
			go func() {
				r, err := b.Reserve(t.Context(), budget.JSON, n)
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

// A caller that gives up leaves nothing in the queue, and those after it go on.
func TestWhoGivesUpHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1600)
		held, err := b.Reserve(t.Context(), budget.JSON, 200)
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := make(chan error)
		go func() {
			_, err := b.Reserve(soon, budget.JSON, 300)
			large <- err
		}()
		synctest.Wait()
		small := make(chan error)
		go func() {
			r, err := b.Reserve(t.Context(), budget.JSON, 100)
			if err == nil {
				r.Release()
			}
			small <- err
		}()
		refused(t, "after the deadline", <-large)
		if err := <-small; err != nil {
			t.Errorf("after it: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := b.Reserve(gone, budget.JSON, 300); !errors.Is(err, context.Canceled) {
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
	one, err := b.Reserve(t.Context(), budget.JSON, 100)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Reserve(t.Context(), budget.JSON, 100)
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
	var none *budget.Budget
	free, err := none.Reserve(t.Context(), budget.JSON, 1<<40)
	if err == nil {
		err = free.Resize(1 << 41)
	}
	if err != nil {
		t.Errorf("no budget: %v", err)
	}
	free.Release()
}

// Bytes that are there are had at once, by a caller that does not wait, too.
func TestACallerThatDoesNotWaitGetsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for range 100 {
		r, err := b.Reserve(ctx, budget.JSON, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	if held := b.Held(budget.JSON); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}
