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

// A crowd is the readers of a stream's watches that are sent every event: those that were
// woken are read one after the other, and events for several of them share one parcel.
// A parcel is one message for all its watches, if the client understands lists of watches,
// else one for each.
//
//	cache ─Wake─▶ reader ─▶ crowd.woken ─▶ pump: Watch.Next of each → parcels → message of each
//
// A turn that ends has sent all it has read: nothing that is sent between two
// turns can overtake a watch's events.
type crowd struct {
	s    *stream
	task pump.Task
	on   atomic.Bool // the client understands lists

	mu    sync.Mutex
	woken []*reader // guarded by mu; have something to read
	round uint64    // guarded by mu; how often woken was taken; see reader.round
	awake bool      // guarded by mu; a turn is due, or at it

	// Owned by the pump.
	spare   []*reader              // the next woken
	readers map[readerKind]*reader // that other watches can join; see reader.join; nil while the stream has had one watch at most
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

// add has the crowd read r soon. It does not block.
func (c *crowd) add(r *reader) {
	c.mu.Lock()
	if r.round == c.round { // it is there
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

// take returns the added readers. If there are none, the turn ends with the events that it has read. Give
// the list back after use.
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

// rest ends a turn: readers that could not read come first in the next one, those with
// more to read last. It reports whether one is due.
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

// run is the crowd's turn.
func (c *crowd) run(own *pump.Scratch) (again bool) {
	if c.s.failed {
		return false
	}
	p := parcelsOf(own)
	c.read(p, own)
	// The first is woken, and read, before the cache has woken the others that the
	// same revision concerns. They are looked for as long as they add only
	// themselves.
	all := false // is read, or the next event wakes the task again
	for n := len(p.list); !all && len(p.unread)+len(p.unfinished) == 0 && len(p.list) == n; {
		all = !c.read(p, own)
	}
	c.send(p, own)
	for _, r := range p.done {
		r.join()
	}
	again = !all && c.rest(p.unread, p.unfinished)
	p.reset()
	return again && !c.s.failed
}

// read reads all that were woken, up to a turn's worth. It reports whether there
// were any.
func (c *crowd) read(p *parcels, own *pump.Scratch) bool {
	list := c.take()
	if list == nil {
		return false
	}
	// So many revisions of each: more of them would not be sent soon, fewer would
	// be sent apart to watchers at the same position.
	depth := max(1, crowdDeliveries/2/max(1, len(list)))
	for i, r := range list {
		if p.bytes >= crowdBytes || p.deliveries >= crowdDeliveries {
			p.unread = append(p.unread, list[i:]...)
			break
		}
		c.readOne(r, depth, p, own)
	}
	c.giveBack(list)
	return true
}

// readOne reads for the watches of a reader, up to the turn's horizon.
func (c *crowd) readOne(r *reader, depth int, p *parcels, own *pump.Scratch) {
	if len(r.watches) == 0 { // it has closed its window
		return
	}
	if !r.live {
		r.watches[0].task.Wake() // the only one
		return
	}
	for n := 1; ; n++ {
		revision, events, err := r.Next(p.events)
		switch {
		case err != nil:
			c.send(p, own)
			r.fall(err)
			return
		case revision == 0:
			p.done = append(p.done, r)
			return
		}
		p.add(r, revision, events)
		r.at = revision
		if n >= depth || p.bytes >= passBytes || p.deliveries >= crowdDeliveries {
			p.horizon = min(p.horizon, revision)
		}
		if revision >= p.horizon {
			p.unfinished = append(p.unfinished, r)
			return
		}
	}
}

// send sends all parcels, by revision.
func (c *crowd) send(p *parcels, own *pump.Scratch) {
	p.sort()
	for i := range p.list {
		watches := c.sendOne(&p.list[i], p, own)
		own.Trace.Sent(p.list[i].revision, watches)
	}
	p.sent()
}

// sendOne sends a parcel, and returns how many watches that is for.
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
			// Each answers for its share, to the byte above: all of them for the
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
			r.sent.Sent(m.Size() + wire.RecipientSize(r.ids[0])) // the others' IDs are as long, or nearly
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
	from, n  int       // of parcels.events
	next     int32     // the next one of the slot, plus one; 0: none
	to       []*reader // at least one
}

// parcels are the events that a turn has read and not sent yet. Each reader's revisions are in
// them in order. A pump has them, and not each stream: one with a single watch would touch more memory for
// them than for all else.
type parcels struct {
	list   []parcel
	events []*kv.Event
	last   int                // of list: where add was last
	slots  [parcelSlots]int32 // of list: the first one of the revision's slot, plus one; 0: none
	ids    []int64            // scratch

	// Of the turn. horizon is the revision at which watches stop reading.
	bytes, deliveries  int
	horizon            kv.Revision
	unread, unfinished []*reader
	done               []*reader // that have read everything
}

// parcelSlots is how many revisions are found without a search.
const parcelSlots = 64

// keptParcels is the capacity in parcels that a pump keeps.
const keptParcels = 64

// parcelsOf returns the parcels of a pump, of which there are none between turns.
func parcelsOf(own *pump.Scratch) *parcels {
	p, _ := own.Lent.(*parcels)
	if p == nil {
		p = &parcels{horizon: math.MaxInt64}
		own.Lent = p
	}
	return p
}

func (p *parcels) eventsOf(x *parcel) []*kv.Event { return p.events[x.from : x.from+x.n] }

// recipients returns the watches of a parcel.
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

// add adds r to the receivers of the last read: events are p.events with those
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
		p.list = p.list[:n+1] // with its list of watches
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

// find returns the parcel with these events, or nil. Events that are the same
// are the same in memory: the window's.
func (p *parcels) find(revision kv.Revision, prev bool, events []*kv.Event) *parcel {
	is := func(x *parcel) bool {
		return x.revision == revision && x.prev == prev && slices.Equal(p.eventsOf(x), events)
	}
	// Readers at the same place read the same revisions, one after the other.
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
	clear(p.done)
	p.unread, p.unfinished, p.done = p.unread[:0], p.unfinished[:0], p.done[:0]
	if cap(p.list) > keptParcels || cap(p.events) > 8*keptParcels {
		p.list, p.events = nil, nil
	}
	p.bytes, p.deliveries, p.horizon = 0, 0, math.MaxInt64
}
