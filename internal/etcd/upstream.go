package etcd

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// upstream is one watch at etcd on the shared stream. It begins with the place that it was
// created for. Places with adjacent ranges get one watch of the whole run: its events prove
// the progress of all of them, without a request.
//
// The watch of a run forms while its places get their updates from other watches. It is created like
// any other: from the present, and it brings everything after its announcement. The places move at one
// answer of etcd that brings all watches of the stream to exactly its revision R. Up to R the places have
// everything from the old watches, which bring nothing more; everything after R comes from the new
// watch (watchable_store.go: progressIfSync excludes notify). So nothing is missing or comes twice,
// and a revision is never split between two watches. The run ignores the keys of places that leave it,
// until a watch without them has formed.
type upstream struct {
	id     int64
	r      kv.Range
	places []*place   // at its creation, in the order of their ranges; their fields on and next show which are left
	ranges []kv.Range // of places

	// Guarded by mux.mu.
	used    int       // places that are left
	a       *assembly // begins after the announcement; nil before
	forming bool
	lively  int       // bytes since etcd last reported progress for all
	last    time.Time // when the last event came
}

// runPause is the shortest time between two formations of runs.
const runPause = time.Second

// createLocked has etcd create a watch of r from the present.
func (m *mux) createLocked(r kv.Range, places ...*place) *upstream {
	m.last++
	w := &upstream{id: m.last, r: r, places: places, used: len(places)}
	for _, p := range places {
		w.ranges = append(w.ranges, p.r)
	}
	m.watches[w.id], m.creating = w, append(m.creating, w)
	m.c.count.watchesOpen.Add(1)
	key, end := r.Etcd()
	m.out.put(createRequest(&etcdserverpb.WatchCreateRequest{Key: key, RangeEnd: end, WatchId: w.id}))
	return w
}

// dropLocked removes a place from a watch, which ends with its last place. A watch that
// etcd has ended must be cancelled, too, or there is no progress for the others
// (watchable_store.go, progressIfSync).
func (m *mux) dropLocked(p *place, w *upstream) {
	if p.next == w {
		p.next = nil
	} else {
		p.on = nil
	}
	m.stale = true
	if w.used--; w.used > 0 {
		return
	}
	delete(m.watches, w.id)
	m.c.count.watchesOpen.Add(-1)
	if w.a != nil {
		m.out.put(cancelRequest(w.id))
	}
}

// splitLocked queues the events of a revision in the places of their keys that w serves. While
// w forms, its places get them from other watches.
func (m *mux) splitLocked(w *upstream, b *kv.Batch) {
	if len(w.places) == 1 && w.places[0].r == w.r {
		if p := w.places[0]; p.on == w {
			m.queueLocked(p, kv.Update{Kind: kv.UpdateBatch, Revision: b.Revision, Batch: *b})
		}
		return
	}
	for i, part := range b.Split(w.ranges) {
		if p := w.places[i]; p.on == w {
			m.queueLocked(p, kv.Update{Kind: kv.UpdateBatch, Revision: b.Revision, Batch: part})
		}
	}
}

// shapeLocked makes places with adjacent ranges share watches. It is called after an answer
// of etcd for all watches: then forming watches take over, or new ones begin to form.
func (m *mux) shapeLocked(revision kv.Revision, now time.Time) {
	for _, w := range m.watches {
		if w.a == nil || w.a.done != revision {
			return // wait for an answer with the same revision for all
		}
	}
	formed := false
	for _, w := range m.watches {
		if !w.forming {
			continue
		}
		formed, w.forming = true, false
		for _, p := range w.places {
			if p.next == w {
				m.dropLocked(p, p.on)
				p.on, p.next = w, nil
			}
		}
	}
	if formed || m.apart || !m.stale || now.Sub(m.shaped) < m.c.muxes.pause {
		return
	}
	m.stale, m.shaped = false, now
	var all []*place
	var ranges []kv.Range
	for _, w := range m.watches {
		for i, p := range w.places {
			if p.on == w {
				all, ranges = append(all, p), append(ranges, w.ranges[i])
			}
		}
	}
	for run := range kv.Runs(ranges) {
		places := make([]*place, len(run))
		for i, at := range run {
			places[i] = all[at]
		}
		r := kv.Range{Start: places[0].r.Start, End: places[len(places)-1].r.End}
		if on := places[0].on; on.r == r && on.used == len(places) {
			continue
		}
		w := m.createLocked(r, places...)
		w.forming = true
		for _, p := range places {
			p.next = w
		}
	}
}
