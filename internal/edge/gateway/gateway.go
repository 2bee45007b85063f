package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	electiongw "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	lockgw "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/dispatch"
	"github.com/shardwatch/shardwatch/internal/edge/keybrowser"
	"github.com/shardwatch/shardwatch/internal/wire"
	"github.com/shardwatch/shardwatch/internal/yield"
)

// headerTimeout is how long a client may take to send a request's header,
// idleTimeout how long it may stay without another request.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Config configures a Gateway.
type Config struct {
	// MaxRequest bounds a message of a request that may carry values, in bytes of JSON.
	// Others may have 64 KiB.
	MaxRequest int
	// Memory bounds the memory of requests and answers; nil: no bound.
	Memory *budget.Budget
	// Hosts are the names under which clients without TLS reach the node; see
	// hosts.
	Hosts []string
	// Admit lets a call of a method in, until done, or says why not: before its
	// request is read. The call's memory counts for holder. ctx is that of a gRPC
	// server's handler. nil: all are let in.
	Admit func(ctx context.Context, method string) (holder budget.Client, done func(), err error)
	// Unary and Stream are called around each call, as a gRPC server calls them; nil:
	// nothing is.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// EtcdStatus returns the status of a member of etcd, for /version and the health checks. These need
	// no rights, so its errors must not name addresses or accounts. Required, as is Probe.
	EtcdStatus func(ctx context.Context) (*etcdserverpb.StatusResponse, error)
	// Probe fails unless a read gets through: of etcd's present state, or when serializable of this node's. The
	// same holds for its errors.
	Probe func(ctx context.Context, serializable bool) error
	// Turn returns when the client at an address may have the CPU for a while: to have a large
	// request decoded, or to write a part of an answer, of 64 KiB at most. leave ends that. It
	// fails when ctx ends before. nil: at once.
	Turn   func(ctx context.Context, client net.Addr) (leave func(), err error)
	Logger *slog.Logger // nil: nothing is logged
}

// Gateway answers HTTP requests with calls of gRPC services in this process: those of HTTP/1
// connections, which it takes from the gRPC server's listener, and those that a server of
// HTTP/2 passes to ServeHTTP. Create
// it with New, add the services with RegisterService before the first request, and Run
// it.
type Gateway struct {
	*services
	mux     *runtime.ServeMux
	own     *http.ServeMux // /version, /health and others beside the API
	status  *shared[*etcdserverpb.StatusResponse]
	reads   map[bool]*shared[struct{}] // by whether they are serializable
	life    context.Context            //nolint:containedctx // of what probes ask for; ends with Run
	end     context.CancelFunc
	origins *http.CrossOriginProtection
	hosts   hosts
	web     *http.Server
	open    sync.WaitGroup // connections
	arrive  *dispatch.Listener
	sending sync.Pool // buffers of WebSockets
}

// New returns a gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Admit == nil {
		cfg.Admit = func(context.Context, string) (budget.Client, func(), error) { return budget.Client{}, func() {}, nil }
	}
	if cfg.Turn == nil {
		cfg.Turn = func(context.Context, net.Addr) (func(), error) { return func() {}, nil }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	g := &Gateway{
		services: newServices(cfg),
		own:      http.NewServeMux(), origins: http.NewCrossOriginProtection(), hosts: cfg.Hosts, arrive: dispatch.New(new(net.TCPAddr)),
	}
	g.mux = runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{
		Marshaler: &marshaler{runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true}, // as in the proto files: etcd's (embed/serve.go)
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		}},
	}))
	ctx := context.Background()
	if err := errors.Join(
		gw.RegisterKVHandlerClient(ctx, g.mux, etcdserverpb.NewKVClient(g)),
		gw.RegisterWatchHandlerClient(ctx, g.mux, etcdserverpb.NewWatchClient(g)),
		gw.RegisterLeaseHandlerClient(ctx, g.mux, etcdserverpb.NewLeaseClient(g)),
		gw.RegisterClusterHandlerClient(ctx, g.mux, etcdserverpb.NewClusterClient(g)),
		gw.RegisterMaintenanceHandlerClient(ctx, g.mux, etcdserverpb.NewMaintenanceClient(g)),
		gw.RegisterAuthHandlerClient(ctx, g.mux, etcdserverpb.NewAuthClient(g)),
		lockgw.RegisterLockHandlerClient(ctx, g.mux, v3lockpb.NewLockClient(g)),
		electiongw.RegisterElectionHandlerClient(ctx, g.mux, v3electionpb.NewElectionClient(g)),
	); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.life, g.end = context.WithCancel(ctx)
	g.addHealth()
	g.own.Handle("/ui/", keybrowser.Handler())
	g.web = &http.Server{
		Handler:           g,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ConnState:         g.count,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c, ok := c.(*web); ok {
				ctx = context.WithValue(ctx, paceKey{}, &c.pace)
				ctx = peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), LocalAddr: c.LocalAddr(), AuthInfo: c.info})
			}
			return ctx
		},
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return g, nil
}

// Run serves until ctx ends. Requests that are open then are cut.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.web.BaseContext = func(net.Listener) context.Context { return ctx }
	stopped := context.AfterFunc(ctx, func() { _ = g.web.Close() }) // a connection that fails to close is closed
	defer stopped()
	err := g.web.Serve(g.arrive)
	if errors.Is(err, http.ErrServerClosed) {
		<-ctx.Done() // Drain waits for requests
	}
	g.end()
	g.open.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// Drain takes no more requests over HTTP/1, and waits until those that are open have been answered, or ctx ends.
// Requests over HTTP/2 are of the gRPC server, and WebSockets are not waited for.
func (g *Gateway) Drain(ctx context.Context) error { return g.web.Shutdown(ctx) }

// count counts the connections, so that Run can wait for the last. A WebSocket counts
// itself.
func (g *Gateway) count(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		g.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		g.open.Done()
	case http.StateActive, http.StateIdle:
	}
}

// ServeHTTP implements http.Handler. The context of a request has the peer.Peer of its
// connection.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 { // a connection of HTTP/1 is paced itself
		w = &pacedWriter{ResponseWriter: w, pace: pace{turn: g.turnOf(r.Context(), clientOf(r))}}
	}
	if rest, beta := strings.CutPrefix(r.URL.Path, "/v3beta/"); beta {
		r.URL.Path = "/v3/" + rest // its name in etcd 3.3, which etcd still knows
	}
	if !g.hosts.allow(r) {
		http.Error(w, unknownHost(r.Host), http.StatusMisdirectedRequest)
		return
	}
	socket := isSocket(r)
	if err := g.origins.Check(asWrite(r, socket)); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if m, answer := g.native(r.URL.Path); m != nil {
		g.serveNative(w, r, m, answer)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/v3/") {
		g.own.ServeHTTP(w, r)
		return
	}
	r.Header.Del("X-HTTP-Method-Override") // all methods are POST
	m := g.paths[r.URL.Path]
	if socket && m != nil {
		r = fromSocket(r)
	}
	if m == nil || r.Method != http.MethodPost {
		r.Body = http.NoBody
		g.mux.ServeHTTP(w, r) // says so, as etcd does
		return
	}
	g.serve(w, r, m, socket)
}

// clientOf returns the address of a request's client; nil: it is not known.
func clientOf(r *http.Request) net.Addr {
	if p, ok := peer.FromContext(r.Context()); ok {
		return p.Addr
	}
	return nil
}

// asWrite returns a WebSocket's request as one that may write.
func asWrite(r *http.Request, socket bool) *http.Request {
	if socket {
		r = r.Clone(r.Context())
		r.Method = http.MethodPost
	}
	return r
}

// serve answers a request for a method.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, m *method, socket bool) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x, end, err := g.begin(ctx, r, m)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	defer end()
	defer cancel()
	if !socket { // a WebSocket has two that write
		x.pace = paceOf(ctx)
	}
	r = r.WithContext(x.in(ctx))
	deadline := http.NewResponseController(w)
	b := &body{ReadCloser: r.Body, x: x, limit: m.limit, due: func(at time.Time) { _ = deadline.SetReadDeadline(at) }}
	if socket {
		g.serveSocket(w, r, m, b, cancel)
		return
	}
	b.due(time.Now().Add(messageTimeout))
	if r.Body = b; !m.many {
		one, err := io.ReadAll(b)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		r.Body = &whole{bytes.NewReader(one), func() (func(), error) { return g.Turn(ctx, clientOf(r)) }}
	}
	g.mux.ServeHTTP(&answerWriter{ResponseWriter: w, x: x, g: g}, r)
}

// begin admits a call, and reserves the memory of its request. end gives both back.
func (g *Gateway) begin(ctx context.Context, r *http.Request, m *method) (x *exchange, end func(), err error) {
	holder, done, err := g.admit(ctx, r, m)
	if err != nil {
		return nil, nil, err
	}
	x = &exchange{memory: g.Memory, holder: holder, method: m}
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if x.request, err = g.Memory.Reserve(waits, holder, budget.JSON, objectCost); err != nil {
		done()
		return nil, nil, err
	}
	return x, func() { x.end(); done() }, nil
}

// admit asks whether the call may be made, by its headers alone.
func (g *Gateway) admit(ctx context.Context, r *http.Request, m *method) (holder budget.Client, done func(), err error) {
	ctx, err = runtime.AnnotateContext(ctx, g.mux, r, m.name)
	if err != nil {
		return holder, nil, err
	}
	ctx, cancel := served(ctx, newTransport(m.name))
	defer cancel()
	return g.Admit(ctx, m.name)
}

// fail answers with an error as the translation does.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	_, out := runtime.MarshalerForRequest(g.mux, r)
	runtime.HTTPError(r.Context(), g.mux, out, w, r, wire.Status(err))
}

// marshaler is etcd's, and knows bodies.
type marshaler struct{ runtime.JSONPb }

// Marshal implements runtime.Marshaler. Of a message of a watch it makes nothing: that one
// was kept, and answerWriter writes it.
func (m *marshaler) Marshal(v any) ([]byte, error) {
	if part, ok := v.(map[string]any); ok {
		if _, kept := part["result"].(*etcdserverpb.WatchResponse); kept {
			return nil, nil
		}
	}
	return m.JSONPb.Marshal(v)
}

// NewDecoder implements runtime.Marshaler.
func (m *marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	switch b := r.(type) {
	case *body:
		d := m.JSONPb.NewDecoder(r)
		return runtime.DecoderFunc(func(v any) error {
			err := d.Decode(v)
			b.next()
			return err
		})
	case *whole:
		if b.Len() <= quick {
			break
		}
		d := m.JSONPb.NewDecoder(&yield.Reader{Reader: r, Part: quick})
		return runtime.DecoderFunc(func(v any) error {
			leave, err := b.turn()
			if err != nil {
				return err
			}
			defer leave()
			return d.Decode(v)
		})
	}
	return m.JSONPb.NewDecoder(r)
}

// quick is how much JSON is decoded without a turn, and how much in a row within one, in bytes: in
// some 0.1 ms.
const quick = 4 << 10

// whole is the body of a request of one message, all of which is there.
type whole struct {
	*bytes.Reader
	turn func() (leave func(), err error)
}

// Close implements io.Closer.
func (*whole) Close() error { return nil }
