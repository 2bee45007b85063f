package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Flag is the setting of the total, and WatchFlag of the separate budget of watches.
const (
	Flag      = "--max-client-bytes"
	WatchFlag = "--max-watch-bytes"
)

// Use is a purpose of memory held for clients.
type Use uint8

// The uses, and the bytes that each covers.
const (
	// WatchKeys are the keys of open watches of both APIs.
	WatchKeys Use = iota
	// Lists are the answers to large lists of etcd's API that are being sent, or that clients have not read
	// yet.
	Lists
	// CatchUps are the parts of etcd's log for watches of etcd's API that start before the window, and the keys
	// of the next updates of conflated watches.
	CatchUps
	// Replies are the answers to creates and cancels on etcd's Watch streams that clients have not read yet.
	Replies
	// JSON are requests and answers of the JSON API.
	JSON
	// Requests are gRPC requests that are incomplete, or wait for etcd's answer, and other answers that clients
	// do not read.
	Requests
	// Fetches are keys of other nodes' shards, for lists and native watches.
	Fetches
	// Watches are open watches of both APIs, without their keys. They have no share of the total; see
	// BoundWatches.
	Watches

	uses
)

// String returns the use as metrics name it.
func (u Use) String() string {
	return [...]string{"watch_keys", "lists", "catch_ups", "replies", "json", "requests", "fetches", "watches"}[u]
}

// text returns the use as errors name it.
func (u Use) text() string {
	return [...]string{
		"the keys of watches", "lists that clients have not read yet", "watches that catch up",
		"replies that clients have not read yet", "requests and answers in JSON", "requests that are incomplete or wait for etcd, and unread responses",
		"keys from other nodes", "open watches",
	}[u]
}

// sixteenths returns the use's share of the total. The shares add up to 16.
func (u Use) sixteenths() int64 { return [...]int64{3, 4, 2, 1, 3, 2, 1, 0}[u] }

// maxWaiting bounds the callers waiting for bytes, for each use.
const maxWaiting = 10_000

// retryAfter is the retry delay after a refusal.
const retryAfter = time.Second

// Client is the owner of held bytes: an identity, or else an address. The zero Client is anonymous: its bytes
// count for the node alone.
type Client struct {
	Name string
	// Max bounds the client's bytes: in each use, to the use's share of Max. HalfOfTotal: half of the total; 0:
	// the bound of all clients together.
	Max int64
}

// HalfOfTotal is the default Max of a client: no client can exhaust a use alone.
const HalfOfTotal = -1

// Budget is a number of bytes, divided among the uses. Create it with New.
type Budget struct {
	max      int64
	accounts [uses]account
}

// account is one use.
type account struct {
	most int64

	mu      sync.Mutex
	held    int64               // guarded by mu
	waiting fair.Queue[*Waiter] // guarded by mu; each holds its bytes of its client's part
	parts   map[string]*part    // guarded by mu; parts with bytes or waiters, by client
	behind  int                 // guarded by mu; waiters in all parts
	waited  int64               // guarded by mu; callers that had to wait
	refused int64               // guarded by mu; callers that were refused
	capped  int64               // guarded by mu; callers that waited or were refused because of their client's part
}

// part is one client's share of a use. account.mu guards it.
type part struct {
	held    int64
	waiting fair.Queue[*Waiter] // for bytes of the part, before bytes of the account
}

// Waiter waits for bytes; see Wait.
type Waiter struct {
	b      *Budget
	client Client
	use    Use
	n      int64
	got    func()
	// Guarded by account.mu.
	entry  *fair.Entry[*Waiter] // nil: its bytes were free at once
	capped bool                 // it waits for its client's part
}

// New returns a Budget of limit bytes, at least 1, and without a bound for watches.
func New(limit int64) *Budget {
	b := &Budget{max: limit}
	for u := range uses {
		b.accounts[u].most, b.accounts[u].parts = limit/16*u.sixteenths(), make(map[string]*part)
	}
	b.BoundWatches(math.MaxInt64)
	return b
}

// BoundWatches bounds the bytes of Watches. Call it before the first Take.
func (b *Budget) BoundWatches(limit int64) { b.accounts[Watches].most = limit }

// partOf returns the bytes of a use that a client may hold. A positive Max does not apply to Watches.
func (b *Budget) partOf(u Use, c Client) int64 {
	switch {
	case c.Max == 0:
		return b.accounts[u].most
	case c.Max < 0 || u == Watches:
		return b.accounts[u].most / 2
	}
	return c.Max / 16 * u.sixteenths()
}

// Take takes n bytes for a client, or fails with a *kv.LimitError. own are the bytes of the use that the caller
// holds already. If the caller holds all bytes of the use, it may exceed the share, and if it holds all of its
// client's, the part: so a request above the share succeeds if it is the only one.
func (b *Budget) Take(c Client, u Use, n, own int64) error {
	if b == nil {
		return nil
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !b.fitsPartLocked(u, c, n, own):
		return b.cappedLocked(u, c)
	case !a.fitsLocked(n, own):
		a.refused++
		return b.full(u)
	}
	a.held += n
	a.countLocked(c, n)
	return nil
}

// Grow is Take for optional bytes. It reports whether they were taken, and counts no refusal.
func (b *Budget) Grow(c Client, u Use, n, own int64) bool {
	if b == nil {
		return true
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	if !b.fitsPartLocked(u, c, n, own) || !a.fitsLocked(n, own) {
		return false
	}
	a.held += n
	a.countLocked(c, n)
	return true
}

// Unread takes n bytes that a client has sent and its requests have not read, or releases -n of them. It
// reports whether the budget had them.
func (b *Budget) Unread(c Client, n int) bool {
	if n < 0 {
		b.Give(c, Requests, int64(-n))
		return true
	}
	return b.Take(c, Requests, int64(n), 0) == nil
}

// Give releases n bytes of a client.
func (b *Budget) Give(c Client, u Use, n int64) {
	if b == nil {
		return
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= n
	a.countLocked(c, -n)
	b.wakeLocked(u, c)
}

// TakePart takes n bytes of a client's part alone, for bytes that several clients share: the node holds one
// copy, taken for no client, and each client's part counts all of it. own is as with Take.
func (b *Budget) TakePart(c Client, u Use, n, own int64) error {
	if b == nil {
		return nil
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	if !b.fitsPartLocked(u, c, n, own) {
		return b.cappedLocked(u, c)
	}
	a.countLocked(c, n)
	return nil
}

// GivePart releases n bytes of a client's part.
func (b *Budget) GivePart(c Client, u Use, n int64) {
	if b == nil {
		return
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countLocked(c, -n)
	b.wakeLocked(u, c)
}

// Settle changes n held bytes to m, once the exact size is known. It never fails; take more than enough before.
func (b *Budget) Settle(c Client, u Use, n, m int64) { b.Give(c, u, n-m) }

// countLocked adds n bytes to a client's part, which exists while it has bytes or waiters.
func (a *account) countLocked(c Client, n int64) {
	if c.Name == "" {
		return
	}
	p := a.parts[c.Name]
	if p == nil {
		p = new(part)
		a.parts[c.Name] = p
	}
	p.held += n
	a.dropLocked(c, p)
}

// dropLocked deletes a part without bytes and waiters.
func (a *account) dropLocked(c Client, p *part) {
	if p.held == 0 && p.waiting.Len() == 0 {
		delete(a.parts, c.Name)
	}
}

// wakeLocked gives the free bytes to waiting callers, in turn: first those of the client's part, then those of
// the use's share.
func (b *Budget) wakeLocked(u Use, c Client) {
	a := &b.accounts[u]
	if p := a.parts[c.Name]; p != nil {
		for {
			w, ok := p.waiting.Peek()
			if !ok || !b.fitsPartLocked(u, w.client, w.n, 0) {
				break
			}
			p.waiting.Pop()
			a.behind--
			p.held += w.n
			w.entry, w.capped = a.waiting.Push(w.client.Name, w), false
		}
		a.dropLocked(c, p)
	}
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

// fitsLocked reports whether n more bytes fit into the share, or the caller holds all bytes of the use.
func (a *account) fitsLocked(n, own int64) bool {
	return a.held+n <= a.most || a.held <= own
}

// fitsPartLocked is fitsLocked for the client's part.
func (b *Budget) fitsPartLocked(u Use, c Client, n, own int64) bool {
	p := b.accounts[u].parts[c.Name]
	return p == nil || p.held+n <= b.partOf(u, c) || p.held <= own
}

// cappedLocked counts a refusal because of the client's part, and returns the error.
func (b *Budget) cappedLocked(u Use, c Client) error {
	a := &b.accounts[u]
	a.refused++
	a.capped++
	limit, most := b.limitOf(u)
	limit, most = "half of "+limit, most/2
	if c.Max >= 0 && u != Watches {
		limit, most = "the policy's pending_bytes", c.Max
	}
	return &kv.LimitError{
		Limit: limit, Max: most, RetryAfter: retryAfter,
		Detail: fmt.Sprintf("%s of %s use all of one client's share of this node's memory, %d bytes: %s, then retry", u.text(), c.Name, b.partOf(u, c), u.advice()),
	}
}

// limitOf returns the flag that limits a use, and its value.
func (b *Budget) limitOf(u Use) (flag string, limit int64) {
	if u == Watches {
		return WatchFlag, b.accounts[u].most
	}
	return Flag, b.max
}

// advice returns the remedy for a client that has used its share.
func (u Use) advice() string {
	if u == Watches || u == WatchKeys {
		return "end some of them"
	}
	return "read the pending responses"
}

// Wait takes n bytes for a client and calls got, now or when they are free. Waiting clients take turns,
// regardless of the number of callers of each. A caller whose client has used its part waits for bytes of this
// part, and delays no other client. got must not block, nor use the Budget. Release the bytes with Give, unless
// Cancel reports that got is not called. Wait fails with a *kv.LimitError if too many callers wait.
func (b *Budget) Wait(c Client, u Use, n int64, got func()) (*Waiter, error) {
	w := &Waiter{b: b, client: c, use: u, n: n, got: got}
	if b == nil {
		got()
		return w, nil
	}
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.parts[c.Name]
	switch {
	case p != nil && (p.waiting.Len() > 0 || !b.fitsPartLocked(u, c, n, 0)):
		if p.waiting.Len() >= maxWaiting/2 || a.behind >= maxWaiting {
			return nil, b.cappedLocked(u, c)
		}
		w.entry, w.capped = p.waiting.Push(c.Name, w), true
		a.behind++
		a.capped++
		a.waited++
	case a.waiting.Len() == 0 && a.fitsLocked(n, 0):
		a.held += n
		a.countLocked(c, n)
		got()
	case a.waiting.Len() >= maxWaiting:
		a.refused++
		return nil, b.full(u)
	default:
		a.countLocked(c, n)
		w.entry = a.waiting.Push(c.Name, w)
		a.waited++
	}
	return w, nil
}

// Capped reports whether the waiter waits for bytes of its client's part.
func (w *Waiter) Capped() bool {
	if w.b == nil {
		return false
	}
	a := &w.b.accounts[w.use]
	a.mu.Lock()
	defer a.mu.Unlock()
	return w.capped
}

// Waited reports whether the bytes were not free at once.
func (w *Waiter) Waited() bool {
	if w.b == nil {
		return false
	}
	a := &w.b.accounts[w.use]
	a.mu.Lock()
	defer a.mu.Unlock()
	return w.entry != nil
}

// Cancel ends the wait. It reports whether got was not and will not be called: then nothing is held.
func (w *Waiter) Cancel() bool {
	if w.b == nil {
		return false
	}
	a := &w.b.accounts[w.use]
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case w.entry == nil:
		return false
	case w.capped:
		if !a.parts[w.client.Name].waiting.Remove(w.entry) {
			return false
		}
		a.behind--
	default:
		if !a.waiting.Remove(w.entry) {
			return false
		}
		a.countLocked(w.client, -w.n)
	}
	w.b.wakeLocked(w.use, w.client) // the others may have waited for this entry
	return true
}

// full returns the error of a use that is exhausted.
func (b *Budget) full(u Use) error {
	limit, most := b.limitOf(u)
	return &kv.LimitError{
		Limit: limit, Max: most, RetryAfter: retryAfter,
		Detail: fmt.Sprintf("%s use all of their share of this node's memory for clients, %d bytes: retry, use another node, or raise the limit", u.text(), b.accounts[u].most),
	}
}

// Reserve takes n bytes for a client, as a reservation that must be released. It waits for them in the client's
// turn. It fails with a *kv.LimitError if the deadline of ctx passes or too many callers wait, and with the
// cause of ctx if ctx is cancelled.
func (b *Budget) Reserve(ctx context.Context, c Client, u Use, n int64) (*Reservation, error) {
	return b.ReserveAnnounced(ctx, c, u, n, func() {})
}

// ReserveAnnounced is Reserve, and calls wait before it waits.
func (b *Budget) ReserveAnnounced(ctx context.Context, c Client, u Use, n int64, wait func()) (*Reservation, error) {
	got := make(chan struct{})
	w, err := b.Wait(c, u, n, func() { close(got) })
	if err != nil {
		return nil, err
	}
	select {
	case <-got:
	default:
		wait()
	}
	select {
	case <-got:
		return &Reservation{b: b, client: c, use: u, n: n}, nil
	case <-ctx.Done():
	}
	capped := w.Capped()
	if !w.Cancel() { // got was called at once, or meanwhile
		return &Reservation{b: b, client: c, use: u, n: n}, nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, b.refuse(u, c, capped)
	}
	return nil, fmt.Errorf("wait for memory: %w", context.Cause(ctx))
}

// refuse counts a refusal, because of the client's part or not, and returns it.
func (b *Budget) refuse(u Use, c Client, capped bool) error {
	a := &b.accounts[u]
	a.mu.Lock()
	defer a.mu.Unlock()
	if capped {
		return b.cappedLocked(u, c)
	}
	a.refused++
	return b.full(u)
}

// Reservation is a number of held bytes. One goroutine at a time may use it.
type Reservation struct {
	b      *Budget
	client Client
	use    Use
	n      int64
}

// Resize changes the reservation to n bytes. It does not wait: if the additional bytes are not free, it fails
// with a *kv.LimitError and changes nothing.
func (r *Reservation) Resize(n int64) error {
	switch {
	case n > r.n:
		if err := r.b.Take(r.client, r.use, n-r.n, r.n); err != nil {
			return err
		}
	case n < r.n:
		r.b.Give(r.client, r.use, r.n-n)
	}
	r.n = n
	return nil
}

// Release releases the bytes. It may be called twice.
func (r *Reservation) Release() {
	if n := r.n; n > 0 {
		r.n = 0
		r.b.Give(r.client, r.use, n)
	}
}

// Status is the state of one use, for metrics.
type Status struct {
	Use Use
	// Held and Most are the held bytes and the use's share.
	Held, Most int64
	// Waiting counts the callers that wait now, Waited those that had to wait since the start, Refused those
	// that were refused.
	Waiting, Waited, Refused int64
	// Clients counts the clients that hold bytes or wait; Largest is the maximum held by one client. Capped
	// counts the callers that had to wait or were refused since the start because their client had used its
	// part.
	Clients, Largest, Capped int64
}

// Status returns the state of all uses; none for a nil Budget.
func (b *Budget) Status() []Status {
	if b == nil {
		return nil
	}
	out := make([]Status, 0, uses)
	for u := range uses {
		a := &b.accounts[u]
		a.mu.Lock()
		s := Status{
			Use: u, Held: a.held, Most: a.most, Waiting: int64(a.waiting.Len() + a.behind), Waited: a.waited, Refused: a.refused,
			Clients: int64(len(a.parts)), Capped: a.capped,
		}
		for _, p := range a.parts {
			s.Largest = max(s.Largest, p.held)
		}
		out = append(out, s)
		a.mu.Unlock()
	}
	return out
}

// Share returns the maximum bytes of a use; math.MaxInt64 without a bound.
func (b *Budget) Share(u Use) int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.accounts[u].most
}

// Part returns the maximum bytes of a use for a client; math.MaxInt64 without a bound.
func (b *Budget) Part(c Client, u Use) int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.partOf(u, c)
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
