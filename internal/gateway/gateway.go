package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	electiongw "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	lockgw "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
)

// headerTimeout is how long a client may take to send a request's header,
// idleTimeout how long it may stay without another request.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// inside is the size of the buffer between the gateway and the gRPC server.
const inside = 256 << 10

// Gateway answers HTTP/1 requests with calls of the gRPC server beside it.
// Create it with New, have the gRPC server serve Inside, and Run it.
type Gateway struct {
	// Inside is where the gateway's own calls come in. The gRPC server must
	// serve it, with the gateway's Credentials.
	Inside net.Listener

	conn   *grpc.ClientConn
	web    *http.Server
	open   sync.WaitGroup // connections
	arrive *arrivals
}

// New returns a gateway. maxRequest bounds the bytes of a request, as JSON.
func New(maxRequest int64) (*Gateway, error) {
	pipe := bufconn.Listen(inside)
	conn, err := grpc.NewClient("passthrough:///gateway",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<31-1)), // as large as the server sends
	)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	// The marshaller is etcd's (embed/serve.go): names as in the proto files.
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{
		Marshaler: &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		},
	}))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler, gw.RegisterClusterHandler,
		gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler, lockgw.RegisterLockHandler, electiongw.RegisterElectionHandler,
	} {
		if err := register(context.Background(), mux, conn); err != nil {
			return nil, errors.Join(fmt.Errorf("gateway: %w", err), conn.Close())
		}
	}
	g := &Gateway{Inside: pipe, conn: conn, arrive: newArrivals()}
	all := http.NewServeMux()
	all.Handle("/v3/", mux)
	all.HandleFunc("GET /version", g.version)
	all.HandleFunc("GET /health", g.health)
	g.web = &http.Server{
		Handler:           http.MaxBytesHandler(all, maxRequest),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ConnState:         g.count,
	}
	return g, nil
}

// Run serves until ctx ends. Requests that are open then are cut.
func (g *Gateway) Run(ctx context.Context) error {
	stopped := context.AfterFunc(ctx, func() { _ = g.web.Close() }) // what fails to close is closed
	defer stopped()
	err := g.web.Serve(g.arrive)
	g.open.Wait()
	if err = errors.Join(ignore(err, http.ErrServerClosed), g.conn.Close()); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

// count counts the connections, so that Run can wait for the last.
func (g *Gateway) count(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		g.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		g.open.Done()
	case http.StateActive, http.StateIdle:
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// version says which etcd is behind the cache, as etcd does.
func (g *Gateway) version(w http.ResponseWriter, r *http.Request) {
	s, err := etcdserverpb.NewMaintenanceClient(g.conn).Status(r.Context(), &etcdserverpb.StatusRequest{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	cluster := "not_decided"
	if parts := strings.Split(s.GetVersion(), "."); len(parts) > 2 {
		cluster = parts[0] + "." + parts[1] + ".0"
	}
	answer(w, http.StatusOK, map[string]string{
		"etcdserver": s.GetVersion(), "etcdcluster": cluster, "storage": s.GetStorageVersion(),
	})
}

// health says whether a read gets through: of etcd, or with serializable=true
// of this node.
func (g *Gateway) health(w http.ResponseWriter, r *http.Request) {
	_, err := etcdserverpb.NewKVClient(g.conn).Range(r.Context(), &etcdserverpb.RangeRequest{
		Key: []byte("health"), CountOnly: true, Serializable: r.URL.Query().Get("serializable") == "true",
	})
	// That the caller may not read the key is an answer, too.
	if err != nil && !denied(err) {
		answer(w, http.StatusServiceUnavailable, map[string]string{"health": "false", "reason": err.Error()})
		return
	}
	answer(w, http.StatusOK, map[string]string{"health": "true", "reason": ""})
}

func answer(w http.ResponseWriter, code int, what map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(what) // the client is gone
}
