package etcd

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// roster is the list of etcd's endpoints that connections use by turns. One that
// hangs is passed over for a while, and the watches there are told: its
// connections stand, so that gRPC would find out only by pings (see
// Config.KeepaliveTime), and meanwhile give it its share of all calls and streams.
type roster struct {
	all  []resolver.Address
	slow time.Duration // a read without an answer for so long says that an endpoint hangs

	mu        sync.Mutex
	resolvers []*manual.Resolver       // guarded by mu
	reached   map[string]string        // guarded by mu; endpoints by the remote addresses of their connections
	hanging   map[string]time.Time     // guarded by mu; until when an endpoint is passed over
	told      map[string]chan struct{} // guarded by mu; closed when an endpoint is found to hang
}

// hangFor is for how long an endpoint that hangs is passed over.
const hangFor = 10 * time.Second

func newRoster(endpoints []endpoint, slow time.Duration) *roster {
	r := &roster{slow: slow, reached: make(map[string]string), hanging: make(map[string]time.Time), told: make(map[string]chan struct{})}
	for _, e := range endpoints {
		r.all = append(r.all, resolver.Address{Addr: e.addr, ServerName: e.addr})
	}
	return r
}

// resolver returns one for a connection of its own.
func (r *roster) resolver() *manual.Resolver {
	out := manual.NewBuilderWithScheme("shardwatch-etcd")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resolvers = append(r.resolvers, out)
	out.InitialState(resolver.State{Addresses: r.all})
	return out
}

// dialer notes which endpoint a connection leads to.
func (r *roster) dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err == nil && conn.RemoteAddr() != nil {
			r.mu.Lock()
			r.reached[conn.RemoteAddr().String()] = addr
			r.mu.Unlock()
		}
		return conn, err
	}
}

// time finds out that an endpoint hangs, by a read that etcd answers at once
// unless it is in trouble.
func (r *roster) time(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var at peer.Peer
	began := time.Now()
	err := call(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Peer(&at))...)
	if wire.IsTimeout(err) && at.Addr != nil && time.Since(began) >= r.slow {
		r.hangs(at.Addr)
	}
	return err
}

// hangs has the endpoint at a remote address passed over, unless as many are
// already as may be: when more of them hang, it is etcd that is slow, and what is
// left of it is not to bear everything.
func (r *roster) hangs(remote net.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	endpoint, known := r.reached[remote.String()]
	r.expireLocked(time.Now())
	if _, already := r.hanging[endpoint]; !known || already || len(r.hanging) >= r.most() {
		return
	}
	r.hanging[endpoint] = time.Now().Add(hangFor)
	r.updateLocked()
	time.AfterFunc(hangFor, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.expireLocked(time.Now())
		r.updateLocked()
	})
	if told := r.told[endpoint]; told != nil {
		close(told)
		delete(r.told, endpoint)
	}
}

// most returns how many may be passed over at a time: a minority, or one of two.
func (r *roster) most() int {
	if len(r.all) == 2 {
		return 1
	}
	return (len(r.all) - 1) / 2
}

// hung is closed when the endpoint at a remote address is found to hang.
func (r *roster) hung(remote net.Addr) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	endpoint, known := r.reached[remote.String()]
	if !known {
		return nil
	}
	if r.told[endpoint] == nil {
		r.told[endpoint] = make(chan struct{})
	}
	return r.told[endpoint]
}

func (r *roster) expireLocked(now time.Time) {
	for endpoint, until := range r.hanging {
		if !now.Before(until) {
			delete(r.hanging, endpoint)
		}
	}
}

func (r *roster) updateLocked() {
	var use []resolver.Address
	for _, a := range r.all {
		if _, hangs := r.hanging[a.Addr]; !hangs {
			use = append(use, a)
		}
	}
	for _, to := range r.resolvers {
		to.UpdateState(resolver.State{Addresses: use})
	}
}
