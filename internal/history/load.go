package history

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Load reads the history of shards that an earlier run of the node has saved. Shards of another
// origin and damaged parts are discarded and logged. A new shard gets the saved history of the
// shards from which it was split or merged.
//
// The time since the save does not count as age: a window is kept as long as if the
// node had not stopped.
func (s *Store) Load(o Origin, shards map[shard.ID]kv.Range) map[shard.ID]*cache.Past {
	out := make(map[shard.ID]*cache.Past)
	if others := s.others(); len(others) > 0 && s.logs == nil {
		s.cfg.Logger.Info("the history directory has files of other versions: they are left alone; remove them when no rollback is planned", "dir", s.cfg.Dir, "files", others)
	}
	if _, err := os.Stat(s.path()); errors.Is(err, fs.ErrNotExist) {
		return out
	}
	err := s.open()
	if errors.Is(err, syscall.EROFS) {
		if err = s.openFile(true); err == nil {
			defer func() { _ = s.Close() }() // Save opens it for writing, or reports the error
		}
	}
	if err == nil && s.logs == nil {
		err = s.look()
	}
	if err == nil {
		err = s.dropOthers(o)
	}
	if err == nil {
		reads := &reads{s: s}
		for id, r := range shards {
			if h := reads.known(id, r); h != nil {
				out[id] = h
			}
		}
		err = reads.damage
	}
	switch {
	case errors.Is(err, errDamaged) && s.db != nil:
		if aside := s.setAside(err); aside != nil {
			s.discard(s.path(), aside)
		}
	case err != nil:
		s.discard(s.path(), err)
	}
	s.noteBytes()
	return out
}

// look indexes the file, without the records.
func (s *Store) look() error {
	found := make(map[shard.ID]*logs)
	err := guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				if b == nil || len(name) != bucketNameBytes {
					return nil // the format
				}
				l := newLogs(shardOf(name))
				body, err := unseal(place{shard: l.shard, kind: kindHeader}, []byte(headerKey), b.Get([]byte(headerKey)))
				if err == nil {
					err = decodeHeader(body, l)
				}
				if err != nil {
					l.salt, l.origin = 0, Origin{} // no origin: dropOthers drops it
				} else {
					lookAt(b, l, &l.window)
					lookAt(b, l, &l.deletes)
				}
				found[l.shard] = l
				return nil
			})
		})
	})
	if err == nil {
		s.logs = found
	}
	return err
}

// lookAt indexes the segments of a log.
func lookAt(b *bbolt.Bucket, l *logs, g *log) {
	c := b.Cursor()
	for name, _ := c.Seek(segmentName(g.kind, 0)); name != nil; name, _ = c.Next() {
		after, ok := segmentAfter(name, g.kind)
		segment := b.Bucket(name)
		if !ok || segment == nil {
			break
		}
		body, err := unseal(place{l.salt, l.shard, g.kind, after}, []byte(extentKey), segment.Get([]byte(extentKey)))
		e := extent{after: after, progress: after, last: after}
		if err == nil {
			if known, err := decodeExtent(body, after); err == nil {
				e = known
			}
		}
		g.segments = append(g.segments, e)
		g.written = max(g.written, e.progress)
	}
}

// dropOthers removes shards of another origin, and shards with a damaged header. After
// an error, the database must not be used.
func (s *Store) dropOthers(o Origin) error {
	for id, l := range maps.Clone(s.logs) {
		if l.origin == o {
			continue
		}
		why := fmt.Errorf("%w: header", errDamaged)
		if l.origin != (Origin{}) {
			why = foreign(l.origin, o)
		}
		err := s.remove(id)
		s.discard(fmt.Sprintf("shard %d", id), errors.Join(why, err))
		if errors.Is(err, errDamaged) {
			return err
		}
	}
	return nil
}

// foreign returns an error with the difference between two origins.
func foreign(is, want Origin) error {
	switch {
	case is.Cluster != want.Cluster:
		return fmt.Errorf("it belongs to cluster %s, this is %s", is.Cluster, want.Cluster)
	case is.Etcd != want.Etcd:
		return fmt.Errorf("it belongs to etcd cluster %x, this is %x", is.Etcd, want.Etcd)
	}
	return fmt.Errorf("it belongs to lineage %d, this is %d", is.Lineage, want.Lineage)
}

// reads are the reads of one Load.
type reads struct {
	s      *Store
	damage error // a part of the file that bbolt cannot read
}

// known returns the known history of r: from the logs of the shard, or else from those
// of shards that had its keys; nil: none.
func (a *reads) known(id shard.ID, r kv.Range) *cache.Past {
	if l := a.s.logs[id]; l != nil && l.rng == r {
		return a.read(l)
	}
	var parts []*cache.Past
	for {
		from := a.newest(r.Start)
		if from == nil {
			return nil
		}
		h := a.read(from)
		if h == nil {
			return nil
		}
		part, _ := from.rng.Intersect(r)
		parts = append(parts, h.Part(part))
		if part.End == r.End {
			return cache.Unite(parts...)
		}
		r.Start = part.End
	}
}

// newest returns the logs of the last shard that had a key; nil: none had.
func (a *reads) newest(key string) (found *logs) {
	newest := kv.Revision(-1)
	for _, l := range a.s.logs {
		if len(l.window.segments) > 0 && l.rng.Contains(key) && l.window.newest().after > newest {
			found, newest = l, l.window.newest().after
		}
	}
	return found
}

// read reads the logs of a shard; nil: they are empty.
func (a *reads) read(l *logs) *cache.Past {
	var window, deletes *segment
	err := guard(func() error {
		return a.s.db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketName(l.shard))
			window, deletes = a.s.readLog(b, l, &l.window), a.s.readLog(b, l, &l.deletes)
			return nil
		})
	})
	if err != nil {
		a.s.discard(fmt.Sprintf("shard %d", l.shard), err)
		a.damage = errors.Join(a.damage, err)
	}
	if window == nil {
		return nil
	}
	h := join(window, deletes)
	forgetAbsence(h.Batches)
	return h
}

// join builds a history from the two logs of a shard. deletes may be nil.
func join(window, deletes *segment) *cache.Past {
	h := &cache.Past{
		Progress: window.progress, Floor: window.after + 1, Batches: window.batches, DeltaFloor: window.after + 1,
	}
	if deletes != nil && deletes.after < window.after && deletes.progress >= window.after {
		h.DeltaFloor = deletes.after + 1
		behind, _ := slices.BinarySearchFunc(deletes.deletes, h.Floor, func(d kv.Tombstone, r kv.Revision) int { return int(d.Revision - r) })
		h.Tombstones = deletes.deletes[:behind]
	}
	return h
}

// forgetAbsence moves the receive times of batches forward, so that the newest is now.
func forgetAbsence(batches []*kv.Batch) {
	var newest time.Time
	for _, b := range batches {
		if b.Received.After(newest) {
			newest = b.Received
		}
	}
	away := time.Since(newest)
	for _, b := range batches {
		b.Received = b.Received.Add(away)
	}
}

// readLog reads a log; nil: it is empty. It corrects the log's written from its records.
func (s *Store) readLog(b *bbolt.Bucket, l *logs, g *log) *segment {
	var segments []*segment
	for i := range g.segments {
		e := &g.segments[i]
		got, torn := readSegment(b.Bucket(segmentName(g.kind, e.after)), place{l.salt, l.shard, g.kind, e.after}, l.rng)
		if torn != nil {
			s.discard(fmt.Sprintf("shard %d, the records from %d on, of those from %d to %d", l.shard, got.progress+1, e.after+1, e.progress), torn)
		}
		segments = append(segments, got)
	}
	if len(segments) == 0 {
		return nil
	}
	joined, used := chain(segments)
	if used < len(segments) {
		s.discard(fmt.Sprintf("shard %d, records before revision %d", l.shard, joined.after+1), errors.New("records after it are missing"))
	}
	g.written = joined.progress // trim drops segments before a gap once the log exceeds its bound
	return &joined
}
