package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Flag is the setting of the total.
const Flag = "--max-client-bytes"

// Use is what clients make a node hold memory for.
type Use uint8

// The uses, and what is reserved for each.
const (
	// WatchKeys are the keys of open watches of both APIs.
	WatchKeys Use = iota
	// Lists are the answers to large lists of etcd's API that are being sent or wait
	// for their clients to read them.
	Lists
	// CatchUps are the parts of etcd's log that watches of etcd's API need which start
	// before the window.
	CatchUps
	// Replies are the answers of etcd's Watch streams to creates and cancels that wait
	// for their clients to read them.
	Replies
	// JSON are requests and answers of the JSON API.
	JSON
	// Requests are those of gRPC that have arrived in part, or wait for etcd's answer.
	Requests
	// Fetches are keys of shards that are on other nodes, for lists and native watches.
	Fetches

	uses
)

// String returns the use as metrics name it.
func (u Use) String() string {
	return [...]string{"watch_keys", "lists", "catch_ups", "replies", "json", "requests", "fetches"}[u]
}

// text is the use in errors.
func (u Use) text() string {
	return [...]string{
		"the keys of watches", "lists that wait for clients to read them", "watches that catch up",
		"replies that wait for clients to read them", "requests and answers in JSON", "requests that are not complete or wait for etcd",
		"keys from other nodes",
	}[u]
}

// sixteenths is the use's share of the total. The shares add up to all of it.
func (u Use) sixteenths() int64 { return [...]int64{3, 4, 2, 1, 3, 2, 1}[u] }

// maxWaiting bounds the callers that wait for bytes, of each use.
const maxWaiting = 10_000

// retryAfter is when to come again after a refusal.
const retryAfter = time.Second

// Budget is a number of bytes, shared by all uses. Create it with New.
type Budget struct {
	max      int64
	accounts [uses]account
}

// account is one use.
type account struct {
	most int64

	mu      sync.Mutex
	held    int64               // guarded by mu
	waiting fair.Queue[*Waiter] // guarded by mu
	waited  int64               // guarded by mu; callers that had to wait
	refused int64               // guarded by mu; callers that were refused
}

// Waiter waits for bytes; see Wait.
type Waiter struct {
	b     *Budget
	use   Use
	n     int64
	got   func()
	entry *fair.Entry[*Waiter] // guarded by account.mu; nil: it did not have to wait
}

// New returns a Budget of so many bytes, 1 at least.
func New(limit int64) *Budget {
	b := &Budget{max: limit}
	for u := range uses {
		b.accounts[u].most = limit / 16 * u.sixteenths()
	}
	return b
}

// Take takes n bytes, or fails with a *kv.LimitError. own are the bytes of the use
// that the caller holds already: one that holds all of them may take more than the
// share, so that what is larger than the share can be had alone.
func (b *Budget) Take(u Use, n, own int64) error {
	if b == nil {
		return nil
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.fitsLocked(n, own) {
		a.refused++
		return b.full(u)
	}
	a.held += n
	return nil
}

// Give gives n bytes back.
func (b *Budget) Give(u Use, n int64) {
	if b == nil {
		return
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= n
	a.wakeLocked()
}

// Settle makes n bytes that are held m: what could not be known when they were taken
// is counted, and what is too much is given back. It never fails; take more than
// enough.
func (b *Budget) Settle(u Use, n, m int64) { b.Give(u, n-m) }

// wakeLocked gives those who wait what is there for them, in turn.
func (a *account) wakeLocked() {
	for {
		w, ok := a.waiting.Peek()
		if !ok || !a.fitsLocked(w.n, 0) {
			return
		}
		a.waiting.Pop()
		a.held += w.n
		w.got()
	}
}

// fitsLocked reports whether n bytes more are within the share, or the caller is alone.
func (a *account) fitsLocked(n, own int64) bool {
	return a.held+n <= a.most || a.held <= own
}

// Wait takes n bytes and calls got, now or when they are there: clients that wait take
// turns, told apart by their connections' addresses; all without one are one client.
// got must not block, nor use the Budget. The bytes must be given back, but not when
// Cancel reports that got is not called. It fails with a *kv.LimitError when too many
// wait.
func (b *Budget) Wait(u Use, client net.Addr, n int64, got func()) (*Waiter, error) {
	w := &Waiter{b: b, use: u, n: n, got: got}
	if b == nil {
		got()
		return w, nil
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.waiting.Len() == 0 && a.fitsLocked(n, 0):
		a.held += n
		got()
	case a.waiting.Len() >= maxWaiting:
		a.refused++
		return nil, b.full(u)
	default:
		w.entry = a.waiting.Push(client, w)
		a.waited++
	}
	return w, nil
}

// Cancel ends the wait. It reports whether that was in time: got is not called, and
// nothing is held.
func (w *Waiter) Cancel() bool {
	if w.b == nil {
		return false
	}
	a := &w.b.accounts[w.use]
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.entry == nil || !a.waiting.Remove(w.entry) {
		return false
	}
	a.wakeLocked() // it may have been the one that the others waited for
	return true
}

// full is the error of a refusal.
func (b *Budget) full(u Use) error {
	return &kv.LimitError{
		Limit: Flag, Max: b.max, RetryAfter: retryAfter,
		Detail: fmt.Sprintf("%s have all of their share of this node's memory for clients, %d bytes: come again, use another node, or raise the limit", u.text(), b.accounts[u].most),
	}
}

// Reserve takes n bytes, as a reservation that must be released. It waits for them
// after those who came before. When the deadline of ctx passes, or too many wait, it
// fails with a *kv.LimitError; when ctx is cancelled, with its cause.
func (b *Budget) Reserve(ctx context.Context, u Use, n int64) (*Reservation, error) {
	got := make(chan struct{})
	w, err := b.Wait(u, nil, n, func() { close(got) })
	if err != nil {
		return nil, err
	}
	select {
	case <-got:
		return &Reservation{b: b, use: u, n: n}, nil
	case <-ctx.Done():
	}
	if !w.Cancel() { // they were there at once, or came in the same moment
		return &Reservation{b: b, use: u, n: n}, nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, b.refuse(u)
	}
	return nil, fmt.Errorf("wait for memory: %w", context.Cause(ctx))
}

// refuse counts a refusal and returns it.
func (b *Budget) refuse(u Use) error {
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused++
	return b.full(u)
}

// Reservation is a number of bytes that is held. One goroutine at a time may use it.
type Reservation struct {
	b   *Budget
	use Use
	n   int64
}

// Resize makes the reservation one of n bytes. It does not wait, and fails with a
// *kv.LimitError, and changes nothing, when more are not there.
func (r *Reservation) Resize(n int64) error {
	switch {
	case n > r.n:
		if err := r.b.Take(r.use, n-r.n, r.n); err != nil {
			return err
		}
	case n < r.n:
		r.b.Give(r.use, r.n-n)
	}
	r.n = n
	return nil
}

// Release gives the bytes back. It may be called twice.
func (r *Reservation) Release() {
	if n := r.n; n > 0 {
		r.n = 0
		r.b.Give(r.use, n)
	}
}

// Status is one use for metrics.
type Status struct {
	Use Use
	// Held and Most are bytes: those that are held, and the use's share.
	Held, Most int64
	// Waiting is how many callers wait at present; Waited how many had to since the
	// start, Refused how many were refused.
	Waiting, Waited, Refused int64
}

// Status returns all uses. A nil Budget has none.
func (b *Budget) Status() []Status {
	if b == nil {
		return nil
	}
	out := make([]Status, 0, uses)
	for u := range uses {
		a := &b.accounts[u]
		a.mu.Lock()
		out = append(out, Status{Use: u, Held: a.held, Most: a.most, Waiting: int64(a.waiting.Len()), Waited: a.waited, Refused: a.refused})
		a.mu.Unlock()
	}
	return out
}

// Share returns the most bytes that a use may hold; without a bound math.MaxInt64.
func (b *Budget) Share(u Use) int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.accounts[u].most
}

// Held returns the bytes that a use holds.
func (b *Budget) Held(u Use) int64 {
	if b == nil {
		return 0
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}
