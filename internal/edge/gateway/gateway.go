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

// headerTimeout bounds the time a client takes to send a request's header, idleTimeout its time between
// requests.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Config configures a Gateway.
type Config struct {
	// MaxRequest bounds each message of a request that may carry values, in bytes of JSON. Other messages may
	// have 64 KiB.
	MaxRequest int
	// Memory bounds the memory of requests and answers; nil: no bound.
	Memory *budget.Budget
	// Hosts are the host names that clients without TLS may use; see hosts.
	Hosts []string
	// Admit admits a call of a method until done is called, or returns an error, before the request is read.
	// The call's memory counts for holder. ctx is that of a gRPC server's handler. nil: all calls are admitted.
	Admit func(ctx context.Context, method string) (holder budget.Client, done func(), err error)
	// Unary and Stream are called around each call, as by a gRPC server; nil: no interceptor.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// EtcdStatus returns the status of an etcd member, for /version and the health checks. These need no
	// rights, so its errors must not name addresses or accounts. Required, as is Probe.
	EtcdStatus func(ctx context.Context) (*etcdserverpb.StatusResponse, error)
	// Probe makes a test read: a linearizable one of etcd, or, if serializable, one of this node. Its errors
	// must not name addresses or accounts either.
	Probe func(ctx context.Context, serializable bool) error
	// Turn returns when the client at an address may use the CPU: to have a large request decoded, or to write
	// up to 64 KiB of an answer. leave ends the turn. Turn fails if ctx ends first. nil: it returns at once.
	Turn   func(ctx context.Context, client net.Addr) (leave func(), err error)
	Logger *slog.Logger // nil: no logging
}

// Gateway answers HTTP requests with calls of gRPC services in this process: requests of HTTP/1 connections,
// which it takes from the gRPC server's listener, and those that an HTTP/2 server passes to ServeHTTP. Create
// it with New, add the services with RegisterService before the first request, and Run it.
type Gateway struct {
	*services
	mux     *runtime.ServeMux
	own     *http.ServeMux // /version, /health and other paths outside of the API
	status  *shared[*etcdserverpb.StatusResponse]
	reads   map[bool]*shared[struct{}] // by serializable
	life    context.Context            //nolint:containedctx // of probes; ends with Run
	end     context.CancelFunc
	origins *http.CrossOriginProtection
	hosts   hosts
	web     *http.Server
	open    sync.WaitGroup // connections
	arrive  *dispatch.Listener
	sending sync.Pool // send buffers of WebSockets
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
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true}, // proto names, as etcd does (embed/serve.go)
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

// Run serves until ctx ends. It aborts requests that are open then.
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

// Drain accepts no more requests over HTTP/1, and waits until the open ones are answered, or ctx ends. It does
// not handle requests over HTTP/2, which belong to the gRPC server, and does not wait for WebSockets.
func (g *Gateway) Drain(ctx context.Context) error { return g.web.Shutdown(ctx) }

// count counts the connections, so that Run can wait for the last one. WebSockets count themselves.
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
	if r.ProtoMajor == 2 { // an HTTP/1 connection has its own pace
		w = &pacedWriter{ResponseWriter: w, pace: pace{turn: g.turnOf(r.Context(), clientOf(r))}}
	}
	if rest, beta := strings.CutPrefix(r.URL.Path, "/v3beta/"); beta {
		r.URL.Path = "/v3/" + rest // the prefix of etcd 3.3, which etcd still accepts
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
		g.mux.ServeHTTP(w, r) // responds as etcd does
		return
	}
	g.serve(w, r, m, socket)
}

// clientOf returns the address of a request's client; nil: unknown.
func clientOf(r *http.Request) net.Addr {
	if p, ok := peer.FromContext(r.Context()); ok {
		return p.Addr
	}
	return nil
}

// asWrite returns the request of a WebSocket as a POST: for the origin check, it may write.
func asWrite(r *http.Request, socket bool) *http.Request {
	if socket {
		r = r.Clone(r.Context())
		r.Method = http.MethodPost
	}
	return r
}

// serve answers a request by calling a method.
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
	if !socket { // a WebSocket has two writers
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

// begin admits a call, and reserves the memory of its request. end releases both.
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

// admit asks Admit for the call, by the headers alone.
func (g *Gateway) admit(ctx context.Context, r *http.Request, m *method) (holder budget.Client, done func(), err error) {
	ctx, err = runtime.AnnotateContext(ctx, g.mux, r, m.name)
	if err != nil {
		return holder, nil, err
	}
	ctx, cancel := served(ctx, newTransport(m.name))
	defer cancel()
	return g.Admit(ctx, m.name)
}

// fail answers with an error in grpc-gateway's format.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	_, out := runtime.MarshalerForRequest(g.mux, r)
	runtime.HTTPError(r.Context(), g.mux, out, w, r, wire.Status(err))
}

// marshaler is etcd's JSON marshaler, with bounded request bodies.
type marshaler struct{ runtime.JSONPb }

// Marshal implements runtime.Marshaler. It returns nothing for a watch message: answerWriter writes the kept
// one.
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

// quick is the JSON that is decoded without a turn, and between two yields within a turn, in bytes: some 0.1
// ms.
const quick = 4 << 10

// whole is the completely received body of a request of one message.
type whole struct {
	*bytes.Reader
	turn func() (leave func(), err error)
}

// Close implements io.Closer.
func (*whole) Close() error { return nil }
