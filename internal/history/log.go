package history

import (
	"context"
	"iter"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Sizes of segments and transactions.
const (
	mostChunk    = 4 << 20 // bound of one commit, or a sixteenth of the file's bound
	mostSegment  = 8 << 20 // a segment is closed at this size, or at an eighth of the log's bound
	leastSegment = 4 << 10 // but at least this, a page: every shard has two
	fillPercent  = 0.95    // of a page, since records are only added
)

// logs are the two logs of one shard.
type logs struct {
	shard           shard.ID
	salt            uint64
	origin          Origin
	rng             kv.Range
	window, deletes log
}

// log is the index of a log's segments, the oldest first, without their records.
type log struct {
	kind     kind
	segments []extent
	// The segments have everything after segments[0].after up to written.
	written kv.Revision
	open    bool // this run created the last segment, which accepts records
}

// extent describes the content of a segment.
type extent struct {
	after    kv.Revision // it has everything after this revision
	progress kv.Revision // up to here
	last     kv.Revision // the revision of its last record; equal to after: none
	bytes    int64
}

// bytes returns the size of the segments.
func (l *log) bytes() (n int64) {
	for i := range l.segments {
		n += l.segments[i].bytes
	}
	return n
}

// writer writes transactions of about chunk bytes.
type writer struct {
	s     *Store
	ctx   context.Context //nolint:containedctx // of the one Save
	chunk int
	tx    *bbolt.Tx // nil: no writes since the last commit
	bytes int       // uncommitted, in tx
}

func (s *Store) newWriter(ctx context.Context) *writer {
	return &writer{s: s, ctx: ctx, chunk: int(min(mostChunk, s.cfg.MaxBytes/16))}
}

// shard returns the existing bucket of a shard, for writing.
func (w *writer) shard(id shard.ID) (*bbolt.Bucket, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	return w.tx.Bucket(bucketName(id)), nil
}

func (w *writer) begin() (err error) {
	if w.tx == nil {
		w.tx, err = w.s.db.Begin(true)
	}
	return err
}

// wrote counts written bytes, and commits at chunk bytes.
func (w *writer) wrote(n int) error {
	w.bytes += n
	if w.bytes < w.chunk {
		return nil
	}
	n = w.bytes
	if err := w.commit(); err != nil {
		return err
	}
	return w.s.cfg.Pace(w.ctx, n)
}

// commit makes the writes durable, even against a crash of the machine. A failed commit
// also ends the transaction.
func (w *writer) commit() error {
	if w.tx == nil {
		return nil
	}
	err, n := w.tx.Commit(), int64(w.bytes)
	w.tx, w.bytes = nil, 0
	if err != nil {
		return err
	}
	w.s.note(func(st *Status) { st.Written += n })
	return nil
}

// rollback discards uncommitted writes, if there are any.
func (w *writer) rollback() {
	if w.tx != nil {
		_ = w.tx.Rollback() // its only error is that it has ended already
		w.tx = nil
	}
}

// save writes the new batches and deletes of one shard.
func (w *writer) save(o Origin, sh Shard, x *cache.Export, most int64) error {
	l := w.s.logs[sh.ID]
	if l == nil || l.origin != o || l.rng != sh.Range {
		var err error
		if l, err = w.create(o, sh); err != nil {
			return err
		}
	}
	if err := w.add(l, &l.deletes, x.DeltaFloor, x.Snapshot.Revision, most/8, deleteRecords(x)); err != nil {
		return err
	}
	return w.add(l, &l.window, x.Floor, x.Snapshot.Revision, most-most/8, batchRecords(x))
}

// create begins a shard that the file lacks, or has with another origin or range.
func (w *writer) create(o Origin, sh Shard) (*logs, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	name := bucketName(sh.ID)
	if w.tx.Bucket(name) != nil {
		if err := w.tx.DeleteBucket(name); err != nil {
			return nil, err
		}
	}
	b, err := w.tx.CreateBucket(name)
	if err != nil {
		return nil, err
	}
	l := newLogs(sh.ID)
	l.salt, l.origin, l.rng = salt(), o, sh.Range
	w.s.logs[sh.ID] = l
	return l, b.Put([]byte(headerKey), seal(place{shard: sh.ID, kind: kindHeader}, []byte(headerKey), appendHeader(nil, l)))
}

func newLogs(id shard.ID) *logs {
	return &logs{shard: id, window: log{kind: kindBatch}, deletes: log{kind: kindDeletes}}
}

// records yields a log's records after a revision, in order.
type records func(behind kv.Revision) iter.Seq2[kv.Revision, body]

// body appends a record's body to out, for a segment that begins after the revision after.
type body func(out []byte, after kv.Revision) []byte

// add writes the new records of a log, up to progress. It drops segments that are below
// floor, or exceed most bytes.
func (w *writer) add(l *logs, g *log, floor, progress kv.Revision, most int64, all records) error {
	if len(g.segments) == 0 || g.written < floor-1 { // empty, or a gap follows it
		if err := w.restart(l, g, floor-1); err != nil {
			return err
		}
	}
	changed := false
	for revision, body := range all(g.written) {
		if err := w.extend(l, g, most); err != nil {
			return err
		}
		e := g.newest()
		if err := w.put(l, g, revisionKey(revision), body(appendRevision(nil, e.last), e.after)); err != nil {
			return err
		}
		e.last, e.progress, g.written, changed = revision, revision, revision, true
	}
	if progress > g.written || len(g.segments) == 0 {
		if err := w.extend(l, g, most); err != nil {
			return err
		}
		g.newest().progress, g.written, changed = progress, progress, true
	}
	if changed {
		if err := w.putExtent(l, g); err != nil {
			return err
		}
	}
	return w.trim(l, g, floor, most)
}

// newest returns the last segment, which must exist.
func (l *log) newest() *extent { return &l.segments[len(l.segments)-1] }

// put adds a record to the newest segment.
func (w *writer) put(l *logs, g *log, key, body []byte) error {
	b, err := w.shard(l.shard)
	if err != nil {
		return err
	}
	e := g.newest()
	b = b.Bucket(segmentName(g.kind, e.after))
	b.FillPercent = fillPercent
	value := seal(place{l.salt, l.shard, g.kind, e.after}, key, body)
	if err := b.Put(key, value); err != nil {
		return err
	}
	n := len(key) + len(value)
	if string(key) != extentKey { // an extent replaces the last one
		e.bytes += int64(n)
	}
	return w.wrote(n)
}

// putExtent writes the extent of the newest segment.
func (w *writer) putExtent(l *logs, g *log) error {
	return w.put(l, g, []byte(extentKey), appendExtent(nil, g.newest()))
}

// extend begins a segment, unless the open one has room.
func (w *writer) extend(l *logs, g *log, most int64) error {
	full := min(mostSegment, max(leastSegment, most/8))
	if g.open && g.newest().bytes < full {
		return nil
	}
	if g.open {
		if err := w.putExtent(l, g); err != nil {
			return err
		}
		if err := w.trim(l, g, 0, most); err != nil {
			return err
		}
	}
	if n := len(g.segments); n > 0 && g.segments[n-1].after == g.written { // it has no useful content
		if err := w.drop(l, g, n-1); err != nil {
			return err
		}
	}
	b, err := w.shard(l.shard)
	if err != nil {
		return err
	}
	if _, err := b.CreateBucket(segmentName(g.kind, g.written)); err != nil {
		return err
	}
	g.segments = append(g.segments, extent{after: g.written, progress: g.written, last: g.written})
	g.open = true
	return nil
}

// restart empties the log, because there is a gap before the next records.
func (w *writer) restart(l *logs, g *log, after kv.Revision) error {
	for len(g.segments) > 0 {
		if err := w.drop(l, g, 0); err != nil {
			return err
		}
	}
	g.written, g.open = after, false
	return nil
}

// trim drops segments without records from floor on, and the oldest segments while the
// log has more than most bytes.
func (w *writer) trim(l *logs, g *log, floor kv.Revision, most int64) error {
	for len(g.segments) > 1 && (g.segments[1].after < floor || g.bytes() > most) {
		if err := w.drop(l, g, 0); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a segment.
func (w *writer) drop(l *logs, g *log, i int) error {
	b, err := w.shard(l.shard)
	if err != nil {
		return err
	}
	name := segmentName(g.kind, g.segments[i].after)
	g.segments = slices.Delete(g.segments, i, i+1)
	return b.DeleteBucket(name)
}

// batchRecords returns the records of the log of batches.
func batchRecords(x *cache.Export) records {
	return func(behind kv.Revision) iter.Seq2[kv.Revision, body] {
		return func(yield func(kv.Revision, body) bool) {
			for b := range x.Since(behind) {
				if !yield(b.Revision, func(out []byte, after kv.Revision) []byte { return appendBatch(out, b, after) }) {
					return
				}
			}
		}
	}
}

// deleteRecords returns the records of the log of deletes: one per revision.
func deleteRecords(x *cache.Export) records {
	return func(behind kv.Revision) iter.Seq2[kv.Revision, body] {
		return func(yield func(kv.Revision, body) bool) {
			var keys []string
			var revision kv.Revision
			one := func() bool {
				return len(keys) == 0 || yield(revision, func(out []byte, _ kv.Revision) []byte { return appendDeletes(out, keys) })
			}
			for d := range deletes(x, behind) {
				if d.Revision != revision {
					if !one() {
						return
					}
					revision, keys = d.Revision, keys[:0]
				}
				keys = append(keys, d.Key)
			}
			one()
		}
	}
}

// deletes yields the deletes after a revision, the oldest first.
func deletes(x *cache.Export, behind kv.Revision) iter.Seq[kv.Tombstone] {
	return func(yield func(kv.Tombstone) bool) {
		for d := range x.Tombstones() {
			if d.Revision > behind && !yield(d) {
				return
			}
		}
		for b := range x.Since(behind) {
			for i := range b.Events {
				e := &b.Events[i]
				if e.Type == kv.Delete && !yield(kv.Tombstone{Key: string(e.KV.Key()), Revision: b.Revision}) {
					return
				}
			}
		}
	}
}
