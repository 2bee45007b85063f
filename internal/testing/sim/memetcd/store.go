package memetcd

import (
	"bytes"
	"slices"
	"sort"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// store is etcd's mvcc store as a value: every version of every key since the
// beginning. Compaction forbids reads; it frees nothing, so that the history
// stays whole for a checker. It has no lock.
type store struct {
	versions  map[string][]*mvccpb.KeyValue // of each key, the oldest first; a tombstone has version 0
	keys      []string                      // every key that ever existed, in order
	batches   []batch                       // batches[i] is revision i+2
	compacted int64                         // -1: never
}

// batch is one revision.
type batch struct {
	at     time.Time // when it was committed
	events []*mvccpb.Event
}

func newStore() *store {
	return &store{versions: map[string][]*mvccpb.KeyValue{}, compacted: -1}
}

// rev returns the current revision: 1 before the first write.
func (s *store) rev() int64 { return 1 + int64(len(s.batches)) }

// batch returns the events of a revision in [2, rev()].
func (s *store) batch(rev int64) *batch { return &s.batches[rev-2] }

// get returns the value of key at rev, nil when it did not exist.
func (s *store) get(key string, rev int64) *mvccpb.KeyValue {
	for _, kv := range slices.Backward(s.versions[key]) {
		if kv.ModRevision <= rev {
			if kv.Version == 0 {
				return nil
			}
			return kv
		}
	}
	return nil
}

// scan returns the live keys of a range at rev, in order.
func (s *store) scan(r keyRange, rev int64) []*mvccpb.KeyValue {
	var kvs []*mvccpb.KeyValue
	for _, k := range s.keys[sort.SearchStrings(s.keys, r.start):] {
		if !r.contains(k) {
			break
		}
		if kv := s.get(k, rev); kv != nil {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

func (s *store) add(kv *mvccpb.KeyValue) {
	k := string(kv.Key)
	if i, found := slices.BinarySearch(s.keys, k); !found {
		s.keys = slices.Insert(s.keys, i, k)
	}
	s.versions[k] = append(s.versions[k], kv)
}

// readable fails if rev cannot be read; 0 is the current revision.
func (s *store) readable(rev, current int64) error {
	switch {
	case rev > current:
		return rpctypes.ErrGRPCFutureRev
	case rev > 0 && rev < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

func (s *store) compact(rev int64) error {
	switch {
	case rev <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	case rev > s.rev():
		return rpctypes.ErrGRPCFutureRev
	}
	s.compacted = rev
	return nil
}

// keyRange is [start, end), one key, or all from start on.
type keyRange struct {
	start, end string
	single     bool
	open       bool
}

// rangeOf reads etcd's form: no end is one key, "\x00" is no bound.
func rangeOf(key, end []byte) keyRange {
	r := keyRange{start: string(key), end: string(end)}
	r.single = len(end) == 0
	r.open = len(end) == 1 && end[0] == 0
	return r
}

func (r keyRange) contains(k string) bool {
	switch {
	case r.single:
		return k == r.start
	case r.open:
		return k >= r.start
	}
	return k >= r.start && k < r.end
}

// write is one transaction in progress: all its changes have revision begin+1.
type write struct {
	*store
	begin   int64
	changes []*mvccpb.Event
	at      time.Time
}

func (s *store) write(now time.Time) *write { return &write{store: s, begin: s.rev(), at: now} }

// seen is the revision at which the transaction reads: its own changes count.
func (w *write) seen() int64 {
	if len(w.changes) > 0 {
		return w.begin + 1
	}
	return w.begin
}

// commit makes the changes a revision. A transaction without changes makes no
// revision.
func (w *write) commit() {
	if len(w.changes) > 0 {
		w.batches = append(w.batches, batch{at: w.at, events: w.changes})
	}
}

func (w *write) change(typ mvccpb.Event_EventType, kv, prev *mvccpb.KeyValue) {
	w.add(kv)
	w.changes = append(w.changes, &mvccpb.Event{Type: typ, Kv: kv, PrevKv: prev})
}

func (w *write) put(r *pb.PutRequest) *pb.PutResponse {
	prev := w.get(string(r.Key), w.seen())
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease,
		CreateRevision: w.begin + 1, ModRevision: w.begin + 1, Version: 1,
	}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		if r.IgnoreValue {
			kv.Value = prev.Value
		}
		if r.IgnoreLease {
			kv.Lease = prev.Lease
		}
	}
	w.change(mvccpb.Event_PUT, kv, prev)
	resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: w.begin + 1}}
	if r.PrevKv {
		resp.PrevKv = prev
	}
	return resp
}

func (w *write) deleteRange(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	prevs := w.scan(rangeOf(r.Key, r.RangeEnd), w.seen())
	for _, prev := range prevs {
		w.change(mvccpb.Event_DELETE, &mvccpb.KeyValue{Key: prev.Key, ModRevision: w.begin + 1}, prev)
	}
	resp := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: w.seen()}, Deleted: int64(len(prevs))}
	if r.PrevKv {
		resp.PrevKvs = prevs
	}
	return resp
}

// read answers a range as of current, the revision the reader sees.
func (s *store) read(r *pb.RangeRequest, current int64) (*pb.RangeResponse, error) {
	if err := s.readable(r.Revision, current); err != nil {
		return nil, err
	}
	at := r.Revision
	if at <= 0 {
		at = current
	}
	kvs := s.scan(rangeOf(r.Key, r.RangeEnd), at)
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: current}, Count: int64(len(kvs))}
	if r.CountOnly {
		return resp, nil
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return r.MaxModRevision != 0 && kv.ModRevision > r.MaxModRevision || kv.ModRevision < r.MinModRevision ||
			r.MaxCreateRevision != 0 && kv.CreateRevision > r.MaxCreateRevision || kv.CreateRevision < r.MinCreateRevision
	})
	order(kvs, r)
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, resp.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			// etcd answers from its index, which has no leases, unless it must
			// sort by value.
			short := &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version}
			if r.SortTarget == pb.RangeRequest_VALUE {
				short.Lease = kv.Lease
			}
			kv = short
		}
		resp.Kvs = append(resp.Kvs, kv)
	}
	return resp, nil
}

func order(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	if r.SortTarget == pb.RangeRequest_KEY && r.SortOrder != pb.RangeRequest_DESCEND {
		return
	}
	less := func(a, b *mvccpb.KeyValue) int {
		switch r.SortTarget {
		case pb.RangeRequest_VERSION:
			return int(a.Version - b.Version)
		case pb.RangeRequest_CREATE:
			return int(a.CreateRevision - b.CreateRevision)
		case pb.RangeRequest_MOD:
			return int(a.ModRevision - b.ModRevision)
		case pb.RangeRequest_VALUE:
			return bytes.Compare(a.Value, b.Value)
		default:
			return bytes.Compare(a.Key, b.Key)
		}
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		if r.SortOrder == pb.RangeRequest_DESCEND {
			a, b = b, a
		}
		return less(a, b)
	})
}
