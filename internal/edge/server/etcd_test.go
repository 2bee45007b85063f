package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// upstream is an etcd with a scripted history.
type upstream struct{ h *cachetest.Script }

func (upstream) Identity() (cluster, term uint64)    { return 7, 3 }
func (upstream) ProxyConn() grpc.ClientConnInterface { return nil }
func (upstream) Status(context.Context) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{}, nil
}

func (u upstream) CheckRevision(context.Context, kv.Revision) (kv.Revision, error) {
	return u.h.Now(), nil
}

func (u upstream) History(_ context.Context, r etcd.HistoryRequest) (etcd.LogPage, error) {
	return etcd.LogPage{Batches: u.h.Batches(r.Range, r.From-1, r.Before-1), Next: r.Before}, nil
}

// startBoth runs a server with both APIs.
func startBoth(t *testing.T, more ...func(*server.Config)) *running {
	t.Helper()
	h := cachetest.New()
	return start(t, h, options{server: func(c *server.Config) {
		ac := etcdapi.Defaults()
		ac.Router, ac.Etcd, ac.Self = c.Router, upstream{h}, c.Self
		var err error
		if c.Etcd, err = etcdapi.New(ac); err != nil {
			t.Fatal(err)
		}
		for _, set := range more {
			set(c)
		}
	}})
}

// Clients of etcd's API and of the native API share a connection, are counted together, and are
// drained together.
func TestBothAPIs(t *testing.T) {
	r := startBoth(t)
	native := r.watch()
	native.create(all(1, first))
	native.created(1)
	etcd, err := etcdserverpb.NewWatchClient(r.conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := etcd.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}},
		}}); err != nil {
			t.Fatal(err)
		}
		if m, err := etcd.Recv(); err != nil || !m.GetCreated() {
			t.Fatal(m, err)
		}
	}
	if got, err := etcdserverpb.NewKVClient(r.conn).Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("h")}); err != nil || got.GetHeader().GetClusterId() != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if s := r.server.Status(); s.GetWatches() != 3 || s.GetConnections() != 1 {
		t.Errorf("%d watches on %d connections, want 3 on 1", s.GetWatches(), s.GetConnections())
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	r.server.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("the drain did not end all watches in time")
	}
	if e := native.ended(1); e.GetReason() != pb.EndReason_END_REASON_DRAINING {
		t.Errorf("native: %v", e)
	}
	for err == nil {
		_, err = etcd.Recv()
	}
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrStopped) {
		t.Errorf("etcd's: %v", err)
	}
}

// The port also serves JSON, over HTTP/1.1 and over HTTP/2. Clients with TLS use HTTP/2 unless they
// decline it.
func TestJSON(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			if version == 2 && os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
				t.Skip("grpc-go's server answers only gRPC calls")
			}
			r := startBoth(t)
			r.h.Commit(cachetest.Put("a", "1"))
			var protocols http.Protocols
			protocols.SetHTTP1(version == 1)
			protocols.SetUnencryptedHTTP2(version == 2)
			web := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
			defer web.CloseIdleConnections()
			ask := func(method, path, body string) *http.Response {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.clients+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := web.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				if resp.ProtoMajor != version || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s %s: %s %s", method, path, resp.Proto, resp.Status)
				}
				return resp
			}
			for _, x := range []struct{ method, path, body, want string }{
				{http.MethodPost, "/v3/kv/range", `{"key":"YQ=="}`, `"value":"MQ=="`},
				{http.MethodGet, "/v1/keys?prefix=", "", `"value":"1"`},
			} {
				if b, err := io.ReadAll(ask(x.method, x.path, x.body).Body); err != nil || !strings.Contains(string(b), x.want) {
					t.Errorf("%s: %s, %v", x.path, b, err)
				}
			}
			events := bufio.NewScanner(ask(http.MethodGet, "/v1/watch?prefix=&revision="+fmt.Sprint(r.h.Now()), "").Body)
			for !strings.Contains(events.Text(), `"value":"1"`) {
				if !events.Scan() {
					t.Fatal(events.Err())
				}
			}
		})
	}
}

// Tools that use server reflection get descriptions of etcd's services.
func TestReflection(t *testing.T) {
	r := startBoth(t)
	info, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := info.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := info.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, name := range []string{
		"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Auth", "etcdserverpb.Maintenance",
		"etcdserverpb.Cluster", "v3lockpb.Lock", "v3electionpb.Election", pb.CacheService_ServiceDesc.ServiceName,
	} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
		}
		m := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
		if len(m.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s: %v", name, m.GetErrorResponse())
		}
	}
}

// A watch in JSON is written in turns of large work, by separate pumps. Watches in gRPC do not wait for it.
func TestWatchesInJSONTakeTurns(t *testing.T) {
	for name, c := range map[string]struct{ method, path, body string }{
		"native": {http.MethodGet, "/v1/watch?prefix=", ""},
		"etcd":   {http.MethodPost, "/v3/watch", `{"create_request":{"key":"AA==","range_end":"AA=="}}`},
	} {
		t.Run(name, func(t *testing.T) {
			turns := fair.NewTurns()
			r := startBoth(t, func(c *server.Config) { c.Turns = turns })
			native := r.watch()
			native.create(all(1, first))
			native.created(1)
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+r.clients+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			until := func(text string) {
				for !strings.Contains(lines.Text(), text) {
					if !lines.Scan() {
						t.Fatal(lines.Err())
					}
				}
			}
			until("created")
			var leave []func()
			for range max(1, runtime.GOMAXPROCS(0)-1) {
				end, err := turns.Take(t.Context(), "all")
				if err != nil {
					t.Fatal(err)
				}
				leave = append(leave, end)
			}
			revision := r.h.Commit(cachetest.Put("a", "1"))
			for native.next().GetRevision() != int64(revision) { // a watch in gRPC does not wait
			}
			testkit.Eventually(t, "a watch in JSON waits for a turn", func() bool {
				_, waiting := turns.Figures()
				return waiting > 0
			})
			for _, end := range leave {
				end()
			}
			until("mod_revision")
		})
	}
}
