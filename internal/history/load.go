package history

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Load reads what an earlier run of the node has saved for shards. What is of
// another origin or not whole is discarded, with a message. Where a shard is
// new, what was saved of those that it was made of is taken. Call it once, before
// Save.
//
// The time that has passed since it was saved does not count as age: a window
// is kept as long as it would have been kept, had the node gone on.
func (s *Store) Load(o Origin, shards map[shard.ID]kv.Range) map[shard.ID]*cache.History {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.discard("all of it", err)
	}
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			s.look(shard.ID(id), o)
		}
	}
	out := make(map[shard.ID]*cache.History)
	for id, r := range shards {
		if h := s.known(id, r); h != nil {
			out[id] = h
		}
	}
	s.note(func(st *Status) { st.Bytes = s.bytes() })
	return out
}

// discard tells what is not used.
func (s *Store) discard(what string, why error) {
	s.note(func(st *Status) { st.Discarded++ })
	s.cfg.Logger.Warn("history on disk is not used", "dir", s.cfg.Dir, "what", what, "reason", why)
}

// look finds the files of a shard and drops those that are of no use: those of
// another origin, and those whose header is not whole.
func (s *Store) look(id shard.ID, o Origin) {
	l := s.newLogs(id, o, kv.Range{})
	first := true
	for _, one := range []*log{&l.window, &l.deletes} {
		numbers, err := find(one.dir, one.name)
		if err != nil {
			s.discard(one.dir, err)
			return
		}
		for _, number := range numbers {
			h, size, err := readHeader(one.path(number))
			switch {
			case errors.Is(err, errCorrupt):
				s.discard(one.path(number), errors.Join(err, os.Remove(one.path(number))))
				continue
			case err != nil:
				s.discard(one.path(number), err)
				continue
			case h.origin != o:
				s.discard(one.dir, errors.Join(foreign(h.origin, o), os.RemoveAll(one.dir)))
				return
			case first:
				l.rng, first = h.rng, false
			case h.rng != l.rng || h.shard != id:
				s.discard(one.path(number), errors.Join(fmt.Errorf("it is of shard %d, %v", h.shard, h.rng), os.Remove(one.path(number))))
				continue
			}
			one.files = append(one.files, file{number: number, after: h.after, size: size})
		}
	}
	if !first {
		s.logs[id] = l
	}
}

// foreign says in what two origins differ.
func foreign(is, want Origin) error {
	switch {
	case is.Cluster != want.Cluster:
		return fmt.Errorf("it is of cluster %s, and this is %s", is.Cluster, want.Cluster)
	case is.Etcd != want.Etcd:
		return fmt.Errorf("it is of etcd cluster %x, and this is %x", is.Etcd, want.Etcd)
	}
	return fmt.Errorf("it is of lineage %d, and this is %d", is.Lineage, want.Lineage)
}

// known returns what there is to know of r: from the logs of the shard, or else
// of others that had its keys; nil: nothing.
func (s *Store) known(id shard.ID, r kv.Range) *cache.History {
	if l := s.logs[id]; l != nil && l.rng == r {
		return s.read(id)
	}
	var parts []*cache.History
	for {
		from, ok := s.newest(r.Start)
		if !ok {
			return nil
		}
		h := s.read(from)
		if h == nil {
			return nil
		}
		part, _ := s.logs[from].rng.Intersect(r)
		parts = append(parts, h.Part(part))
		if part.End == r.End {
			return cache.Unite(parts...)
		}
		r.Start = part.End
	}
}

// newest returns the shard that had a key last, of those that have logs.
func (s *Store) newest(key string) (id shard.ID, ok bool) {
	newest := kv.Revision(-1)
	for other, l := range s.logs {
		if n := len(l.window.files); n > 0 && l.rng.Contains(key) && l.window.files[n-1].after > newest {
			id, ok, newest = other, true, l.window.files[n-1].after
		}
	}
	return id, ok
}

// read reads what the logs of a shard have; nil: nothing.
func (s *Store) read(id shard.ID) *cache.History {
	l := s.logs[id]
	window, deletes := s.readLog(&l.window), s.readLog(&l.deletes)
	if window == nil {
		return nil
	}
	h := &cache.History{
		Progress: window.progress, Floor: window.after + 1, Batches: window.batches, DeltaFloor: window.after + 1,
	}
	if deletes != nil && deletes.after < window.after && deletes.progress >= window.after {
		h.DeltaFloor = deletes.after + 1
		behind, _ := slices.BinarySearchFunc(deletes.deletes, h.Floor, func(d kv.Tombstone, r kv.Revision) int { return int(d.Revision - r) })
		h.Tombstones = deletes.deletes[:behind]
	}
	var newest time.Time
	for _, b := range h.Batches {
		if b.Received.After(newest) {
			newest = b.Received
		}
	}
	away := time.Since(newest)
	for _, b := range h.Batches {
		b.Received = b.Received.Add(away)
	}
	return h
}

// readLog reads what a log has, and drops the files that have a gap behind
// them; nil: nothing.
func (s *Store) readLog(l *log) *segment {
	var segments []*segment
	for i := 0; i < len(l.files); i++ {
		path := l.path(l.files[i].number)
		content, err := os.ReadFile(path) //nolint:gosec // our own directory
		var got *segment
		var torn error
		if err == nil {
			got, torn, err = decode(content)
		}
		if err != nil {
			s.discard(path, err)
			l.files = slices.Delete(l.files, i, i+1)
			i--
			continue
		}
		if torn != nil {
			s.note(func(st *Status) { st.Discarded++ })
			s.cfg.Logger.Info("the end of a file of history is not used", "file", path, "bytes", len(content)-got.valid, "reason", torn)
		}
		segments = append(segments, got)
	}
	if len(segments) == 0 {
		return nil
	}
	joined, used := chain(segments)
	for range len(segments) - used {
		s.discard(l.path(l.files[0].number), errors.Join(errors.New("what comes behind it is missing"), l.dropOldest()))
	}
	l.written, l.done = joined.progress, joined.progress
	return &joined
}
