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
	made   *Part // nil: not yet, or not any more
	making bool
	wanted []Watch // woken when it is made
}

// Part is a chunk as it is sent.
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

// keptPart is a chunk that was made and not dropped yet.
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

// Take returns the chunk with that number, or has w woken when it is made. Gone
// means that the batch must begin again.
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
		q.makeLocked(x, index+1) // while this one is sent
	}
	return made, false
}

// makeLocked has a chunk made, when the pace allows.
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
