package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/freeport"
)

// script is the nodes of a case, from its script's point of view.
type script struct {
	ctx     context.Context //nolint:containedctx // of the case
	nodes   []*node
	creates chan *watch
	reads   chan *read
	refuse  atomic.Pointer[error] // the error for the next stream; nil: none
	refused chan struct{}         // a value for each refused stream
	handed  chan struct{}         // a value for each update that the client has handed out
	// view returns the state of a member from a node's point of view; nil: all are alive.
	view     func(from, member *node) pb.MemberState
	followed chan *node   // a value for each shard map sent by a node
	deaf     net.Listener // nil, or the first endpoint: it accepts connections and reads nothing
}

const (
	nodes = 3
	// maxUpdates bounds the updates of a case.
	maxUpdates = 16
	// maxFollowed bounds the shard maps of a case that its script counts.
	maxFollowed = 16
)

func newScript(ctx context.Context, c Case) (*script, error) {
	addresses, err := freeport.Take(nodes + 1)
	if err != nil {
		return nil, err
	}
	s := &script{
		ctx: ctx, creates: make(chan *watch), reads: make(chan *read), refused: make(chan struct{}, 1), handed: make(chan struct{}, maxUpdates),
		view: c.view, followed: make(chan *node, maxFollowed),
	}
	if c.deaf {
		if s.deaf, err = new(net.ListenConfig).Listen(ctx, "tcp", addresses[nodes]); err != nil {
			return nil, err
		}
	}
	for i, address := range addresses[:nodes] {
		n := &node{s: s, name: fmt.Sprintf("n%d", i+1), address: address}
		n.grpc = grpc.NewServer(grpc.UnaryInterceptor(n.unary))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			s.close()
			return nil, err
		}
		s.nodes = append(s.nodes, n)
		pb.RegisterCacheServiceServer(n.grpc, n)
		pb.RegisterClusterServiceServer(n.grpc, &members{node: n})
		healthgrpc.RegisterHealthServer(n.grpc, health.NewServer())
		n.serving.Go(func() { _ = n.grpc.Serve(listener) })
	}
	return s, nil
}

func (s *script) close() {
	for _, n := range s.nodes {
		n.kill()
	}
	if s.deaf != nil {
		_ = s.deaf.Close()
	}
}

func (s *script) addresses() (out []string) {
	if s.deaf != nil {
		out = append(out, s.deaf.Addr().String())
	}
	for _, n := range s.nodes {
		out = append(out, n.address)
	}
	return out
}

// other returns a node that is not in not.
func (s *script) other(not ...*node) *node {
	for _, n := range s.nodes {
		if !slices.Contains(not, n) {
			return n
		}
	}
	return nil
}

// create waits until the client creates a watch, and checks the fields that all watches must have.
func (s *script) create() (*watch, error) {
	select {
	case w := <-s.creates:
		r := w.req
		if string(r.GetKey()) != rangeStart || string(r.GetRangeEnd()) != rangeEnd {
			return w, fmt.Errorf("asks for %q to %q, want %q to %q", r.GetKey(), r.GetRangeEnd(), rangeStart, rangeEnd)
		}
		return w, nil
	case <-s.ctx.Done():
		return nil, errors.New("the client did not create a watch")
	}
}

// resume is create for a watch that resumes after a position.
func (s *script) resume(lineage uint64, revision int64) (*watch, error) {
	w, err := s.create()
	if err != nil {
		return nil, err
	}
	return w, w.resumes(lineage, revision)
}

// handedOut waits until the client has handed out the given number of further updates.
func (s *script) handedOut(updates int) error {
	for range updates {
		select {
		case <-s.handed:
		case <-s.ctx.Done():
			return errors.New("the client did not hand out the updates")
		}
	}
	return nil
}

// follow waits until a node that is not in not has sent the shard map, and returns it.
func (s *script) follow(not ...*node) (*node, error) {
	for {
		select {
		case n := <-s.followed:
			if !slices.Contains(not, n) {
				return n, nil
			}
		case <-s.ctx.Done():
			return nil, errors.New("the client did not follow the shard map")
		}
	}
}

// node is a scripted node.
type node struct {
	pb.UnimplementedCacheServiceServer
	s             *script
	name, address string
	grpc          *grpc.Server
	serving       sync.WaitGroup
	mute          atomic.Bool // sends no more signs of life, no shard map, and answers no calls
	rebuilt       atomic.Bool // belongs to another cluster
}

// cluster returns the ID of the node's cluster.
func (n *node) cluster() string {
	if n.rebuilt.Load() {
		return rebuilt
	}
	return cluster
}

// unary blocks unary calls at a mute node.
func (n *node) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if n.mute.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return handle(ctx, r)
}

// kill closes the connections and the port. The last sent bytes may be lost.
func (n *node) kill() {
	n.grpc.Stop()
	n.serving.Wait()
}

// watch is a watch that the client has created.
type watch struct {
	*stream

	req *pb.CreateWatch
}

// stream is a Watch stream of the client.
type stream struct {
	node *node
	rpc  pb.CacheService_WatchServer
	end  chan error // a value ends the RPC

	mu       sync.Mutex // guards sending and all below
	watchIDs bool
}

// Watch implements pb.CacheServiceServer.
func (n *node) Watch(rpc pb.CacheService_WatchServer) error {
	if err := n.s.refuse.Swap(nil); err != nil {
		n.s.refused <- struct{}{}
		return *err
	}
	st := &stream{node: n, rpc: rpc, end: make(chan error, 1)}
	intervals := make(chan time.Duration, 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := rpc.Recv()
			if err != nil {
				return
			}
			st.take(m, intervals)
		}
	}()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case d := <-intervals:
			tick.Reset(d)
		case <-tick.C:
			if !n.mute.Load() {
				_ = st.send(&pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{}}})
			}
		case err := <-st.end:
			return err
		case <-ended:
			return nil
		case <-rpc.Context().Done():
			return nil
		}
	}
}

func (st *stream) take(m *pb.WatchRequest, intervals chan<- time.Duration) {
	switch r := m.GetRequest().(type) {
	case *pb.WatchRequest_Create:
		select {
		case st.node.s.creates <- &watch{stream: st, req: r.Create}:
		case <-st.rpc.Context().Done():
		}
	case *pb.WatchRequest_Options:
		st.mu.Lock()
		st.watchIDs = r.Options.GetAllowWatchIds()
		st.mu.Unlock()
		if d := r.Options.GetProgressInterval(); d != nil && d.AsDuration() > 0 {
			intervals <- d.AsDuration()
		}
	case *pb.WatchRequest_Progress, *pb.WatchRequest_Cancel:
	}
}

// cut ends the stream like a node that dies after all its messages have arrived.
func (st *stream) cut() { st.end <- fault(codes.Unavailable, "", 0, nil) }

func (st *stream) send(m *pb.WatchResponse) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.rpc.Send(m)
}

// resumes checks that the watch resumes after a position, as a revision or as a token.
func (w *watch) resumes(lineage uint64, revision int64) error {
	r := w.req
	if bytes.Equal(r.GetResumeToken(), token(lineage, revision)) {
		return nil
	}
	if r.GetStartRevision() != revision+1 || r.GetClusterId() != cluster || r.GetLineage() != lineage {
		return fmt.Errorf("resumes at revision %d of lineage %d in cluster %q (token %q, state %v), want revision %d of lineage %d in cluster %q",
			r.GetStartRevision(), r.GetLineage(), r.GetClusterId(), r.GetResumeToken(), r.GetStateFirst(), revision+1, lineage, cluster)
	}
	return nil
}

// token returns the resume token of a position: a client must not parse it.
func token(lineage uint64, revision int64) []byte {
	return fmt.Appendf(nil, "opaque\x00%d/%d", lineage, revision)
}

// created confirms the watch. There is no token before the initial state, as of a real node.
func (w *watch) created(lineage uint64, revision int64) error {
	created := &pb.Created{Revision: revision, Lineage: lineage, ClusterId: w.node.cluster(), Node: w.node.name}
	if !w.req.GetStateFirst() {
		created.ResumeToken = token(lineage, revision)
	}
	return w.send(&pb.WatchResponse{WatchId: w.req.GetWatchId(), Detail: &pb.WatchResponse_Created{Created: created}})
}

// put sends an event for a key, /c/KEY, with the revision as value.
func (w *watch) put(revision int64, key string) error {
	return w.events(&pb.WatchResponse{Revision: revision, Events: []*pb.Event{putEvent(revision, rangeStart+key)}})
}

// events sends events to the watch.
func (w *watch) events(m *pb.WatchResponse) error {
	m.WatchId = w.req.GetWatchId()
	return w.send(m)
}

func (w *watch) sync(part *pb.Sync) error {
	return w.send(&pb.WatchResponse{WatchId: w.req.GetWatchId(), Detail: &pb.WatchResponse_Sync{Sync: part}})
}

func (w *watch) progress(revision int64) error {
	return w.send(&pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{Revision: revision}}})
}

func (w *watch) ended(e *pb.Ended) error {
	return w.send(&pb.WatchResponse{WatchId: w.req.GetWatchId(), Detail: &pb.WatchResponse_Ended{Ended: e}})
}

func putEvent(revision int64, key string) *pb.Event {
	return &pb.Event{Kv: keyValue(revision, key)}
}

func keyValue(revision int64, key string) *pb.KeyValue {
	return &pb.KeyValue{Key: []byte(key), Value: fmt.Append(nil, revision), ModRevision: revision, CreateRevision: revision, Version: 1}
}

// read is a List or Get of the client, which waits for its answer.
type read struct {
	node   *node
	list   *pb.ListRequest
	get    *pb.GetRequest
	bearer string // the header authorization
	chunks []*pb.ListResponse
	answer *pb.GetResponse
	err    error
	done   chan struct{}
}

func (s *script) read() (*read, error) {
	select {
	case r := <-s.reads:
		return r, nil
	case <-s.ctx.Done():
		return nil, errors.New("the client did not read")
	}
}

// reply sends the prepared answer.
func (r *read) reply() { close(r.done) }

func (n *node) wait(ctx context.Context, r *read) error {
	r.node, r.done = n, make(chan struct{})
	r.bearer = strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ", ")
	select {
	case n.s.reads <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List implements pb.CacheServiceServer.
func (n *node) List(r *pb.ListRequest, out pb.CacheService_ListServer) error {
	one := &read{list: r}
	if err := n.wait(out.Context(), one); err != nil {
		return err
	}
	for _, c := range one.chunks {
		if err := out.Send(c); err != nil {
			return err
		}
	}
	return one.err
}

// Get implements pb.CacheServiceServer.
func (n *node) Get(ctx context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	one := &read{get: r}
	if err := n.wait(ctx, one); err != nil {
		return nil, err
	}
	return one.answer, one.err
}

// fault is an error with the details that a node sends.
func fault(code codes.Code, reason string, retry time.Duration, metadata map[string]string) error {
	st := status.New(code, "the script says so")
	var details []protoadapt.MessageV1
	if reason != "" {
		details = append(details, &errdetails.ErrorInfo{Domain: "shardwatch.dev", Reason: reason, Metadata: metadata})
	}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return err
	}
	return with.Err()
}

// members is a node's view of the cluster: one shard that all nodes have.
type members struct {
	pb.UnimplementedClusterServiceServer
	node *node
}

// WatchShardMap implements pb.ClusterServiceServer.
func (m *members) WatchShardMap(_ *pb.WatchShardMapRequest, out pb.ClusterService_WatchShardMapServer) error {
	r := &pb.WatchShardMapResponse{AllShards: true, AllMembers: true, MembersVersion: 1, Members: m.list()}
	one := &pb.Shard{Id: 1, Key: []byte{0}, RangeEnd: []byte{0}, Epoch: 1}
	for _, n := range m.node.s.nodes {
		one.Replicas = append(one.Replicas, n.name)
	}
	r.Map = &pb.ShardMap{Lineage: 1, Version: 1, ClusterId: m.node.cluster(), Replicas: nodes, Shards: []*pb.Shard{one}}
	if !m.node.mute.Load() {
		if err := out.Send(r); err != nil {
			return err
		}
		select {
		case m.node.s.followed <- m.node:
		default:
		}
	}
	<-out.Context().Done()
	return nil
}

func (m *members) list() (out []*pb.Member) {
	for _, n := range m.node.s.nodes {
		state := pb.MemberState_MEMBER_STATE_ALIVE
		if m.node.s.view != nil {
			state = m.node.s.view(m.node, n)
		}
		out = append(out, &pb.Member{Name: n.name, ClientAddress: n.address, State: state})
	}
	return out
}

// ListMembers implements pb.ClusterServiceServer.
func (m *members) ListMembers(context.Context, *pb.ListMembersRequest) (*pb.ListMembersResponse, error) {
	return &pb.ListMembersResponse{Members: m.list()}, nil
}

// Status implements pb.ClusterServiceServer.
func (m *members) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{ClusterId: m.node.cluster(), Lineage: 1, MapVersion: 1}, nil
}
