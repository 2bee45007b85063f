package native

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A crowd is the watches of a stream that are served together, because the
// client understands lists of watches: those that were woken are read one after
// the other, what several of them get is put into one parcel, and each parcel is
// one message, for any number of watches.
//
//	cache ─Wake─▶ watch ─▶ crowd.woken ─▶ pump: Watch.Next of each → parcels → SendMsg of each
//
// A turn that ends has sent all it has read: nothing that is sent between two
// turns can overtake a watch's events.
type crowd struct {
	s    *stream
	task pump.Task
	on   atomic.Bool // the client understands lists

	mu    sync.Mutex
	woken []*watch // guarded by mu; have something to read
	round uint64   // guarded by mu; how often woken was taken; see watch.round
	awake bool     // guarded by mu; a turn is due, or at it

	// Owned by the pump.
	spare   []*watch // the next woken
	parcels *parcels // nil: there were none yet
}

// Bounds of a turn, beside passBytes: a parcel counts once for bytes, and for
// deliveries once for each watch.
const (
	crowdBytes      = 4 * passBytes
	crowdDeliveries = 16 << 10
)

func (c *crowd) start(s *stream) {
	c.s, c.round = s, 1
	c.task.Init(s.tasks, c.run)
	c.task.Start()
}

// add has the crowd read w soon. It does not block.
func (c *crowd) add(w *watch) {
	c.mu.Lock()
	if w.round == c.round { // it is there
		c.mu.Unlock()
		return
	}
	w.round = c.round
	c.woken = append(c.woken, w)
	wake := !c.awake
	c.awake = true
	c.mu.Unlock()
	if wake {
		c.task.Wake()
	}
}

// take returns the added watchers. Give the list back when it is done with.
func (c *crowd) take() []*watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.woken
	c.woken, c.spare = c.spare, nil
	c.round++
	return list
}

func (c *crowd) giveBack(list []*watch) {
	clear(list)
	c.spare = list[:0]
}

// rest ends a turn: watchers that could not be read come first in the next one, those
// with more to read last. It reports whether one is due.
func (c *crowd) rest(unread, unfinished []*watch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := func(w *watch) bool {
		was := w.round == c.round
		w.round = c.round
		return was
	}
	c.woken = slices.Insert(c.woken, 0, slices.DeleteFunc(unread, there)...)
	c.woken = append(c.woken, slices.DeleteFunc(unfinished, there)...)
	c.awake = len(c.woken) > 0
	return c.awake
}

// run is the crowd's turn.
func (c *crowd) run(own *pump.Scratch) (again bool) {
	if c.s.failed {
		return false
	}
	if c.parcels == nil {
		c.parcels = &parcels{horizon: math.MaxInt64}
	}
	p := c.parcels
	c.read(p, own)
	// The first is woken, and read, before the cache has woken the others that the
	// same revision concerns. They are looked for as long as they add nothing but
	// themselves.
	for n := len(p.list); len(p.unread)+len(p.unfinished) == 0 && c.read(p, own) && len(p.list) == n; {
	}
	c.send(p, own)
	again = c.rest(p.unread, p.unfinished)
	p.reset()
	return again && !c.s.failed
}

// read reads all that were woken, up to a turn's worth. It reports whether there
// were any.
func (c *crowd) read(p *parcels, own *pump.Scratch) bool {
	list := c.take()
	// So many revisions of each: more of them would not be sent soon, fewer would
	// be sent apart to watchers at the same position.
	depth := max(1, crowdDeliveries/2/max(1, len(list)))
	for i, w := range list {
		if p.bytes >= crowdBytes || p.deliveries >= crowdDeliveries {
			p.unread = append(p.unread, list[i:]...)
			break
		}
		c.readOne(w, depth, p, own)
	}
	c.giveBack(list)
	return len(list) > 0
}

// readOne reads a watch, up to the turn's horizon.
func (c *crowd) readOne(w *watch, depth int, p *parcels, own *pump.Scratch) {
	if w.phase != live || w.interval > 0 || w.ending.Load() != nil {
		w.task.Wake() // sent something else than events
		return
	}
	for n := 1; ; n++ {
		revision, events, err := w.inner.Next(p.events)
		switch {
		case err != nil:
			if c.send(p, own); w.fall(err) {
				w.task.Wake()
			}
			return
		case revision == 0:
			return
		}
		p.add(w, revision, events)
		w.at = revision
		if n >= depth || p.bytes >= passBytes {
			p.horizon = min(p.horizon, revision)
		}
		if revision >= p.horizon {
			p.unfinished = append(p.unfinished, w)
			return
		}
	}
}

// send sends all parcels, by revision.
func (c *crowd) send(p *parcels, own *pump.Scratch) {
	p.sort()
	for i := range p.list {
		c.sendOne(&p.list[i], p, own)
		own.Trail.Sent(p.list[i].revision, len(p.list[i].to))
	}
	p.sent()
}

func (c *crowd) sendOne(x *parcel, p *parcels, own *pump.Scratch) {
	together := len(x.to) > 1 && c.on.Load()
	var to wire.Recipient
	if together {
		p.ids = p.ids[:0]
		for _, w := range x.to {
			p.ids = append(p.ids, w.id)
		}
		to = wire.NewRecipients(p.ids)
	}
	_ = wire.Fragments(p.eventsOf(x), x.prev, c.s.api.cfg.FragmentBytes, func(run []*kv.Event, more bool) error {
		if together {
			m := own.Fan.WatchShared(x.revision, more, run, x.prev)
			// Each answers for its share, to the byte above: all of them for what
			// was sent.
			share := (m.SizeTo(to) + len(x.to) - 1) / len(x.to)
			for _, w := range x.to {
				w.tally.Sent(share)
			}
			c.s.sendTo(to, m)
			return nil
		}
		for _, w := range x.to {
			w.putShared(own.Fan.WatchShared(x.revision, more, run, x.prev))
		}
		return nil
	})
}

// parcel is the events of one revision and their watchers.
type parcel struct {
	revision kv.Revision
	prev     bool
	from, n  int      // of parcels.events
	next     int32    // the next one of the slot, plus one; 0: none
	to       []*watch // at least one
}

// parcels are what a turn has read and not sent yet. Each watch's revisions are
// in them in order.
type parcels struct {
	list   []parcel
	events []*kv.Event
	last   int                // of list: where add was last
	slots  [parcelSlots]int32 // of list: the first one of the revision's slot, plus one; 0: none
	ids    []int64            // scratch

	// Of the turn. horizon is the revision at which watches stop reading.
	bytes, deliveries  int
	horizon            kv.Revision
	unread, unfinished []*watch
}

// parcelSlots is how many revisions are told apart without a search.
const parcelSlots = 64

// keptParcels is how many parcels' room an idle stream keeps.
const keptParcels = 64

func (p *parcels) eventsOf(x *parcel) []*kv.Event { return p.events[x.from : x.from+x.n] }

// add adds w to the receivers of the last read: events are p.events with those
// appended.
func (p *parcels) add(w *watch, revision kv.Revision, events []*kv.Event) {
	from := len(p.events)
	p.deliveries++
	if x := p.find(revision, w.prev, events[from:]); x != nil {
		x.to = append(x.to, w)
		clear(events[from:])
		p.events = events[:from]
		return
	}
	p.events = events
	if n := len(p.list); n < cap(p.list) {
		p.list = p.list[:n+1] // with its list of watches
	} else {
		p.list = append(p.list, parcel{})
	}
	p.last = len(p.list) - 1
	slot := &p.slots[revision%parcelSlots]
	x := &p.list[p.last]
	*x = parcel{revision: revision, prev: w.prev, from: from, n: len(events) - from, next: *slot, to: append(x.to[:0], w)}
	*slot = int32(p.last) + 1 //nolint:gosec // bounded by crowdDeliveries
	for _, e := range events[from:] {
		p.bytes += kv.EventSize(e, w.prev)
	}
}

// find returns the parcel with these events, or nil. Events that are the same
// are the same in memory: the window's.
func (p *parcels) find(revision kv.Revision, prev bool, events []*kv.Event) *parcel {
	is := func(x *parcel) bool {
		return x.revision == revision && x.prev == prev && slices.Equal(p.eventsOf(x), events)
	}
	// Watches at the same place read the same revisions, one after the other.
	for _, i := range [...]int{p.last, p.last + 1} {
		if i < len(p.list) && is(&p.list[i]) {
			p.last = i
			return &p.list[i]
		}
	}
	for i := p.slots[revision%parcelSlots]; i > 0; i = p.list[i-1].next {
		if x := &p.list[i-1]; is(x) {
			p.last = int(i) - 1
			return x
		}
	}
	return nil
}

// sort puts the parcels into the order in which they are sent. Nothing can be
// found any more.
func (p *parcels) sort() {
	for i := range p.list {
		p.slots[p.list[i].revision%parcelSlots] = 0
	}
	byRevision := func(a, b parcel) int { return cmp.Compare(a.revision, b.revision) }
	if !slices.IsSortedFunc(p.list, byRevision) {
		slices.SortStableFunc(p.list, byRevision)
	}
}

// sent forgets the parcels.
func (p *parcels) sent() {
	for i := range p.list {
		clear(p.list[i].to)
	}
	clear(p.events)
	p.list, p.events, p.last = p.list[:0], p.events[:0], 0
}

// reset makes p ready for another turn.
func (p *parcels) reset() {
	clear(p.unread)
	clear(p.unfinished)
	p.unread, p.unfinished = p.unread[:0], p.unfinished[:0]
	if cap(p.list) > keptParcels || cap(p.events) > 8*keptParcels {
		p.list, p.events = nil, nil
	}
	p.bytes, p.deliveries, p.horizon = 0, 0, math.MaxInt64
}
