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

// A crowd reads the events of a stream's watches that are not conflated. Its turn reads the
// woken readers one after the other, and puts equal events of several readers into one parcel.
// A parcel is one message for all its watches if the client understands lists of watches,
// else one message for each watch.
//
//	cache ─Wake─▶ reader ─▶ crowd.woken ─▶ pump: Watch.Next of each → parcels → message of each
//
// A turn sends everything that it has read before it ends, so no message sent between
// two turns can overtake a watch's events.
type crowd struct {
	s    *stream
	task pump.Task
	on   atomic.Bool // the client understands lists

	mu    sync.Mutex
	woken []*reader // guarded by mu; have events to read
	round uint64    // guarded by mu; one more at each take of woken; see reader.round
	awake bool      // guarded by mu; a turn is due or running

	// Owned by the pump.
	spare   []*reader              // the next list for woken, empty
	readers map[readerKind]*reader // offered to other readers, see reader.join; nil until the stream has several watches
}

// Bounds of a turn, in addition to passBytes. The bytes of a parcel count once, its
// deliveries count once for each watch. Skipped batches have no events of the reader that
// examines them.
const (
	crowdBytes      = 4 * passBytes
	crowdDeliveries = 16 << 10
	crowdSkipped    = 4 << 10
)

func (c *crowd) start(s *stream) {
	c.s, c.round = s, 1
	c.task.Init(s.tasks, c.run)
	c.task.Start()
}

// add queues r for the next turn. It does not block.
func (c *crowd) add(r *reader) {
	c.mu.Lock()
	if r.round == c.round { // already queued
		c.mu.Unlock()
		return
	}
	r.round = c.round
	c.woken = append(c.woken, r)
	wake := !c.awake
	c.awake = true
	c.mu.Unlock()
	if wake {
		c.task.Wake()
	}
}

// take returns the queued readers; nil: none, and the turn ends with the events that it has read. The
// caller returns the list with giveBack.
func (c *crowd) take() []*reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.woken) == 0 {
		c.awake = false
		return nil
	}
	list := c.woken
	c.woken, c.spare = c.spare, nil
	c.round++
	return list
}

func (c *crowd) giveBack(list []*reader) {
	clear(list)
	c.spare = list[:0]
}

// rest ends a turn. The next turn begins with the unread readers and ends with the unfinished
// ones. It reports whether a next turn is due.
func (c *crowd) rest(unread, unfinished []*reader) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := func(r *reader) bool {
		was := r.round == c.round
		r.round = c.round
		return was
	}
	c.woken = slices.Insert(c.woken, 0, slices.DeleteFunc(unread, there)...)
	c.woken = append(c.woken, slices.DeleteFunc(unfinished, there)...)
	c.awake = len(c.woken) > 0
	return c.awake
}

// run runs one turn of the crowd.
func (c *crowd) run(own *pump.Scratch) (again bool) {
	if c.s.failed {
		return false
	}
	p := parcelsOf(own)
	c.read(p, own)
	// The cache wakes the readers of a revision one after the other, and the first is
	// read before the others are woken. So read the others, too, as long as they add no
	// new parcel.
	all := false // everything is read; the next event wakes the task again
	for n := len(p.list); !all && len(p.unread)+len(p.unfinished) == 0 && len(p.list) == n; {
		all = !c.read(p, own)
	}
	c.send(p, own)
	for _, r := range p.done {
		r.join()
	}
	again = !all && c.rest(p.unread, p.unfinished)
	own.Read(p.skipped)
	p.reset()
	return again && !c.s.failed
}

// read reads the woken readers, within the bounds of a turn. It reports whether there
// were any.
func (c *crowd) read(p *parcels, own *pump.Scratch) bool {
	list := c.take()
	if list == nil {
		return false
	}
	// depth is the number of revisions to read from each reader. More would delay the
	// first ones, fewer would split the parcels of watches at the same position.
	depth := max(1, crowdDeliveries/2/max(1, len(list)))
	for i, r := range list {
		if p.bytes >= crowdBytes || p.deliveries >= crowdDeliveries || p.skipped >= crowdSkipped {
			p.unread = append(p.unread, list[i:]...)
			break
		}
		c.readOne(r, depth, p, own)
	}
	c.giveBack(list)
	return true
}

// readOne reads the events of one reader, up to the turn's horizon.
func (c *crowd) readOne(r *reader, depth int, p *parcels, own *pump.Scratch) {
	if len(r.watches) == 0 { // the reader is closed
		return
	}
	if !r.live {
		r.watches[0].task.Wake() // its only watch starts first
		return
	}
	for n := 1; ; n++ {
		revision, events, err := r.Next(p.events)
		p.skipped += r.Skipped()
		switch {
		case err != nil:
			c.send(p, own)
			r.fall(err)
			return
		case revision == 0 && r.Pending():
			p.unfinished = append(p.unfinished, r)
			return
		case revision == 0:
			p.done = append(p.done, r)
			return
		}
		p.add(r, revision, events)
		r.at = revision
		if n >= depth || p.bytes >= passBytes || p.deliveries >= crowdDeliveries || p.skipped >= crowdSkipped {
			p.horizon = min(p.horizon, revision)
		}
		if revision >= p.horizon {
			p.unfinished = append(p.unfinished, r)
			return
		}
	}
}

// send sends all parcels in order of revision.
func (c *crowd) send(p *parcels, own *pump.Scratch) {
	p.sort()
	for i := range p.list {
		watches := c.sendOne(&p.list[i], p, own)
		own.Trace.Sent(p.list[i].revision, watches)
	}
	p.sent()
}

// sendOne sends a parcel, and returns the number of its watches.
func (c *crowd) sendOne(x *parcel, p *parcels, own *pump.Scratch) (watches int) {
	for _, r := range x.to {
		watches += len(r.ids)
	}
	together := watches > 1 && c.on.Load()
	var to wire.Recipient
	if together {
		to = p.recipients(x)
	}
	_ = wire.Fragments(p.eventsOf(x), x.prev, c.s.api.cfg.FragmentBytes, func(run []*kv.Event, more bool) error {
		if together {
			m := own.Fan.WatchShared(x.revision, more, run, x.prev)
			// Each watch counts its share, rounded up, so that the sum covers the
			// sent bytes.
			share := (m.SizeTo(to) + watches - 1) / watches
			for _, r := range x.to {
				r.sent.Sent(share)
			}
			c.s.sendTo(to, m)
			return nil
		}
		for _, r := range x.to {
			m := own.Fan.WatchShared(x.revision, more, run, x.prev)
			r.sent.Sent(m.Size() + wire.RecipientSize(r.ids[0])) // the other IDs have about the same size
			c.s.sendShared(m, r.ids)
		}
		return nil
	})
	return watches
}

// parcel is the events of one revision and their readers.
type parcel struct {
	revision kv.Revision
	prev     bool
	from, n  int       // the events are parcels.events[from:from+n]
	next     int32     // index of the next parcel of the slot, plus one; 0: none
	to       []*reader // at least one
}

// parcels has the events that a turn has read and not sent yet. The revisions of each reader are in
// order. It belongs to a pump rather than to a stream: a stream with a single watch would otherwise
// touch more memory for parcels than for everything else.
type parcels struct {
	list   []parcel
	events []*kv.Event
	last   int                // index in list: the last one found or added
	slots  [parcelSlots]int32 // index in list: the first parcel of the revision's slot, plus one; 0: none
	ids    []int64            // scratch

	// State of the turn. horizon is the revision at which readers stop.
	bytes, deliveries, skipped int
	horizon                    kv.Revision
	unread, unfinished         []*reader
	done                       []*reader // have read everything
}

// parcelSlots is the number of hash slots of find: so many consecutive revisions do not collide.
const parcelSlots = 64

// keptParcels is the capacity in parcels that a pump keeps.
const keptParcels = 64

// parcelsOf returns the pump's parcels, which are empty between turns.
func parcelsOf(own *pump.Scratch) *parcels {
	p, _ := own.Lent.(*parcels)
	if p == nil {
		p = &parcels{horizon: math.MaxInt64}
		own.Lent = p
	}
	return p
}

func (p *parcels) eventsOf(x *parcel) []*kv.Event { return p.events[x.from : x.from+x.n] }

// recipients returns the watches of a parcel as a message names them.
func (p *parcels) recipients(x *parcel) wire.Recipient {
	if len(x.to) == 1 {
		return x.to[0].recipients()
	}
	p.ids = p.ids[:0]
	for _, r := range x.to {
		p.ids = append(p.ids, r.ids...)
	}
	return wire.NewRecipients(p.ids)
}

// add adds the events that r has just read. events is p.events with the new ones
// appended.
func (p *parcels) add(r *reader, revision kv.Revision, events []*kv.Event) {
	from := len(p.events)
	p.deliveries += len(r.ids)
	if x := p.find(revision, r.prev, events[from:]); x != nil {
		x.to = append(x.to, r)
		clear(events[from:])
		p.events = events[:from]
		return
	}
	p.events = events
	if n := len(p.list); n < cap(p.list) {
		p.list = p.list[:n+1] // reuses the old parcel's list of readers
	} else {
		p.list = append(p.list, parcel{})
	}
	p.last = len(p.list) - 1
	slot := &p.slots[revision%parcelSlots]
	x := &p.list[p.last]
	*x = parcel{revision: revision, prev: r.prev, from: from, n: len(events) - from, next: *slot, to: append(x.to[:0], r)}
	*slot = int32(p.last) + 1 //nolint:gosec // bounded by crowdDeliveries
	for _, e := range events[from:] {
		p.bytes += kv.EventSize(e, r.prev)
	}
}

// find returns the parcel with these events, or nil. Equal events are the same
// pointers, into the window.
func (p *parcels) find(revision kv.Revision, prev bool, events []*kv.Event) *parcel {
	is := func(x *parcel) bool {
		return x.revision == revision && x.prev == prev && slices.Equal(p.eventsOf(x), events)
	}
	// Readers at the same position read the same revisions in the same order.
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

// sort puts the parcels into the order in which they are sent. find does not work
// afterwards.
func (p *parcels) sort() {
	for i := range p.list {
		p.slots[p.list[i].revision%parcelSlots] = 0
	}
	byRevision := func(a, b parcel) int { return cmp.Compare(a.revision, b.revision) }
	if !slices.IsSortedFunc(p.list, byRevision) {
		slices.SortStableFunc(p.list, byRevision)
	}
}

// sent discards the parcels.
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
	clear(p.done)
	p.unread, p.unfinished, p.done = p.unread[:0], p.unfinished[:0], p.done[:0]
	if cap(p.list) > keptParcels || cap(p.events) > 8*keptParcels {
		p.list, p.events = nil, nil
	}
	p.bytes, p.deliveries, p.skipped, p.horizon = 0, 0, 0, math.MaxInt64
}
