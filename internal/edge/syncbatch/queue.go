package syncbatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Queue builds the batches for watches that the window cannot serve: deltas and states.
// A batch costs memory and time, and usually many watches need one at once. So
//
//   - the number of running batches is bounded, and clients take turns;
//     a waiting watch is an entry in a list;
//   - watches that need the same batch share its revision and the bytes of its chunks,
//     which are built once, and again only for a watch that is so late that they
//     were dropped;
//   - chunks are built at a bounded rate.
//
// Deltas do not wait for states, because they are small.
type Queue struct {
	cfg  Config
	keep int // bytes of chunks that are kept for other watches
	kick wait.Bell
	pace pace

	mu      sync.Mutex
	closed  bool
	queues  [2]fairQueue        // guarded by mu
	waiting map[Key]*Batch      // guarded by mu; batches that have not begun
	shared  map[Key]*Batch      // guarded by mu; the newest begun batch of each key
	begun   map[*Batch]struct{} // guarded by mu
	kept    []keptPart          // guarded by mu; oldest first
	bytes   int                 // guarded by mu; of kept
	stats   Stats               // guarded by mu
	running sync.WaitGroup      // loads and chunks being built; none is added after closed
}

// Bounds of a Queue.
const (
	// holdFactor bounds the batches without a slot, as a multiple of MaxResyncs.
	holdFactor = 4
	// keepBytes bounds the chunks that are kept for other watches, together with the budget's
	// share for keys of other nodes.
	keepBytes = 64 << 20
	// loadTries bounds the attempts to load a batch whose revision is compacted before all
	// shards have returned their part.
	loadTries = 5
)

// Patience has the times for which batches wait for watches that join later or do not read.
type Patience struct {
	// Share is the time for which other watches may join a batch that has begun, and for
	// which it is kept for them: the older it is, the more events follow it.
	Share time.Duration
	// Stalled is the time after which a batch loses its slot if none of its watches
	// takes a part.
	Stalled time.Duration
	// Hold is the time for which a stalled batch is kept for watches that may continue.
	// After it they must join a new batch.
	Hold time.Duration
	// Sweep is the interval of checks for stalled batches.
	Sweep time.Duration
}

// UsualPatience returns the Patience of a production node.
func UsualPatience() Patience {
	return Patience{Share: 10 * time.Second, Stalled: 5 * time.Second, Hold: time.Minute, Sweep: time.Second}
}

// fairQueue has the waiting batches, and the number of batches with a slot.
type fairQueue struct {
	fair.Queue[*Batch]

	running int
}

// Key identifies a batch: watches with equal keys share it.
type Key struct {
	Kind    shardwatchv1.SyncKind
	Range   kv.Range
	Lineage uint64      // the lineage of its content
	Since   kv.Revision // of deltas
}

// Delta reports whether the batch is a delta.
func (k *Key) Delta() bool {
	return k.Kind == shardwatchv1.SyncKind_SYNC_KIND_DELTA || k.Kind == shardwatchv1.SyncKind_SYNC_KIND_CONFLATED
}

// Mode returns the serve mode, for operators, of a watch with this batch.
func (k *Key) Mode() watchstats.Mode {
	if k.Delta() {
		return watchstats.Delta
	}
	return watchstats.Resync
}

// queue returns the index of the batch's queue.
func (k *Key) queue() int {
	if k.Delta() {
		return 0
	}
	return 1
}

// Batch is a delta or a state at one revision. Queue.mu guards all of it; body's contents never change.
type Batch struct {
	key     Key
	watches map[Watch]time.Time // with the time at which each one joined
	least   kv.Revision         // the highest least of the watches that joined before it began

	entry  *fair.Entry[*Batch] // while it waits
	state  State
	placed bool // it has a slot of its queue
	begun  time.Time
	taken  time.Time       // time of the last request for a part
	ctx    context.Context //nolint:containedctx // ends with the batch
	cancel context.CancelFunc
	making int // number of chunks being built

	body  *router.Body
	err   error
	parts []part // the parts whose begin is known
}

// State is the state of a batch.
type State uint8

// A batch waits for its turn, is loaded, can be read, and is dropped.
const (
	Waits State = iota
	Loads
	Ready // body or err is set
	Gone
)

// Config configures batches.
type Config struct {
	Router *router.Router
	Budget *budget.Budget
	// MaxResyncs bounds the running batches of each of the two kinds, deltas and states.
	MaxResyncs int
	// ResyncRate bounds the chunks that are built, in bytes per second; 0: no bound.
	ResyncRate int64
	// FragmentBytes is the approximate size of a chunk.
	FragmentBytes int
	// Done is called when the first watch has taken a whole batch; nil: not called. It
	// must not block.
	Done func(key Key, began time.Time, revision kv.Revision)
	// Patience has the times for which batches wait for their watches.
	Patience Patience
}

// Watch is a watch that needs a batch.
type Watch interface {
	// Wake makes the watch check its batch. It does not block.
	Wake()
	// Holder returns the client whose budget the batch's keys of other nodes use.
	Holder() budget.Client
}

// New returns a Queue. Run runs its batches.
func New(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, keep: int(min(keepBytes, cfg.Budget.Share(budget.Fetches))), kick: wait.NewBell(), pace: pace{perSecond: cfg.ResyncRate},
		waiting: make(map[Key]*Batch), shared: make(map[Key]*Batch), begun: make(map[*Batch]struct{}),
	}
}

// Run starts batches until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	sweep := time.NewTimer(beat.Until(q.cfg.Patience.Sweep))
	defer sweep.Stop()
	for {
		q.begin(ctx)
		select {
		case <-q.kick:
		case now := <-sweep.C:
			sweep.Reset(beat.Until(q.cfg.Patience.Sweep))
			q.sweep(now)
		case <-ctx.Done():
			q.mu.Lock()
			q.closed = true
			q.mu.Unlock()
			q.running.Wait()
			q.dropAll()
			return
		}
	}
}

// Join adds w to the batch of a key: a waiting batch, or a begun batch that can be shared.
// w is woken when the batch is ready. The batch's revision is least or a later one, unless
// it is already being loaded. Every joined batch must be left.
func (q *Queue) Join(w Watch, key Key, least kv.Revision, client string) *Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if x := q.shared[key]; x != nil && q.sharesLocked(x, now) && (x.body == nil || x.body.Revision >= least) {
		x.watches[w] = now
		return x
	}
	x := q.waiting[key]
	if x == nil {
		x = &Batch{key: key, watches: make(map[Watch]time.Time)}
		q.waiting[key] = x
		x.entry = q.queues[key.queue()].Push(client, x)
		q.kick.Wake()
	}
	x.watches[w], x.least = now, max(x.least, least)
	q.stats.Waiting++
	return x
}

// Leave removes w from the batch; through: w has taken all of it.
func (q *Queue) Leave(x *Batch, w Watch, through bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, on := x.watches[w]; !on {
		return
	}
	delete(x.watches, w)
	if x.state == Waits {
		q.stats.Waiting--
	}
	if through && x.placed && q.cfg.Done != nil {
		q.cfg.Done(x.key, x.begun, x.body.Revision)
	}
	if through || len(x.watches) == 0 && x.state != Loads { // a load keeps its slot
		q.freeLocked(x)
	}
	if len(x.watches) == 0 && (x.err != nil || !q.sharesLocked(x, time.Now())) {
		q.dropLocked(x)
	}
}

// sharesLocked reports whether other watches may join. A requested initial state is not
// shared: it must contain everything before the request.
func (q *Queue) sharesLocked(x *Batch, now time.Time) bool {
	return x.state != Waits && x.key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < q.cfg.Patience.Share
}

// begin starts batches while there are free slots.
func (q *Queue) begin(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.queues {
		l := &q.queues[i]
		for l.running < q.cfg.MaxResyncs {
			x, ok := l.Pop()
			if !ok {
				break
			}
			now := time.Now()
			delete(q.waiting, x.key)
			q.shared[x.key], q.begun[x] = x, struct{}{}
			x.state, x.placed, x.begun = Loads, true, now
			x.ctx, x.cancel = context.WithCancel(ctx)
			l.running++
			q.stats.Begun++
			q.stats.Waiting -= len(x.watches)
			for _, since := range x.watches {
				q.stats.Waited += now.Sub(since)
			}
			least := x.least
			first, _ := x.holderLocked(nil) // now, because the watches may leave before the load begins
			q.running.Go(func() { q.load(x, least, first) })
		}
	}
}

// load loads the content of a batch, which keeps its slot meanwhile, even if all watches have left.
func (q *Queue) load(x *Batch, least kv.Revision, first budget.Client) {
	body, err := q.read(x, least, first)
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.state == Gone {
		q.freeLocked(x)
		body.Release()
		return
	}
	x.state, x.body, x.err, x.taken = Ready, body, err, time.Now()
	x.parts = make([]part, 1)
	if err != nil || len(x.watches) == 0 {
		q.freeLocked(x)
	}
	if err != nil {
		q.unshareLocked(x)
	}
	for w := range x.watches {
		w.Wake()
	}
}

// read reads the content of a batch. Its bytes count against the budget of first, the client of the watch
// that had waited longest when the batch began. If first exceeds its share, they count against another
// waiting client's: that client must not be refused because of first.
func (q *Queue) read(x *Batch, least kv.Revision, first budget.Client) (*router.Body, error) {
	body, err := q.cfg.find(x.ctx, x.key, least, first)
	if errors.As(err, new(*kv.LimitError)) {
		q.mu.Lock()
		other, ok := x.holderLocked(&first)
		q.mu.Unlock()
		if ok {
			return q.cfg.find(x.ctx, x.key, least, other)
		}
	}
	return body, err
}

// holderLocked returns the client of the watch that has waited longest, except for the client but; false:
// there is none.
func (x *Batch) holderLocked(but *budget.Client) (holder budget.Client, ok bool) {
	var longest time.Time
	for w, since := range x.watches {
		if of := w.Holder(); (but == nil || of.Name != but.Name) && (!ok || since.Before(longest)) {
			holder, longest, ok = of, since, true
		}
	}
	return holder, ok
}

// freeLocked releases the batch's slot.
func (q *Queue) freeLocked(x *Batch) {
	if x.placed {
		x.placed = false
		q.queues[x.key.queue()].running--
		q.kick.Wake()
	}
}

func (q *Queue) unshareLocked(x *Batch) {
	if q.shared[x.key] == x {
		delete(q.shared, x.key)
	}
}

// dropLocked drops the batch and its content. The remaining watches find its state Gone.
func (q *Queue) dropLocked(x *Batch) {
	was := x.state
	x.state = Gone
	switch was {
	case Gone:
		return
	case Waits:
		delete(q.waiting, x.key)
		q.queues[x.key.queue()].Remove(x.entry)
	case Loads:
		x.cancel() // load releases the slot when it has ended
	case Ready:
		x.cancel()
		q.freeLocked(x)
	}
	q.unshareLocked(x)
	delete(q.begun, x)
	for i := range x.parts {
		x.parts[i].wakeLocked()
	}
	x.body.Release()
	x.body, x.parts = nil, nil
}

// sweep releases the slots of stalled batches, and drops batches that no watch has
// continued to read.
func (q *Queue) sweep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var held []*Batch
	for x := range q.begun {
		if x.state != Ready || x.making > 0 {
			continue // it is being loaded or built
		}
		idle := now.Sub(x.taken)
		if idle > q.cfg.Patience.Stalled {
			q.freeLocked(x)
		}
		if idle > q.cfg.Patience.Hold || len(x.watches) == 0 && !q.sharesLocked(x, now) {
			q.stats.Abandoned += int64(len(x.watches))
			q.dropLocked(x)
		} else if !x.placed {
			held = append(held, x)
		}
	}
	if over := len(held) - holdFactor*q.cfg.MaxResyncs; over > 0 {
		slices.SortFunc(held, func(a, b *Batch) int { return a.taken.Compare(b.taken) })
		for _, x := range held[:over] {
			q.stats.Abandoned += int64(len(x.watches))
			q.dropLocked(x)
		}
	}
}

// dropAll drops all batches, once no batch begins any more.
func (q *Queue) dropAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for x := range q.begun {
		q.dropLocked(x)
	}
}

// find reads the keys of a batch, at one revision over all shards: least, which is known to exist, or
// a later one. Keys of other nodes count against holder's budget.
func (c *Config) find(ctx context.Context, key Key, least kv.Revision, holder budget.Client) (*router.Body, error) {
	for try := 1; ; try++ {
		body, err := c.findOnce(ctx, key, least, holder)
		if err == nil && body.Lineage != key.Lineage {
			body.Release()
			return nil, &kv.LineageError{Requested: key.Lineage, Current: body.Lineage}
		}
		var compacted *kv.CompactedError
		if !errors.As(err, &compacted) || key.Delta() && compacted.Requested == key.Since+1 {
			return body, err
		}
		if try == loadTries {
			return nil, &kv.UnavailableError{
				Why: kv.NotReady, RetryAfter: kv.RetrySoon,
				Detail: fmt.Sprintf("the list's revision was compacted %d times before all shards had listed: %v", try, err),
			}
		}
	}
}

func (c *Config) findOnce(ctx context.Context, key Key, least kv.Revision, holder budget.Client) (*router.Body, error) {
	req := router.ReadRequest{Range: key.Range, Holder: holder}
	if key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE {
		now, err := c.Router.Present(ctx, key.Range)
		if err != nil {
			return nil, err
		}
		req.Revision, req.Exists = max(now, least), true
	}
	reading, err := c.Router.Read(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case key.Delta():
		return reading.Changes(ctx, key.Since)
	}
	return reading.Hold(ctx)
}

// Stats counts batches since the start.
type Stats struct {
	// Waiting is the number of watches that wait for a batch to begin, Running the number of batches
	// that have begun and are not sent completely to any watch yet.
	Waiting, Running int
	// Begun is the number of begun batches, Waited the total time that watches have
	// waited for them to begin.
	Begun  int64
	Waited time.Duration
	// Abandoned is the number of watches that lost their batch because they did not read.
	Abandoned int64
	// Made is the number of bytes of built chunks. A chunk that several watches share
	// counts once.
	Made int64
	// Sent counts the sent updates of watches, by kind.
	Sent [kinds]SentBatches
}

// kinds is one more than the highest shardwatchv1.SyncKind.
const kinds = 5

// SentBatches counts the batches of one kind that were sent to watches.
type SentBatches struct {
	Batches, Keys, Bytes int64
}

// Stats returns the counts of batches since the start, by outcome.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.stats
	out.Running = q.queues[0].running + q.queues[1].running
	return out
}
