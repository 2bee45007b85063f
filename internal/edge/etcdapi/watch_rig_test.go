package etcdapi_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// deadline is the timeout of the tests.
const deadline = 60 * time.Second

// first is the first revision with an event.
const first = int64(cachetest.Start) + 1

// scripted is an Upstream with a scripted history.
type scripted struct {
	script    *cachetest.Script
	allow     chan struct{} // permits one CheckRevision for each value; nil: no limit
	mu        sync.Mutex
	compacted kv.Revision // guarded by mu
	away      error       // guarded by mu
	histories int         // guarded by mu; calls of History
}

func (*scripted) Identity() (cluster, term uint64)    { return 7, 3 }
func (*scripted) ProxyConn() grpc.ClientConnInterface { return nil }
func (*scripted) Status(context.Context) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{}, nil
}

func (s *scripted) CheckRevision(ctx context.Context, revision kv.Revision) (kv.Revision, error) {
	if s.allow != nil {
		select {
		case <-s.allow:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.script.Now()
	switch {
	case s.away != nil:
		return 0, s.away
	case revision < s.compacted:
		return 0, &kv.CompactedError{Requested: revision, Floor: s.compacted}
	case revision > now:
		return 0, &kv.FutureError{Requested: revision, Current: now}
	}
	return now, nil
}

// History implements etcdapi.Upstream. It returns at most two revisions.
func (s *scripted) History(_ context.Context, r etcd.HistoryRequest) (etcd.LogPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.histories++
	switch {
	case s.away != nil:
		return etcd.LogPage{}, s.away
	case r.From < s.compacted:
		return etcd.LogPage{}, &kv.CompactedError{Requested: r.From, Floor: s.compacted}
	}
	out := etcd.LogPage{Batches: s.script.Batches(r.Range, r.From-1, r.Before-1), Next: r.Before}
	if len(out.Batches) > 2 {
		out.Batches = out.Batches[:2]
		out.Next = out.Batches[1].Revision + 1
	}
	return out, nil
}

func (s *scripted) compact(revision kv.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = revision
}

// watchRig is an API that serves watches of a scripted history.
type watchRig struct {
	tb     testing.TB
	h      *cachetest.Script
	etcd   *scripted
	node   *cachetest.Node
	shards *shard.Map
	router *router.Router
	api    *etcdapi.API
	addr   string
	conn   *grpc.ClientConn
}

// rigOptions change what startWatches starts.
type rigOptions struct {
	shards *shard.Map
	api    func(*etcdapi.Config)
	cache  func(*cache.Config)
	clock  func(*cachetest.Script) router.Clock // nil: the history itself
	// founding makes the node begin without the shard map; see node.Use.
	founding bool
}

func startWatches(tb testing.TB, o rigOptions) *watchRig {
	tb.Helper()
	h := cachetest.New()
	if o.shards == nil {
		o.shards = cachetest.Map(1, []string{"h", "p"}, "here")
	}
	n := cachetest.NewNode("here", h, o.cache)
	if !o.founding {
		n.Use(o.shards)
	}
	for i := range o.shards.Shards {
		if c := n.Replica(o.shards.Shards[i].ID); c != nil {
			<-c.Ready()
		}
	}
	var clock router.Clock = h
	if o.clock != nil {
		clock = o.clock(h)
	}
	r := router.New(router.Config{Shards: n, Clock: clock, Self: "here", MaxStaleness: time.Minute})
	cfg := etcdapi.Defaults()
	up := &scripted{script: h}
	cfg.Router, cfg.Etcd, cfg.Self = r, up, "here"
	if o.api != nil {
		o.api(&cfg)
	}
	api, err := etcdapi.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var pumps pump.Pumps
	var running sync.WaitGroup
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.WaitForHandlers(true), grpc.Creds(cfg.Access.Credentials(insecure.NewCredentials())))
	api.RegisterWatch(s, &pumps)
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		if err := s.Serve(l); err != nil {
			tb.Error(err)
		}
	})
	running.Go(func() { _ = r.Run(ctx) })   // ends with ctx only
	running.Go(func() { _ = api.Run(ctx) }) // likewise
	tb.Cleanup(func() {
		s.Stop()
		cancel()
		running.Wait()
		pumps.Wait()
		if err := n.Idle(); err != nil {
			tb.Error(err)
		}
		n.Stop()
	})
	rig := &watchRig{tb: tb, h: h, etcd: up, node: n, shards: o.shards, router: r, api: api, addr: l.Addr().String()}
	rig.conn = rig.dial("127.0.0.1")
	return rig
}

// dial connects from the given local address.
func (r *watchRig) dial(from string) *grpc.ClientConn {
	r.tb.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// watchStream is a client's Watch stream.
type watchStream struct {
	tb  testing.TB
	rpc etcdserverpb.Watch_WatchClient
	end context.CancelFunc
	// parts are the remaining revisions of a response with several; see next.
	parts []*etcdserverpb.WatchResponse
}

// watch opens a stream; md are keys and values of its metadata.
func (r *watchRig) watch(md ...string) *watchStream {
	r.tb.Helper()
	return r.watchBy(r.conn, md...)
}

// watchBy is watch on a given connection.
func (r *watchRig) watchBy(conn *grpc.ClientConn, md ...string) *watchStream {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), md...), deadline)
	r.tb.Cleanup(cancel)
	rpc, err := etcdserverpb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		r.tb.Fatal(err)
	}
	return &watchStream{tb: r.tb, rpc: rpc, end: cancel}
}

// requireLeader is the metadata of clientv3.WithRequireLeader.
var requireLeader = []string{rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader}

func (s *watchStream) create(r *etcdserverpb.WatchCreateRequest) {
	s.tb.Helper()
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (s *watchStream) cancel(id int64) {
	s.tb.Helper()
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}})
}

func (s *watchStream) requestProgress() {
	s.tb.Helper()
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
}

func (s *watchStream) send(m *etcdserverpb.WatchRequest) {
	s.tb.Helper()
	if err := s.rpc.Send(m); err != nil {
		s.tb.Fatalf("send: %v", err)
	}
}

// next returns the next revision as a response. The division of revisions into responses depends on
// timing, so a response with several revisions is returned as several.
func (s *watchStream) next() *etcdserverpb.WatchResponse {
	s.tb.Helper()
	if len(s.parts) == 0 {
		s.parts = s.split(s.received())
	}
	m := s.parts[0]
	s.parts = s.parts[1:]
	return m
}

// received returns the next response unchanged.
func (s *watchStream) received() *etcdserverpb.WatchResponse {
	s.tb.Helper()
	m, err := s.rpc.Recv()
	if err != nil {
		s.tb.Fatalf("receive: %v", err)
	}
	return m
}

// split returns a response for each revision of m. The header of m must have the last of them.
func (s *watchStream) split(m *etcdserverpb.WatchResponse) (out []*etcdserverpb.WatchResponse) {
	s.tb.Helper()
	revision := func(e *mvccpb.Event) int64 { return e.GetKv().GetModRevision() }
	events := m.GetEvents()
	if len(events) == 0 || revision(events[0]) == revision(events[len(events)-1]) {
		return []*etcdserverpb.WatchResponse{m}
	}
	if !slices.IsSortedFunc(events, func(a, b *mvccpb.Event) int { return cmp.Compare(revision(a), revision(b)) }) ||
		m.GetHeader().GetRevision() != revision(events[len(events)-1]) || m.GetFragment() {
		s.tb.Fatalf("got %v", m)
	}
	for len(events) > 0 {
		n := 1
		for n < len(events) && revision(events[n]) == revision(events[0]) {
			n++
		}
		h := m.GetHeader()
		out = append(out, &etcdserverpb.WatchResponse{
			Header: &etcdserverpb.ResponseHeader{
				ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(), RaftTerm: h.GetRaftTerm(), Revision: revision(events[0]),
			},
			WatchId: m.GetWatchId(), Events: events[:n],
		})
		events = events[n:]
	}
	return out
}

// fails expects the stream to end with an error of etcd.
func (s *watchStream) fails(want error) {
	s.tb.Helper()
	for {
		m, err := s.rpc.Recv()
		if err == nil {
			s.tb.Logf("before the end: %v", m)
			continue
		}
		if !errors.Is(rpctypes.Error(err), rpctypes.Error(want)) {
			s.tb.Errorf("the stream ended with %v, want %v", err, want)
		}
		return
	}
}

// created expects the next response to create a watch with the ID.
func (s *watchStream) created(id int64) *etcdserverpb.WatchResponse {
	s.tb.Helper()
	m := s.next()
	if !m.GetCreated() || m.GetCanceled() || m.GetWatchId() != id {
		s.tb.Fatalf("got %v, want watch %d to be created", m, id)
	}
	return m
}

// refused expects the next response to refuse a watch with the reason.
func (s *watchStream) refused(reason string) {
	s.tb.Helper()
	m := s.next()
	if !m.GetCreated() || !m.GetCanceled() || m.GetWatchId() != -1 || m.GetCancelReason() != reason {
		s.tb.Fatalf("got %v, want a watch to be refused: %s", m, reason)
	}
}

// canceled expects the next response to cancel the watch with the ID.
func (s *watchStream) canceled(id int64) *etcdserverpb.WatchResponse {
	s.tb.Helper()
	m := s.next()
	if m.GetCreated() || !m.GetCanceled() || m.GetWatchId() != id || len(m.GetEvents()) > 0 {
		s.tb.Fatalf("got %v, want watch %d to be cancelled", m, id)
	}
	return m
}

// whole returns a request for all keys.
func whole() *etcdserverpb.WatchCreateRequest {
	return &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}}
}

// since returns a request for all keys from a revision on.
func since(revision int64) *etcdserverpb.WatchCreateRequest {
	r := whole()
	r.StartRevision = revision
	return r
}
