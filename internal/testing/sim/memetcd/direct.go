package memetcd

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// The methods here act on the data themselves, as a client of another member
// would: they work while the server is paused or stopped.

// Op is one operation of a Txn.
type Op struct{ op *pb.RequestOp }

// OpPut writes a key.
func OpPut(key, value string) Op {
	return Op{&pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

// OpDelete deletes every key of r.
func OpDelete(r kv.Range) Op {
	key, end := r.Etcd()
	return Op{&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: end}}}}
}

// Put writes a key and returns its revision.
func (s *Server) Put(key, value string) (kv.Revision, error) { return s.Txn(OpPut(key, value)) }

// Delete deletes a key and returns the revision after it, which has not grown
// when there was no such key.
func (s *Server) Delete(key string) (kv.Revision, error) { return s.Txn(OpDelete(kv.Single(key))) }

// DeleteRange deletes every key of r in one revision.
func (s *Server) DeleteRange(r kv.Range) (kv.Revision, error) { return s.Txn(OpDelete(r)) }

// Txn does all ops in one revision and returns it. It fails as etcd does, when
// a key is changed twice or there are too many ops.
func (s *Server) Txn(ops ...Op) (kv.Revision, error) {
	r := &pb.TxnRequest{}
	for _, op := range ops {
		r.Success = append(r.Success, op.op)
	}
	if err := validateTxn(r); err != nil {
		return 0, fmt.Errorf("memetcd: %w", err)
	}
	resp, err := s.txn(r)
	if err != nil {
		return 0, fmt.Errorf("memetcd: %w", err)
	}
	return kv.Revision(resp.Header.Revision), nil
}

// Compact forbids reads below rev. It ends watches that still need these revisions.
func (s *Server) Compact(rev kv.Revision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.compact(int64(rev)); err != nil {
		return fmt.Errorf("memetcd: compact at %d: %w", rev, err)
	}
	s.notifyLocked()
	return nil
}

// Revision returns the current revision; 1 before the first write.
func (s *Server) Revision() kv.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kv.Revision(s.store.rev())
}

// CompactRevision returns the oldest revision that can be read; 0 when nothing
// was ever compacted.
func (s *Server) CompactRevision() kv.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kv.Revision(max(0, s.store.compacted))
}

// History returns every revision since the beginning, compacted or not, with
// previous values. Received is the time of the commit.
func (s *Server) History() []kv.Batch { return s.HistoryAfter(1) }

// HistoryAfter is History without the revisions up to rev.
func (s *Server) HistoryAfter(rev kv.Revision) []kv.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []kv.Batch
	for i := max(0, int(rev)-1); i < len(s.store.batches); i++ {
		b := &s.store.batches[i]
		out := kv.Batch{Revision: kv.Revision(i + 2), Received: b.at}
		for _, e := range b.events {
			typ := kv.Put
			if e.Type == mvccpb.Event_DELETE {
				typ = kv.Delete
			}
			out.Events = append(out.Events, kv.Event{Type: typ, KV: keyValue(e.Kv), Prev: keyValue(e.PrevKv)})
		}
		all = append(all, out)
	}
	return all
}

// State returns the keys of r at rev, in order; 0 is the current revision. It
// knows compacted revisions too.
func (s *Server) State(r kv.Range, rev kv.Revision) []*kv.KeyValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rev == 0 {
		rev = kv.Revision(s.store.rev())
	}
	kvs := s.store.scan(rangeOf(r.Etcd()), int64(rev))
	out := make([]*kv.KeyValue, 0, len(kvs))
	for _, e := range kvs {
		out = append(out, keyValue(e))
	}
	return out
}

func keyValue(e *mvccpb.KeyValue) *kv.KeyValue {
	if e == nil {
		return nil
	}
	return kv.NewKeyValue(kv.Fields{
		Key: e.Key, Value: e.Value,
		CreateRevision: kv.Revision(e.CreateRevision), ModRevision: kv.Revision(e.ModRevision),
		Version: e.Version, Lease: e.Lease,
	})
}
