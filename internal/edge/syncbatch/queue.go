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

// Queue makes the batches that bring watches up to date which the window cannot serve:
// deltas and states. Making one costs memory and time, and when they are needed, many
// watches need them at once. So
//
//   - they begin at a bounded number at a time, one for each connection in turn;
//     a watch that waits is an entry in a list;
//   - watches that need the same one share it: its revision, and the bytes of its
//     chunks, which are made once, or again for a watch that comes so late that they
//     were dropped;
//   - chunks are made at a bounded rate.
//
// Deltas do not wait for states: they are small.
type Queue struct {
	cfg  Config
	keep int // bytes of chunks that are kept for others to share
	kick wait.Bell
	pace pace

	mu      sync.Mutex
	closed  bool
	queues  [2]fairQueue        // guarded by mu
	waiting map[Key]*Batch      // guarded by mu; not begun
	shared  map[Key]*Batch      // guarded by mu; begun, the newest
	begun   map[*Batch]struct{} // guarded by mu
	kept    []keptPart          // guarded by mu; the oldest first
	bytes   int                 // guarded by mu; of kept
	stats   Stats               // guarded by mu
	running sync.WaitGroup      // loads and chunks being made; not after closed
}

// Bounds of a Queue.
const (
	// holdFactor bounds how many batches without a place there are, as a multiple of
	// those with one.
	holdFactor = 4
	// keepBytes bounds the chunks that are kept for others to share; so does the share of
	// the budget that is for keys of other nodes.
	keepBytes = 64 << 20
	// loadTries is how often a batch is tried whose revision is gone before all shards have
	// returned their part of it.
	loadTries = 5
)

// Patience is how long batches wait for watches that come later or do not read.
type Patience struct {
	// Share is how long others may still join a batch that has begun, and how long it
	// is held for them: the older it is, the more events follow it.
	Share time.Duration
	// Stalled is when a batch that none of its watches takes more of gives its
	// place to another one.
	Stalled time.Duration
	// Hold is how long such a batch is held for watches that may continue: then they
	// begin again.
	Hold time.Duration
	// Sweep is how often stalled watches are looked for.
	Sweep time.Duration
}

// UsualPatience is that of a production node.
func UsualPatience() Patience {
	return Patience{Share: 10 * time.Second, Stalled: 5 * time.Second, Hold: time.Minute, Sweep: time.Second}
}

// fairQueue is where batches wait, and how many have left it for a place and still have it.
type fairQueue struct {
	fair.Queue[*Batch]

	running int
}

// Key identifies a batch: watches with equal keys share it.
type Key struct {
	Kind    shardwatchv1.SyncKind
	Range   kv.Range
	Lineage uint64      // the history that it brings up to date with
	Since   kv.Revision // of deltas
}

// Delta reports whether the batch is a delta.
func (k *Key) Delta() bool {
	return k.Kind == shardwatchv1.SyncKind_SYNC_KIND_DELTA || k.Kind == shardwatchv1.SyncKind_SYNC_KIND_CONFLATED
}

// Mode is the serve mode, for operators, of a watch that has such a batch.
func (k *Key) Mode() watchstats.Mode {
	if k.Delta() {
		return watchstats.Delta
	}
	return watchstats.Resync
}

// queue returns which of the queues the batch waits in.
func (k *Key) queue() int {
	if k.Delta() {
		return 0
	}
	return 1
}

// Batch is a delta or a state at one revision. Queue.mu guards all of it; body's contents never change.
type Batch struct {
	key     Key
	watches map[Watch]time.Time // and since when they wait
	least   kv.Revision         // of the watches that waited for it to begin

	entry  *fair.Entry[*Batch] // while it waits
	state  State
	placed bool // it counts among those that its queue lets run
	begun  time.Time
	taken  time.Time       // when a watch has last asked for a part
	ctx    context.Context //nolint:containedctx // ends with the batch
	cancel context.CancelFunc
	making int // chunks that are being made

	body  *router.Body
	err   error
	parts []part // as far as it is known where they begin
}

// State is how far a batch is.
type State uint8

// A batch waits for its turn, is loaded, can be read, and is released.
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
	// MaxResyncs is how many batches of each sort, deltas and states, begin at a time.
	MaxResyncs int
	// ResyncRate bounds the bytes per second of the chunks that are made; 0: any number.
	ResyncRate int64
	// FragmentBytes is about the size of a chunk.
	FragmentBytes int
	// Done is called when the first of a batch's watches has had all of it; nil: not
	// called. It must not block.
	Done func(key Key, began time.Time, revision kv.Revision)
	// Patience is how long batches wait for their watches.
	Patience Patience
}

// Watch is a watch that needs a batch.
type Watch interface {
	// Wake has the watch look at its batch. It does not block.
	Wake()
	// Holder is the client that the batch's keys of other nodes count for.
	Holder() budget.Client
}

// New returns a Queue. Run makes its batches.
func New(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, keep: int(min(keepBytes, cfg.Budget.Share(budget.Fetches))), kick: wait.NewBell(), pace: pace{perSecond: cfg.ResyncRate},
		waiting: make(map[Key]*Batch), shared: make(map[Key]*Batch), begun: make(map[*Batch]struct{}),
	}
}

// Run lets batches begin until ctx ends.
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

// Join has w wait for the batch of a key, or share the one that is there. w is
// woken when it is ready. The batch's revision is least or a later one, unless it
// has begun and is being read. Every batch must be left.
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

// Leave takes w off the batch; through: it has had all of it.
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
	if through || len(x.watches) == 0 && x.state != Loads { // it has been made once, or is not being made
		q.freeLocked(x)
	}
	if len(x.watches) == 0 && (x.err != nil || !q.sharesLocked(x, time.Now())) {
		q.dropLocked(x)
	}
}

// sharesLocked reports whether others may join. Not a state that was asked for:
// it sees everything before the question.
func (q *Queue) sharesLocked(x *Batch, now time.Time) bool {
	return x.state != Waits && x.key.Kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < q.cfg.Patience.Share
}

// begin lets batches begin while there are places.
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
			first, _ := x.holderLocked(nil) // now: the watches may leave before the load looks
			q.running.Go(func() { q.load(x, least, first) })
		}
	}
}

// load loads the content of a batch, which has its place meanwhile, also when all watches have left.
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

// read reads the content of a batch. Its bytes count for first, the client of the watch that had waited
// longest when the batch began. If they do not fit, they count for another client's that waits: it is not
// to be refused because of the first.
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

// holderLocked returns the client of the watch that has waited longest, of those of another client
// than the one given; false: there is none.
func (x *Batch) holderLocked(but *budget.Client) (holder budget.Client, ok bool) {
	var longest time.Time
	for w, since := range x.watches {
		if of := w.Holder(); (but == nil || of.Name != but.Name) && (!ok || since.Before(longest)) {
			holder, longest, ok = of, since, true
		}
	}
	return holder, ok
}

// freeLocked gives the batch's place to another one.
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

// dropLocked lets go of all that the batch holds. Watches that are on it find it
// gone.
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
		x.cancel() // load gives the place back: it still reads
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

// sweep takes places back from batches that have stalled, and drops those that
// no watch has continued with.
func (q *Queue) sweep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var held []*Batch
	for x := range q.begun {
		if x.state != Ready || x.making > 0 {
			continue // it is at work
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

// dropAll lets go of all batches, when none begins any more.
func (q *Queue) dropAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for x := range q.begun {
		q.dropLocked(x)
	}
}

// find reads the keys of a batch: at one revision over all shards, which is least, known to exist,
// or a later one. Keys of other nodes count for holder.
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
	// Waiting is how many watches wait for a batch to begin, Running how many batches have begun
	// and were not sent completely to any watch yet.
	Waiting, Running int
	// Begun is how many have begun, Waited how long watches have waited for that,
	// together.
	Begun  int64
	Waited time.Duration
	// Abandoned is how many watches have not read on for so long that they begin again.
	Abandoned int64
	// Made are the bytes of the chunks that were made. What several watches share
	// counts once.
	Made int64
	// Sent counts the sent updates of watches, by kind.
	Sent [kinds]SentBatches
}

// kinds is one more than the highest shardwatchv1.SyncKind.
const kinds = 5

// SentBatches counts the batches of one kind that watches were sent.
type SentBatches struct {
	Batches, Keys, Bytes int64
}

// Stats returns counts of batches since the start, by outcome.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.stats
	out.Running = q.queues[0].running + q.queues[1].running
	return out
}
