package server

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// unitPart is a chunk of a unit. What was dropped is made again when it is
// wanted: it is the same.
type unitPart struct {
	at     router.Place
	made   *madePart // nil: not yet, or not any more
	making bool
	wanted []*watch // woken when it is made
}

// madePart is a chunk as it is sent.
type madePart struct {
	encoded *wire.SyncPart
	keys    int
	last    bool
}

func (p *unitPart) wakeLocked() {
	for _, w := range p.wanted {
		w.Wake()
	}
	p.wanted = nil
}

// keptPart is a chunk that was made and not dropped yet.
type keptPart struct {
	unit  *unit
	index int
	size  int
}

// ready returns what the unit is made of, or why it cannot be, once that is
// known; gone: it is held no more.
func (u *units) ready(x *unit) (body *router.Body, state unitState, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return x.body, x.state, x.err
}

// take returns the chunk with that number, or has w woken when it is made. Gone
// means that the unit must begin anew.
func (u *units) take(x *unit, w *watch, index int) (part *madePart, gone bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if x.state == unitGone {
		return nil, true
	}
	x.taken = time.Now()
	p := &x.parts[index]
	if p.made == nil {
		p.wanted = append(p.wanted, w)
		u.makeLocked(x, index)
		return nil, false
	}
	made := p.made
	if !made.last && x.parts[index+1].made == nil {
		u.makeLocked(x, index+1) // while this one is sent
	}
	return made, false
}

// makeLocked has a chunk made, when the pace allows.
func (u *units) makeLocked(x *unit, index int) {
	p := &x.parts[index]
	if p.making || u.closed {
		return
	}
	p.making = true
	x.making++
	at, wait := p.at, u.pace.reserve(u.cfg.FragmentBytes)
	u.running.Go(func() {
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-x.ctx.Done():
			}
		}
		u.makePart(x, index, at)
	})
}

func (u *units) makePart(x *unit, index int, at router.Place) {
	body, state, _ := u.ready(x)
	if state == unitGone {
		return
	}
	chunk, next := body.Chunk(at, u.cfg.FragmentBytes)
	made := &madePart{
		encoded: wire.NewSyncPart(wire.Sync{Kind: int32(x.key.kind), Revision: body.Revision, KVs: chunk.KVs, Deleted: chunk.Deleted}),
		keys:    len(chunk.KVs) + len(chunk.Deleted), last: body.End(next),
	}
	size := made.encoded.Size()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pace.correct(size - u.cfg.FragmentBytes)
	u.stats.Made += int64(size)
	if x.state == unitGone {
		return
	}
	x.making--
	if !made.last && index+1 == len(x.parts) {
		x.parts = append(x.parts, unitPart{at: next})
	}
	p := &x.parts[index]
	p.made, p.making = made, false
	p.wakeLocked()
	u.kept = append(u.kept, keptPart{unit: x, index: index, size: size})
	for u.bytes += size; u.bytes > u.keep && len(u.kept) > 1; u.kept = u.kept[1:] {
		old := u.kept[0]
		u.bytes -= old.size
		u.kept[0] = keptPart{}
		if old.unit.state != unitGone {
			old.unit.parts[old.index].made = nil
		}
	}
}

// sent counts what a watch was sent.
func (u *units) sent(kind int32, units, keys, bytes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.stats.Sent[kind]
	s.Units += int64(units)
	s.Keys += int64(keys)
	s.Bytes += int64(bytes)
}

// pace spreads bytes over time. The zero pace has no bound.
type pace struct {
	perSecond int64

	mu   sync.Mutex
	free time.Time // guarded by mu; all that was reserved is made by then
}

// burst is how much may be made at once after a time in which nothing was.
const burst = 100 * time.Millisecond

// reserve returns how long to wait before so many bytes are made.
func (p *pace) reserve(bytes int) time.Duration {
	if p.perSecond == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if earliest := now.Add(-burst); p.free.Before(earliest) {
		p.free = earliest
	}
	wait := p.free.Sub(now)
	p.addLocked(bytes)
	return max(0, wait)
}

// correct says that it were so many bytes more than were reserved.
func (p *pace) correct(bytes int) {
	if p.perSecond == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(bytes)
}

func (p *pace) addLocked(bytes int) {
	p.free = p.free.Add(time.Duration(float64(bytes) / float64(p.perSecond) * float64(time.Second)))
}

// bodyOf is a unit of one watch.
func bodyOf(lineage uint64, revision kv.Revision, latest map[string]*kv.KeyValue) *router.Body {
	var changed []*kv.KeyValue
	var deleted []string
	for key, item := range latest {
		if item == nil {
			deleted = append(deleted, key)
		} else {
			changed = append(changed, item)
		}
	}
	return router.NewBody(lineage, revision, changed, deleted)
}
