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

// chunks lets big answers share their bytes. A list is cut into chunks of keys,
// each encoded once and sent in all answers that hold the very same keys at the
// same versions there: fifty clients that list a hundred thousand keys at once
// cost the memory of one, and after a write one chunk is encoded again.
//
// Where a list is cut depends on the keys around the cut alone, so that lists
// of other ranges and of other revisions are cut at the same keys.
//
// A chunk has no owner: it is freed when the last answer that holds it has been sent
// or dropped. The garbage collector notices either; gRPC does not give back the
// buffers of streams whose connection breaks.
type chunks struct {
	// least and most bound a chunk in bytes, but for a single key that is larger; usual is the
	// average distance between least and a cut.
	least, usual, most int
	// budget has the bytes of chunks that answers hold, those that the garbage
	// collector has not noticed yet included. Shared chunks count once; one
	// answer alone may be larger than their share.
	budget *budget.Budget

	collected atomic.Int64 // when the garbage was last collected because space was short

	mu   sync.Mutex
	live map[chunkKey]weak.Pointer[chunk] // guarded by mu
}

// chunkKey finds a chunk by its beginning. Ends of answers, which are cut
// short, are kept apart: they would push aside the chunks that continue.
type chunkKey struct {
	first *kv.KeyValue
	form  wire.ItemForm
	end   bool
}

// The sizes of chunks: big enough that their number does not matter, small
// enough that a write spoils little.
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
	anchor int      // the largest part: its holder holds the chunk; set by once
}

// loan is a chunk in an answer, until that has been sent or dropped: it is the
// mem.BufferPool of the chunk's bytes there, and gRPC gives them back when they are sent.
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

// hold counts the answers that hold a chunk. It outlives the chunk.
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

// get returns the chunk of just these items.
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

// lend lends a chunk to an answer of a holder that has so many bytes already.
func (s *chunks) lend(c *chunk, holder budget.Client, own int64) (*loan, error) {
	if err := s.acquire(c.hold, holder, own); err != nil {
		return nil, err
	}
	l := &loan{c: c, debt: &debt{s: s, hold: c.hold, holder: holder}}
	runtime.AddCleanup(l, (*debt).pay, l.debt) // gRPC does not return the buffers of a broken connection
	return l, nil
}

// acquire adds a reference, for an answer that holds so many bytes already. It fails
// when answers hold too much, or those of the holder do. Shared chunks count once
// for the node, and once for each holder.
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

// release takes a reference of a holder away.
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

// collectEvery is the least time between two such collections.
const collectEvery = time.Second

// full returns the answer that err is, which says that answers hold too much.
func (s *chunks) full(err error) error {
	s.collect()
	return final{wire.Status(err)}
}

// collect has the collector run: chunks of answers may be garbage that it has not noticed
// yet.
func (s *chunks) collect() {
	now, last := time.Now().UnixNano(), s.collected.Load()
	if now-last > int64(collectEvery) && s.collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}

// encode makes the bytes, once.
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

// list returns an empty answer. If it has many bytes, they count for the client that holder
// returns.
func (s *chunks) list(form wire.ItemForm, holder func() budget.Client) *list {
	return &list{s: s, form: form, holder: holder}
}

// list is an answer, or a message of a streamed one, being built.
type list struct {
	s       *chunks
	form    wire.ItemForm
	holder  func() budget.Client
	buffers mem.BufferSlice // of the chunks that are complete
	own     int64           // bytes in buffers

	kept, taken int64         // bytes of keep, and what is taken of the budget for them
	taker       budget.Client // has taken; a token may end meanwhile

	turns *fair.Turns     // nil: it needs no turn
	ctx   context.Context //nolint:containedctx // ends the wait for the turn
	left  func()          // ends the turn; nil: it has none

	// items are those of the chunk being built, and size their bytes. Once they
	// turn out to be the first n of a chunk that is there already, n is all that
	// is kept, and the keys themselves need not be looked at.
	items  []*kv.KeyValue
	size   int
	looked bool // for such a chunk
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
	// Small answers do not look.
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

// matched takes the chunk that is there already if all of it is in the answer.
func (l *list) matched() error {
	if l.n < len(l.same.items) {
		return nil
	}
	c := l.same
	l.same, l.n, l.looked = nil, 0, false
	return l.take(c)
}

// diverge continues with separate items.
func (l *list) diverge() {
	l.items = append(l.items, l.same.items[:l.n]...)
	for _, item := range l.items {
		l.size += wire.RangeItemSize(item, l.form)
	}
	l.same, l.n = nil, 0
}

// cuts reports whether a chunk of so many bytes ends after an item: it is
// large enough, and the item is one that chunks end with. Those are chosen by
// their create revision, which writes do not change, the more often the larger
// they are.
func (s *chunks) cuts(item *kv.KeyValue, size, chunk int) bool {
	if chunk < s.least || chunk >= s.most {
		return chunk >= s.most
	}
	const golden = 0x9e3779b97f4a7c15                    // spreads numbers that follow one another
	hash := uint64(item.CreateRevision()) * golden >> 32 //nolint:gosec // any number will do
	return hash < uint64(size)<<32/uint64(s.usual)       //nolint:gosec // sizes
}

// close ends the chunk being built; end says that the answer ends there, too.
func (l *list) close(end bool) error {
	c := l.s.get(l.items, l.size, l.form, end)
	l.items, l.size, l.looked = l.items[:0], 0, false
	return l.take(c)
}

// finish ends the answer. items holds less than a chunk.
func (l *list) finish() error {
	if l.same != nil {
		l.diverge()
	}
	if l.size < l.s.least {
		return nil
	}
	return l.close(true)
}

// turn waits for the client's turn, before the first chunk. Before each other one it lets
// others run: a list of 40 MB takes milliseconds.
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

// keepStep is how many bytes keep takes from the budget at a time.
const keepStep = 256 << 10

// keep counts bytes that are held until leave. It fails with a *kv.LimitError.
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

// leave ends the turn, and gives back what keep has taken.
func (l *list) leave() {
	l.rest()
	if l.taken > 0 {
		l.s.budget.Give(l.taker, budget.Fetches, l.taken)
	}
}

// take adds a chunk to the answer. It fails when answers hold too much already, or those
// of the holder do, unless this one holds all of it: a list of any size can be had alone.
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
