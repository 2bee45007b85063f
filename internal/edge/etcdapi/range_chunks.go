package etcdapi

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"google.golang.org/grpc/mem"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// chunks lets large answers share their bytes. A list is cut into chunks of keys. A
// chunk is encoded once, and sent in all answers with the same keys at the same
// versions: fifty clients that list a hundred thousand keys at once cost the memory
// of one, and after a write one chunk is encoded again.
//
// A cut depends only on the keys around it, so that lists of other ranges and of other
// revisions are cut at the same keys.
//
// A chunk has no owner: the garbage collector frees it when the last answer with it has
// been sent or dropped. gRPC does not return the buffers of streams whose connection
// breaks.
type chunks struct {
	// least and most bound a chunk in bytes, except for a single larger key; usual is the
	// average distance between least and a cut.
	least, usual, most int
	// budget counts the bytes of chunks in answers, including chunks that are not
	// collected yet. Shared chunks count once; a single answer may exceed the share
	// of lists.
	budget *budget.Budget

	collected atomic.Int64 // time of the last garbage collection for lack of budget

	mu   sync.Mutex
	live map[chunkKey]weak.Pointer[chunk] // guarded by mu
}

// chunkKey identifies a chunk by its first key. Short chunks at the ends of answers have
// separate keys: they would replace the full chunks with the same first key.
type chunkKey struct {
	first *kv.KeyValue
	form  wire.ItemForm
	end   bool
}

// The sizes of chunks: large enough that their number does not matter, small
// enough that a write invalidates little.
const (
	leastChunk = 64 << 10
	usualChunk = 128 << 10
	mostChunk  = 512 << 10
)

func newChunks(b *budget.Budget) *chunks {
	return &chunks{
		least: leastChunk, usual: usualChunk, most: mostChunk, budget: b,
		live: make(map[chunkKey]weak.Pointer[chunk]),
	}
}

// chunk is a run of encoded keys. It never changes once it is encoded.
type chunk struct {
	items []*kv.KeyValue
	form  wire.ItemForm
	hold  *hold

	once   sync.Once
	parts  [][]byte // set by once
	anchor int      // index of the largest part, whose buffer keeps the chunk; set by once
}

// loan is a chunk in an answer until the answer is sent or dropped. It is the
// mem.BufferPool of the chunk's bytes there: gRPC returns them when they are sent.
type loan struct {
	c    *chunk
	debt *debt
}

// debt is the budget that a loan uses. It outlives the loan.
type debt struct {
	s      *chunks
	hold   *hold
	holder budget.Client
	paid   atomic.Bool
}

// pay releases the loan's budget, once.
func (d *debt) pay() {
	if d.paid.CompareAndSwap(false, true) {
		d.s.release(d.hold, d.holder)
	}
}

// Get implements mem.BufferPool; gRPC does not call it.
func (*loan) Get(length int) *[]byte { b := make([]byte, length); return &b }

// Put implements mem.BufferPool: the answer has been sent or dropped.
func (l *loan) Put(*[]byte) { l.debt.pay() }

// hold counts the answers with a chunk. It outlives the chunk.
type hold struct {
	size int64

	mu   sync.Mutex
	refs int64            // guarded by mu
	of   map[string]int64 // guarded by mu; refs of each holder
}

// find returns the chunk that begins with an item, or nil.
func (s *chunks) find(first *kv.KeyValue, form wire.ItemForm) *chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[chunkKey{first: first, form: form}].Value()
}

// get returns the chunk of exactly these items.
func (s *chunks) get(items []*kv.KeyValue, size int, form wire.ItemForm, end bool) *chunk {
	key := chunkKey{first: items[0], form: form, end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.live[key].Value(); c != nil && slices.Equal(c.items, items) {
		return c
	}
	c := &chunk{items: slices.Clone(items), form: form, hold: &hold{size: int64(size)}}
	s.live[key] = weak.Make(c)
	runtime.AddCleanup(c, s.forget, key)
	return c
}

// forget drops the chunk of a key if it is gone.
func (s *chunks) forget(key chunkKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.live[key]; ok && c.Value() == nil {
		delete(s.live, key)
	}
}

// lend lends a chunk to an answer of holder. The answer has own bytes already.
func (s *chunks) lend(c *chunk, holder budget.Client, own int64) (*loan, error) {
	if err := s.acquire(c.hold, holder, own); err != nil {
		return nil, err
	}
	l := &loan{c: c, debt: &debt{s: s, hold: c.hold, holder: holder}}
	runtime.AddCleanup(l, (*debt).pay, l.debt) // gRPC does not return the buffers of a broken connection
	return l, nil
}

// acquire adds a reference for an answer that has own bytes already. It fails if all
// answers, or the holder's answers, exceed their share of the budget. Shared chunks
// count once for the node, and once for each holder.
func (s *chunks) acquire(h *hold, holder budget.Client, own int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[holder.Name] == 0 {
		if err := s.budget.TakePart(holder, budget.Lists, h.size, own); err != nil {
			return err
		}
	}
	if h.refs == 0 {
		if err := s.budget.Take(budget.Client{}, budget.Lists, h.size, own); err != nil {
			s.budget.GivePart(holder, budget.Lists, h.size)
			return err
		}
		h.of = make(map[string]int64, 1)
	}
	h.refs++
	h.of[holder.Name]++
	return nil
}

// release removes a reference of a holder.
func (s *chunks) release(h *hold, holder budget.Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[holder.Name]--; h.of[holder.Name] == 0 {
		delete(h.of, holder.Name)
		s.budget.GivePart(holder, budget.Lists, h.size)
	}
	if h.refs--; h.refs == 0 {
		s.budget.Give(budget.Client{}, budget.Lists, h.size)
	}
}

// collectEvery is the minimum time between two garbage collections by collect.
const collectEvery = time.Second

// full collects garbage after answers have exceeded the budget, and returns err as the final answer.
func (s *chunks) full(err error) error {
	s.collect()
	return final{wire.Status(err)}
}

// collect runs the garbage collector: answers that count against the budget may be garbage
// already.
func (s *chunks) collect() {
	now, last := time.Now().UnixNano(), s.collected.Load()
	if now-last > int64(collectEvery) && s.collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}

// encode encodes the chunk, once.
func (c *chunk) encode() {
	c.once.Do(func() {
		c.parts = wire.RangeItems(c.items, c.form)
		for i, part := range c.parts {
			if cap(part) > cap(c.parts[c.anchor]) {
				c.anchor = i
			}
		}
	})
}

// list returns an empty answer. The bytes of a large answer count against the budget of the
// client that holder returns.
func (s *chunks) list(form wire.ItemForm, holder func() budget.Client) *list {
	return &list{s: s, form: form, holder: holder}
}

// list is an answer, or a message of a streamed answer, that is being built.
type list struct {
	s       *chunks
	form    wire.ItemForm
	holder  func() budget.Client
	buffers mem.BufferSlice // the complete chunks
	own     int64           // bytes in buffers

	kept, taken int64         // bytes of keep, and bytes reserved in the budget for them
	taker       budget.Client // has reserved taken; the caller's token may expire meanwhile

	turns *fair.Turns     // nil: no turn is needed
	ctx   context.Context //nolint:containedctx // ends the wait for the turn
	left  func()          // ends the turn; nil: no turn

	// items are the items of the chunk being built, and size their bytes. If they
	// are the first n items of an existing chunk, same, then only n is kept, and the
	// keys need not be read.
	items  []*kv.KeyValue
	size   int
	looked bool // an existing chunk was searched for
	same   *chunk
	n      int
}

// add adds an item.
func (l *list) add(item *kv.KeyValue) error {
	if l.same != nil {
		if l.same.items[l.n] == item {
			l.n++
			return l.matched()
		}
		l.diverge()
	}
	size := wire.RangeItemSize(item, l.form)
	l.items = append(l.items, item)
	l.size += size
	// Small answers do not search.
	if !l.looked && l.size >= l.s.least/8 {
		l.looked = true
		if c := l.s.find(l.items[0], l.form); c != nil && len(c.items) >= len(l.items) && slices.Equal(c.items[:len(l.items)], l.items) {
			l.same, l.n = c, len(l.items)
			l.items, l.size = l.items[:0], 0
			return l.matched()
		}
	}
	if l.s.cuts(item, size, l.size) {
		return l.close(false)
	}
	return nil
}

// matched takes the existing chunk if the answer has all its items.
func (l *list) matched() error {
	if l.n < len(l.same.items) {
		return nil
	}
	c := l.same
	l.same, l.n, l.looked = nil, 0, false
	return l.take(c)
}

// diverge continues with separate items, because the answer differs from the existing chunk.
func (l *list) diverge() {
	l.items = append(l.items, l.same.items[:l.n]...)
	for _, item := range l.items {
		l.size += wire.RangeItemSize(item, l.form)
	}
	l.same, l.n = nil, 0
}

// cuts reports whether a chunk of so many bytes ends after an item: the chunk is
// large enough, and the item is an end of chunks. The ends are chosen by a hash of
// the create revision, which writes do not change, with a probability proportional
// to the item's size.
func (s *chunks) cuts(item *kv.KeyValue, size, chunk int) bool {
	if chunk < s.least || chunk >= s.most {
		return chunk >= s.most
	}
	const golden = 0x9e3779b97f4a7c15                    // spreads consecutive numbers
	hash := uint64(item.CreateRevision()) * golden >> 32 //nolint:gosec // any number will do
	return hash < uint64(size)<<32/uint64(s.usual)       //nolint:gosec // sizes
}

// close ends the chunk being built. end: the answer ends there, too.
func (l *list) close(end bool) error {
	c := l.s.get(l.items, l.size, l.form, end)
	l.items, l.size, l.looked = l.items[:0], 0, false
	return l.take(c)
}

// finish ends the answer. A rest that is smaller than a chunk stays in items.
func (l *list) finish() error {
	if l.same != nil {
		l.diverge()
	}
	if l.size < l.s.least {
		return nil
	}
	return l.close(true)
}

// turn waits for the client's turn before the first chunk. Before each further chunk it
// yields to other clients: a list of 40 MB takes milliseconds.
func (l *list) turn() (err error) {
	switch {
	case l.turns == nil:
		return nil
	case l.left == nil:
		l.left, err = l.turns.Take(l.ctx, l.holder().Name)
	default:
		l.turns.Yield()
	}
	return err
}

// keepStep is the number of bytes that keep reserves at a time.
const keepStep = 256 << 10

// keep counts bytes that are kept until leave, and reserves them. It fails with a *kv.LimitError.
func (l *list) keep(bytes int) error {
	l.kept += int64(bytes)
	for l.kept > freeAnswer && l.kept > l.taken {
		if l.taken == 0 {
			l.taker = l.holder()
		}
		if err := l.s.budget.Take(l.taker, budget.Fetches, keepStep, l.taken); err != nil {
			return err
		}
		l.taken += keepStep
	}
	return nil
}

// rest ends the turn. The next call of turn waits for another one.
func (l *list) rest() {
	if l.left != nil {
		l.left()
		l.left = nil
	}
}

// leave ends the turn, and releases the bytes that keep has reserved.
func (l *list) leave() {
	l.rest()
	if l.taken > 0 {
		l.s.budget.Give(l.taker, budget.Fetches, l.taken)
	}
}

// take adds a chunk to the answer. It fails if all answers, or the holder's answers, exceed
// their share of the budget, unless this is the only answer: then a list may have any size.
func (l *list) take(c *chunk) error {
	if err := l.turn(); err != nil {
		return err
	}
	loan, err := l.s.lend(c, l.holder(), l.own)
	if err != nil {
		return l.s.full(err)
	}
	c.encode()
	l.own += c.hold.size
	for i, part := range c.parts {
		if i == c.anchor {
			l.buffers = append(l.buffers, mem.NewBuffer(&c.parts[i], loan))
		} else {
			l.buffers = append(l.buffers, mem.SliceBuffer(part))
		}
	}
	return nil
}
