package chaos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// fakeStore is the complete history and the current state.
type fakeStore struct {
	mu      sync.Mutex
	now     map[string]*mvccpb.KeyValue // guarded by mu
	batches [][]*mvccpb.Event           // guarded by mu; from revision 2 on, with previous values
	changed chan struct{}               // guarded by mu; closed by the next change
}

func newFakeStore() *fakeStore {
	return &fakeStore{now: map[string]*mvccpb.KeyValue{}, changed: make(chan struct{})}
}

func (s *fakeStore) revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.batches)) + 1
}

// write puts one key and puts or deletes another one, in one revision. The bad revision has two
// puts.
func (s *fakeStore) write(keys keyspace, rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := int64(len(s.batches)) + 2
	var events []*mvccpb.Event
	change := func(key string, del bool) {
		old := s.now[key]
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev}, PrevKv: old}
		if del {
			if old == nil {
				return
			}
			e.Type = mvccpb.Event_DELETE
			delete(s.now, key)
		} else {
			e.Kv.Value, e.Kv.CreateRevision, e.Kv.Version = []byte(value(rng)), rev, 1
			if old != nil {
				e.Kv.CreateRevision, e.Kv.Version = old.GetCreateRevision(), old.GetVersion()+1
			}
			s.now[key] = e.Kv
		}
		events = append(events, e)
	}
	change(keys.key(0, rng.IntN(keys.keys)), false)
	change(keys.key(1+rng.IntN(keys.prefixes-1), rng.IntN(keys.keys)), rng.IntN(2) == 0 && rev != bad)
	s.batches = append(s.batches, events)
	close(s.changed)
	s.changed = make(chan struct{})
}

// since returns the batches from rev on, a channel that the next change closes, and the revision.
func (s *fakeStore) since(rev int64) ([][]*mvccpb.Event, <-chan struct{}, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := int64(len(s.batches)) + 1
	from := min(max(rev-2, 0), now-1)
	return s.batches[from:], s.changed, now
}

// learn adds the history to the truth.
func (s *fakeStore) learn(t *testing.T, to *truth) {
	t.Helper()
	batches, _, _ := s.since(int64(to.history().Head()) + 1)
	for _, events := range batches {
		if err := to.append(to.now.Load(), events, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
}

// fakeNode serves a store by etcd's API, as strictly as possible except for its lie.
type fakeNode struct {
	etcdserverpb.UnimplementedWatchServer
	etcdserverpb.UnimplementedKVServer
	store   *fakeStore
	lie     *lie
	server  *grpc.Server
	at      target
	streams atomic.Int64
}

// lie is a planted fault. Nil fields are correct.
type lie struct {
	// says changes responses.
	says func(*etcdserverpb.WatchResponse) []*etcdserverpb.WatchResponse
	// starts changes requests.
	starts func(*etcdserverpb.WatchCreateRequest)
	// lists changes lists.
	lists func(*etcdserverpb.RangeResponse)
}

func startFake(t *testing.T, name string, s *fakeStore, l *lie) *fakeNode {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pings := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})
	n := &fakeNode{store: s, lie: l, server: grpc.NewServer(pings), at: target{name, listener.Addr().String()}}
	etcdserverpb.RegisterWatchServer(n.server, n)
	etcdserverpb.RegisterKVServer(n.server, n)
	go func() { _ = n.server.Serve(listener) }()
	t.Cleanup(n.server.Stop)
	return n
}

func (n *fakeNode) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	rng, err := kv.RangeFromEtcd(r.GetKey(), r.GetRangeEnd())
	if err != nil {
		return nil, err
	}
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	out := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: int64(len(n.store.batches)) + 1}}
	for key, k := range n.store.now {
		if rng.Contains(key) {
			out.Kvs = append(out.Kvs, k)
		}
	}
	slices.SortFunc(out.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	if n.lie.lists != nil {
		n.lie.lists(out)
	}
	return out, nil
}

// fakeWatch is one watch at a fakeNode.
type fakeWatch struct {
	id    int64
	asked *etcdserverpb.WatchCreateRequest
	r     kv.Range
	next  int64
}

func (n *fakeNode) Watch(stream etcdserverpb.Watch_WatchServer) error {
	n.streams.Add(1)
	defer n.streams.Add(-1)
	requests, failed := make(chan *etcdserverpb.WatchRequest), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	send := func(r *etcdserverpb.WatchResponse) error {
		all := []*etcdserverpb.WatchResponse{r}
		if n.lie.says != nil {
			all = n.lie.says(r)
		}
		for _, r := range all {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		return nil
	}
	var watches []*fakeWatch
	for {
		_, changed, now := n.store.since(1)
		header := &etcdserverpb.ResponseHeader{Revision: now}
		for _, w := range watches {
			if err := n.catchUp(w, header, send); err != nil {
				return err
			}
		}
		select {
		case r := <-requests:
			if r.GetProgressRequest() != nil {
				if err := send(&etcdserverpb.WatchResponse{Header: header, WatchId: -1}); err != nil {
					return err
				}
			}
			c := r.GetCreateRequest()
			if c == nil {
				continue
			}
			if n.lie.starts != nil {
				n.lie.starts(c)
			}
			w := &fakeWatch{id: c.GetWatchId(), asked: c, next: c.GetStartRevision()}
			if w.id == 0 {
				w.id = int64(len(watches)) + 1000
			}
			if w.next == 0 {
				w.next = now + 1
			}
			var err error
			if w.r, err = kv.RangeFromEtcd(c.GetKey(), c.GetRangeEnd()); err != nil {
				return err
			}
			watches = append(watches, w)
			if err := send(&etcdserverpb.WatchResponse{Header: header, WatchId: w.id, Created: true}); err != nil {
				return err
			}
		case <-changed:
		case err := <-failed:
			return err
		}
	}
}

// catchUp sends a watch its events up to the header's revision, two revisions at a time, and then
// progress.
func (n *fakeNode) catchUp(w *fakeWatch, header *etcdserverpb.ResponseHeader, send func(*etcdserverpb.WatchResponse) error) error {
	if w.next > header.Revision {
		return nil
	}
	batches, _, _ := n.store.since(w.next)
	batches = batches[:header.Revision-max(w.next, 2)+1]
	w.next = header.Revision + 1
	response := func() *etcdserverpb.WatchResponse {
		return &etcdserverpb.WatchResponse{Header: header, WatchId: w.id}
	}
	revisions, out := 0, response()
	for i, batch := range batches {
		was := len(out.Events)
		for _, e := range batch {
			del := e.Type == mvccpb.Event_DELETE
			no := etcdserverpb.WatchCreateRequest_NOPUT
			if del {
				no = etcdserverpb.WatchCreateRequest_NODELETE
			}
			if !w.r.ContainsBytes(e.Kv.Key) || slices.Contains(w.asked.GetFilters(), no) {
				continue
			}
			e := &mvccpb.Event{Type: e.Type, Kv: e.Kv, PrevKv: e.PrevKv}
			if !w.asked.GetPrevKv() {
				e.PrevKv = nil
			}
			out.Events = append(out.Events, e)
		}
		if len(out.Events) > was {
			revisions++
		}
		if revisions == 2 || (revisions > 0 && i == len(batches)-1) {
			if err := n.inFragments(w, out, send); err != nil {
				return err
			}
			revisions, out = 0, response()
		}
	}
	if w.asked.GetProgressNotify() {
		return send(response())
	}
	return nil
}

// inFragments sends each event separately to watches with fragments.
func (n *fakeNode) inFragments(w *fakeWatch, r *etcdserverpb.WatchResponse, send func(*etcdserverpb.WatchResponse) error) error {
	if !w.asked.GetFragment() {
		return send(r)
	}
	for i, e := range r.Events {
		part := &etcdserverpb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Events: []*mvccpb.Event{e}, Fragment: i < len(r.Events)-1}
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}
