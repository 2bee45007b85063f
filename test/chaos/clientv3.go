package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// etcdClients are watches of one clientv3, which uses the nodes as the members of an etcd cluster
// and resumes on its own.
type etcdClients struct {
	nodes   []target
	client  *clientv3.Client
	watches []*etcdWatch
	// asks: it requests progress continuously.
	asks bool

	mu    sync.Mutex
	lines [2]line // guarded by mu
}

func newEtcdClients(nodes []target, ws []*watcher, asks bool) (*etcdClients, error) {
	e := &etcdClients{nodes: nodes, asks: asks}
	c, err := dialEtcd(addrs(nodes), grpc.WithChainStreamInterceptor(e.intercept))
	if err != nil {
		return nil, err
	}
	e.client = c
	for _, w := range ws {
		e.watches = append(e.watches, newEtcdWatch(w))
	}
	return e, nil
}

// dialEtcd returns a clientv3 with the recommended settings.
func dialEtcd(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	opts = append(opts, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))) // for calls that bypass clientv3
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), DialOptions: opts,
		// gRPC permits no shorter time.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
}

func (e *etcdClients) close() error { return e.client.Close() }

// run watches until ctx ends.
func (e *etcdClients) run(ctx context.Context) {
	var g sync.WaitGroup
	for _, w := range e.watches {
		g.Go(func() { e.watch(e.context(ctx, w.wish.leader), w) })
	}
	for pause(ctx, asking) == nil {
		if !e.asks {
			continue
		}
		for _, leader := range []bool{false, true} {
			timed, cancel := context.WithTimeout(e.context(ctx, leader), asking)
			_ = e.client.RequestProgress(timed) // the watches report errors
			cancel()
		}
	}
	g.Wait()
}

// context selects the client's stream of a watch.
func (e *etcdClients) context(ctx context.Context, leader bool) context.Context {
	ctx = context.WithValue(ctx, streamKey{}, leader)
	if leader {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	return ctx
}

// streamKey marks a context with whether its stream requires a leader.
type streamKey struct{}

// watch watches until ctx ends. An error that the client cannot recover from is a violation,
// except for the end of a stream that requires a leader.
func (e *etcdClients) watch(ctx context.Context, w *etcdWatch) {
	kvs := etcdserverpb.NewKVClient(e.client.ActiveConnection())
	relist := w.needsState()
	for ctx.Err() == nil {
		if relist {
			if err := w.list(ctx, kvs); err == nil {
				relist = false
			}
		} else if compacted, err := e.follow(ctx, w); ctx.Err() == nil {
			if compacted == 0 && w.cutOff() {
				relist = true
			} else if errors.Is(err, rpctypes.ErrNoLeader) && w.wish.leader {
				w.resumed(resume{from: "a node", to: "any", reason: err, behind: w.next - 1})
			} else {
				relist = w.canceled(compacted, err)
			}
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
}

// follow watches from w's position until the client gives up. It returns the cause,
// and the compact revision if that was the cause.
func (e *etcdClients) follow(ctx context.Context, w *etcdWatch) (compacted int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.leave = cancel
	w.mu.Unlock()
	if w.next > 0 && w.behind() {
		return 0, errCutOff
	}
	r := w.request()
	opts := []clientv3.OpOption{clientv3.WithRev(w.next), clientv3.WithCreatedNotify()}
	if len(r.GetRangeEnd()) > 0 {
		opts = append(opts, clientv3.WithRange(string(r.GetRangeEnd())))
	}
	if r.GetPrevKv() {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if r.GetProgressNotify() {
		opts = append(opts, clientv3.WithProgressNotify())
	}
	if r.GetFragment() {
		opts = append(opts, clientv3.WithFragment())
	}
	if w.wish.watch.NoPuts {
		opts = append(opts, clientv3.WithFilterPut())
	}
	if w.wish.watch.NoDeletes {
		opts = append(opts, clientv3.WithFilterDelete())
	}
	var born int64 // the revision of its creation, if it had no start revision
	var streams int
	for r := range e.client.Watch(ctx, string(r.GetKey()), opts...) {
		if w.wish.slow && w.gate.pass(ctx) {
			w.slept()
		}
		rev, events := r.Header.GetRevision(), r.Events
		switch {
		case r.Err() != nil:
			return r.CompactRevision, r.Err()
		case r.Created:
			if w.next == 0 {
				born, streams = rev, e.streams(w.wish.leader)
			}
			w.created(rev)
		case r.IsProgressNotify():
			w.progressed(rev)
		default:
			// clientv3 resumes a watch from the current revision without events at the revision of
			// its creation, not after it.
			for born > 0 && len(events) > 0 && events[0].Kv.ModRevision == born && e.streams(w.wish.leader) > streams {
				events = events[1:]
			}
			w.delivered(events)
		}
	}
	return 0, errors.New("the channel was closed")
}

// intercept records the nodes of the client's watch streams and their moves.
func (e *etcdClients) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil || method != etcdserverpb.Watch_Watch_FullMethodName {
		return s, err
	}
	leader, _ := ctx.Value(streamKey{}).(bool)
	return &noticed{ClientStream: s, client: e, leader: leader}, nil
}

// noticed is a watch stream that reports its position to its client.
type noticed struct {
	grpc.ClientStream
	client *etcdClients
	leader bool
	node   string // owned by RecvMsg
}

func (n *noticed) RecvMsg(m any) error {
	err := n.ClientStream.RecvMsg(m)
	if err == nil && n.node == "" {
		n.node = "a node"
		if p, ok := peer.FromContext(n.Context()); ok {
			n.node = nameOf(n.client.nodes, p.Addr.String())
		}
		n.client.opened(n.leader, n.node)
	}
	if err != nil && n.node != "" {
		n.client.closed(n.leader, n.node, err)
	}
	return err
}

// line is one of a client's two streams: watches that require a leader use a separate stream.
type line struct {
	opened int // the number of times
	node   string
	reason error // why it left node
}

func (e *etcdClients) line(leader bool) *line {
	if leader {
		return &e.lines[1]
	}
	return &e.lines[0]
}

// opened records the first answer on a stream.
func (e *etcdClients) opened(leader bool, node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.line(leader)
	l.opened++
	if l.opened > 1 {
		for _, w := range e.watches {
			if w.wish.leader == leader {
				w.resumed(resume{from: l.node, to: node, reason: l.reason})
				w.leaveWhenBehind()
			}
		}
	}
	l.node, l.reason = node, nil
}

// leaveWhenBehind ends a watch that clientv3 has resumed in another history.
func (w *etcdWatch) leaveWhenBehind() {
	behind := w.behind()
	w.mu.Lock()
	defer w.mu.Unlock()
	if behind && w.leave != nil {
		w.leave()
	}
}

func (e *etcdClients) closed(leader bool, node string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.line(leader)
	l.node, l.reason = node, err
}

func (e *etcdClients) streams(leader bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line(leader).opened
}
