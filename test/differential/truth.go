package differential

import (
	"context"
	"fmt"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// truth has all events of an etcd, from a watch of all keys. It computes previous values from
// earlier changes and never takes them from a server.
type truth struct {
	signal
	batches []batch                     // guarded by mu; revisions strictly increase
	state   map[string]*mvccpb.KeyValue // guarded by mu
	head    int64                       // guarded by mu
	err     error                       // guarded by mu
}

// batch is all events of one revision, in etcd's order.
type batch struct {
	revision int64
	events   []*mvccpb.Event
	// before has the changed keys before the batch.
	before map[string]*mvccpb.KeyValue
}

// signal is a lock with a channel that reports the next change.
type signal struct {
	mu   sync.Mutex
	bell chan struct{} // guarded by mu; closed by the next change
}

// ringLocked wakes all waiters for a change.
func (s *signal) ringLocked() {
	if s.bell != nil {
		close(s.bell)
		s.bell = nil
	}
}

// nextLocked returns a channel that the next change closes.
func (s *signal) nextLocked() <-chan struct{} {
	if s.bell == nil {
		s.bell = make(chan struct{})
	}
	return s.bell
}

// follow watches an etcd until ctx ends, from the revision that deletes its last key.
func follow(ctx context.Context, cc grpc.ClientConnInterface, from int64) (*truth, error) {
	s, err := pb.NewWatchClient(cc).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch everything: %w", err)
	}
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from,
	}}}); err != nil {
		return nil, fmt.Errorf("watch everything: %w", err)
	}
	t := &truth{state: map[string]*mvccpb.KeyValue{}, head: from - 1}
	go func() {
		for {
			resp, err := s.Recv()
			if err == nil && resp.GetCanceled() {
				err = fmt.Errorf("cancelled: %v", resp)
			}
			if err == nil {
				err = t.take(resp.GetEvents())
			}
			if err != nil {
				t.mu.Lock()
				t.err = fmt.Errorf("watch everything: %w", err)
				t.ringLocked()
				t.mu.Unlock()
				return
			}
		}
	}()
	return t, nil
}

// take appends events in etcd's order.
func (t *truth) take(events []*mvccpb.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		rev := e.GetKv().GetModRevision()
		switch {
		case rev > t.head:
			t.batches = append(t.batches, batch{revision: rev, before: map[string]*mvccpb.KeyValue{}})
			t.head = rev
		case rev < t.head || len(t.batches) == 0:
			return fmt.Errorf("revision %d after %d", rev, t.head)
		}
		last, key := &t.batches[len(t.batches)-1], string(e.GetKv().GetKey())
		if _, twice := last.before[key]; !twice {
			last.before[key] = t.state[key]
		}
		// A transaction may put a key and delete it: the previous value is the one before the
		// transaction. A key that it creates has none.
		if e.GetType() == mvccpb.Event_DELETE || e.GetKv().GetCreateRevision() != rev {
			e.PrevKv = last.before[key]
		}
		if e.GetType() == mvccpb.Event_DELETE {
			delete(t.state, key)
		} else {
			t.state[key] = e.GetKv()
		}
		last.events = append(last.events, e)
	}
	t.ringLocked()
	return nil
}

// reach waits until the truth includes a revision, which must have events.
func (t *truth) reach(ctx context.Context, revision int64) error {
	for {
		t.mu.Lock()
		head, err, next := t.head, t.err, t.nextLocked()
		t.mu.Unlock()
		if head >= revision {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("wait for the truth up to revision %d, have %d: %w", revision, head, ctx.Err())
		}
	}
}

// since returns the batches at and after a revision. They are immutable.
func (t *truth) since(revision int64) []batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, _ := slices.BinarySearchFunc(t.batches, revision, func(b batch, r int64) int { return int(b.revision - r) })
	return slices.Clip(t.batches[at:])
}

// forget drops the batches before a revision.
func (t *truth) forget(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, _ := slices.BinarySearchFunc(t.batches, revision, func(b batch, r int64) int { return int(b.revision - r) })
	t.batches = slices.Clone(t.batches[at:])
}

// wish is the request of a watch.
type wish struct {
	key, end         string // in etcd's form: end "" is a single key, "\x00" has no end
	prev             bool
	noPuts, noDelets bool
}

func wishOf(r *pb.WatchCreateRequest) wish {
	w := wish{key: string(r.GetKey()), end: string(r.GetRangeEnd()), prev: r.GetPrevKv()}
	if w.key == "" {
		w.key = "\x00"
	}
	for _, f := range r.GetFilters() {
		w.noPuts = w.noPuts || f == pb.WatchCreateRequest_NOPUT
		w.noDelets = w.noDelets || f == pb.WatchCreateRequest_NODELETE
	}
	return w
}

// covers reports whether a key is in the watched range.
func (w wish) covers(key string) bool {
	switch w.end {
	case "":
		return key == w.key
	case "\x00":
		return key >= w.key
	}
	return key >= w.key && key < w.end
}

// of returns the events of a batch for the watch, in its form.
func (w wish) of(b batch) (events []*mvccpb.Event) {
	for _, e := range b.events {
		if !w.covers(string(e.GetKv().GetKey())) {
			continue
		}
		if deleted := e.GetType() == mvccpb.Event_DELETE; deleted && w.noDelets || !deleted && w.noPuts {
			continue
		}
		if !w.prev && e.PrevKv != nil {
			e = &mvccpb.Event{Type: e.GetType(), Kv: e.GetKv()}
		}
		events = append(events, e)
	}
	return events
}

// sameEvent compares events without their previous values.
func sameEvent(a, b *mvccpb.Event) bool {
	return a.GetType() == b.GetType() && proto.Equal(a.GetKv(), b.GetKv())
}
