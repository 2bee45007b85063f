package etcdconn

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// roster is the list of etcd's endpoints that connections use in turn. An endpoint that
// hangs is passed over for a while, and its watches are notified. Its connections stay
// open, so gRPC would notice only by pings (see Config.KeepaliveTime), and until then
// send it its share of all calls and streams.
type roster struct {
	all []resolver.Address
	// slow is how long a small read, or the creation of a watch, may take until
	// inquire is called, which does not block: an endpoint may hang.
	slow    time.Duration
	inquire func()

	mu        sync.Mutex
	resolvers []*manual.Resolver       // guarded by mu
	reached   map[string]string        // guarded by mu; endpoints by the remote addresses of their connections
	hanging   map[string]time.Time     // guarded by mu; until when an endpoint is passed over
	told      map[string]chan struct{} // guarded by mu; closed while an endpoint is passed over
}

// hangFor is how long an endpoint that hangs is passed over.
const hangFor = 10 * time.Second

func newRoster(endpoints []endpoint, slow time.Duration, inquire func()) *roster {
	r := &roster{slow: slow, inquire: inquire, reached: make(map[string]string), hanging: make(map[string]time.Time), told: make(map[string]chan struct{})}
	for _, e := range endpoints {
		r.all = append(r.all, resolver.Address{Addr: e.addr, ServerName: e.addr})
	}
	return r
}

// resolver returns a resolver for one connection.
func (r *roster) resolver() *manual.Resolver {
	out := manual.NewBuilderWithScheme("shardwatch-etcd")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resolvers = append(r.resolvers, out)
	out.InitialState(resolver.State{Addresses: r.all})
	return out
}

// dialer stores the endpoint of each connection.
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

// time starts an inquiry when a small read, which a healthy etcd answers at once, gets
// no answer.
func (r *roster) time(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	timer := time.AfterFunc(r.slow, r.inquire)
	defer timer.Stop()
	return call(ctx, method, req, reply, conn, opts...)
}

// judge passes over the endpoints that hang, and takes the others back. When more than a
// minority hangs, etcd as a whole is slow, and the rest must not get all of the load. It
// returns the newly passed over endpoints.
func (r *roster) judge(hangs []bool) (fresh []string) {
	found := make(map[string]time.Time)
	for i, a := range r.all {
		if hangs[i] {
			found[a.Addr] = time.Now().Add(hangFor)
		}
	}
	if len(found) > r.most() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for endpoint := range found {
		if _, already := r.hanging[endpoint]; !already {
			fresh = append(fresh, endpoint)
		}
	}
	r.passOverLocked(found)
	if len(found) > 0 {
		time.AfterFunc(hangFor, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.expireLocked(time.Now())
		})
	}
	return fresh
}

// passOverLocked makes connections use the endpoints that are not in hanging, and
// notifies the watches at the others.
func (r *roster) passOverLocked(hanging map[string]time.Time) {
	for endpoint := range r.hanging {
		if _, still := hanging[endpoint]; !still {
			delete(r.told, endpoint) // closed
		}
	}
	for endpoint := range hanging {
		if _, already := r.hanging[endpoint]; !already {
			close(r.toldLocked(endpoint))
		}
	}
	r.hanging = hanging
	var use []resolver.Address
	for _, a := range r.all {
		if _, hangs := hanging[a.Addr]; !hangs {
			use = append(use, a)
		}
	}
	for _, to := range r.resolvers {
		to.UpdateState(resolver.State{Addresses: use})
	}
}

// most returns how many endpoints may be passed over at a time: a minority, or one of two.
func (r *roster) most() int {
	if len(r.all) == 2 {
		return 1
	}
	return (len(r.all) - 1) / 2
}

// hung returns a channel that is closed while the endpoint at a remote address is
// passed over; nil: the endpoint is not known.
func (r *roster) hung(remote net.Addr) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if remote == nil {
		return nil
	}
	endpoint, known := r.reached[remote.String()]
	if !known {
		return nil
	}
	return r.toldLocked(endpoint)
}

func (r *roster) toldLocked(endpoint string) chan struct{} {
	if r.told[endpoint] == nil {
		r.told[endpoint] = make(chan struct{})
	}
	return r.told[endpoint]
}

// expireLocked takes endpoints back after hangFor.
func (r *roster) expireLocked(now time.Time) {
	left := make(map[string]time.Time)
	for endpoint, until := range r.hanging {
		if now.Before(until) {
			left[endpoint] = until
		}
	}
	if len(left) < len(r.hanging) {
		r.passOverLocked(left)
	}
}
