package syncbatch

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// part is a chunk of a batch. A dropped part is built again when a watch needs it, with the same
// content.
type part struct {
	at     router.Place
	made   *Part // nil: not built yet, or dropped
	making bool
	wanted []Watch // woken when it is built
}

// Part is a chunk in the form for messages.
type Part struct {
	Encoded *wire.SyncPart
	Keys    int
	Last    bool
}

func (p *part) wakeLocked() {
	for _, w := range p.wanted {
		w.Wake()
	}
	p.wanted = nil
}

// keptPart is a chunk that is built and not dropped yet.
type keptPart struct {
	batch *Batch
	index int
	size  int
}

// Result returns the content of the batch or the error of its load, once the load is complete;
// gone: the batch has been dropped.
func (q *Queue) Result(x *Batch) (body *router.Body, state State, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return x.body, x.state, x.err
}

// Take returns the chunk with this index. If the chunk is not built yet, w is woken when
// it is. gone: the batch is dropped, and w must join one again.
func (q *Queue) Take(x *Batch, w Watch, index int) (part *Part, gone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if x.state == Gone {
		return nil, true
	}
	x.taken = time.Now()
	p := &x.parts[index]
	if p.made == nil {
		p.wanted = append(p.wanted, w)
		q.makeLocked(x, index)
		return nil, false
	}
	made := p.made
	if !made.Last && x.parts[index+1].made == nil {
		q.makeLocked(x, index+1) // built while this chunk is sent
	}
	return made, false
}

// makeLocked starts to build a chunk, as soon as the pace allows.
func (q *Queue) makeLocked(x *Batch, index int) {
	p := &x.parts[index]
	if p.making || q.closed {
		return
	}
	p.making = true
	x.making++
	at, pause := p.at, q.pace.reserve(q.cfg.FragmentBytes)
	q.running.Go(func() {
		if pause > 0 {
			wait.Sleep(x.ctx, pause)
		}
		q.makePart(x, index, at)
	})
}

func (q *Queue) makePart(x *Batch, index int, at router.Place) {
	body, state, _ := q.Result(x)
	if state == Gone {
		return
	}
	chunk, next := body.Chunk(at, q.cfg.FragmentBytes)
	made := &Part{
		Encoded: wire.NewSyncPart(wire.Sync{Kind: int32(x.key.Kind), Revision: body.Revision, KVs: chunk.KVs, Deleted: chunk.Deleted}),
		Keys:    len(chunk.KVs) + len(chunk.Deleted), Last: body.End(next),
	}
	size := made.Encoded.Size()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.correct(size - q.cfg.FragmentBytes)
	q.stats.Made += int64(size)
	if x.state == Gone {
		return
	}
	x.making--
	if !made.Last && index+1 == len(x.parts) {
		x.parts = append(x.parts, part{at: next})
	}
	p := &x.parts[index]
	p.made, p.making = made, false
	p.wakeLocked()
	q.kept = append(q.kept, keptPart{batch: x, index: index, size: size})
	for q.bytes += size; q.bytes > q.keep && len(q.kept) > 1; q.kept = q.kept[1:] {
		old := q.kept[0]
		q.bytes -= old.size
		q.kept[0] = keptPart{}
		if old.batch.state != Gone {
			old.batch.parts[old.index].made = nil
		}
	}
}

// Sent counts the batches, keys and bytes sent to a watch.
func (q *Queue) Sent(kind int32, batches, keys, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.stats.Sent[kind]
	s.Batches += int64(batches)
	s.Keys += int64(keys)
	s.Bytes += int64(bytes)
}

// pace spreads bytes over time. The zero pace has no bound.
type pace struct {
	perSecond int64

	mu   sync.Mutex
	free time.Time // guarded by mu; the time at which all reserved bytes are used
}

// burst bounds the bytes that may be built at once after an idle time, as a duration.
const burst = 100 * time.Millisecond

// reserve returns the time to wait before so many bytes may be built.
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

// correct adds so many bytes to the last reservation; they may be negative.
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
