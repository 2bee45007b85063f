package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/edge/gateway"
)

// A request that is nested too deeply is refused before it is decoded.
func TestDeepRequestsAreRefused(t *testing.T) {
	addr := start(t, nil)
	defer http.DefaultClient.CloseIdleConnections()
	for transactions, want := range map[int]int{
		199:  http.StatusNotImplemented, // the backend has no transactions
		200:  http.StatusBadRequest,
		3300: http.StatusBadRequest, // as deep as encoding/json accepts
	} {
		body := strings.Repeat(`{"success":[{"request_txn":`, transactions) + "{}" + strings.Repeat(`}]}`, transactions)
		code, answer := post(t, http.DefaultClient, "http://"+addr+"/v3/kv/txn", body)
		if code != want || want == http.StatusBadRequest && !strings.Contains(answer, "nested more than 600 deep") {
			t.Errorf("%d nested transactions: %d %s, want %d", transactions, code, answer, want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend echoes its requests in its answers.
type backend struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	etcdserverpb.UnimplementedMaintenanceServer
}

func (backend) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if string(r.GetKey()) == "secret" {
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: 12345678901},
		Kvs:    []*mvccpb.KeyValue{{Key: r.GetKey(), Value: []byte(strings.Join(md.Get("authorization"), ","))}}, Count: 1,
	}, nil
}

func (backend) Watch(s grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	for i := range int64(3) {
		if err := s.Send(&etcdserverpb.WatchResponse{WatchId: i, Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: m.GetCreateRequest().GetKey()}}}}); err != nil {
			return err
		}
	}
	<-s.Context().Done() // as in etcd, only the client ends the stream
	return s.Context().Err()
}

func (backend) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: "3.7.3", StorageVersion: "3.7.0"}, nil
}

// start serves a backend, with TLS if cfg is not nil, and returns its address.
func start(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	g, err := gateway.New(gateway.Config{
		MaxRequest: 1 << 20,
		EtcdStatus: func(ctx context.Context) (*etcdserverpb.StatusResponse, error) { return backend{}.Status(ctx, nil) },
		Probe:      func(context.Context, bool) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(g.Credentials(cfg, nil)))
	for _, r := range []grpc.ServiceRegistrar{s, g} {
		etcdserverpb.RegisterKVServer(r, backend{})
		etcdserverpb.RegisterWatchServer(r, backend{})
		etcdserverpb.RegisterMaintenanceServer(r, backend{})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, serve := range []func() error{
		func() error { return s.Serve(g.Listener(l)) },
		func() error { return g.Run(ctx) },
	} {
		running.Go(func() {
			if err := serve(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		s.Stop()
		running.Wait()
	})
	return l.Addr().String()
}

// certificate returns a certificate for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, pool
}

func post(t *testing.T, client *http.Client, url, body string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "tok.1")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// JSON and gRPC share a port, in plain text and with TLS.
func TestBothOnOnePort(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secure), func(t *testing.T) {
			var server, client *tls.Config
			creds, url := insecure.NewCredentials(), "http://"
			if secure {
				var pool *x509.CertPool
				server, pool = certificate(t)
				client = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
				creds, url = credentials.NewTLS(client), "https://"
			}
			addr := start(t, server)
			url += addr
			web := &http.Client{Transport: &http.Transport{TLSClientConfig: client}}
			defer web.CloseIdleConnections()

			code, body := post(t, web, url+"/v3/kv/range", `{"key":"Zm9v","unknown":1}`)
			var got struct {
				Header struct{ Revision string }
				Kvs    []struct{ Key, Value []byte }
				Count  string
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
				t.Fatalf("%d %s: %v", code, body, err)
			}
			if got.Header.Revision != "12345678901" || got.Count != "1" || string(got.Kvs[0].Key) != "foo" || string(got.Kvs[0].Value) != "tok.1" {
				t.Errorf("got %s", body)
			}
			if code, body := post(t, web, url+"/v3/kv/range", `{"key":"c2VjcmV0"}`); code != http.StatusForbidden || !strings.Contains(body, "permission denied") {
				t.Errorf("%d %s", code, body)
			}
			if code, body := post(t, web, url+"/v3/kv/range", `{"key":`); code != http.StatusBadRequest {
				t.Errorf("%d %s", code, body)
			}
			if code, _ := post(t, web, url+"/v3/kv/range", `{"key":"`+strings.Repeat("A", 2<<20)+`"}`); code < 400 {
				t.Errorf("a request of 2 MiB: %d", code)
			}

			conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			r, err := etcdserverpb.NewKVClient(conn).Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("bar")})
			if err != nil || string(r.GetKvs()[0].GetKey()) != "bar" {
				t.Errorf("gRPC: %v, %v", r, err)
			}
		})
	}
}

// Clients of etcd 3.3 use paths below /v3beta/, which etcd still serves.
func TestPathsOfEtcd33(t *testing.T) {
	addr := start(t, nil)
	defer http.DefaultClient.CloseIdleConnections()
	if code, body := post(t, http.DefaultClient, "http://"+addr+"/v3beta/kv/range", `{"key":"Zm9v"}`); code != http.StatusOK || !strings.Contains(body, `"Zm9v"`) {
		t.Errorf("%d %s", code, body)
	}
}

// A watch sends one line of JSON for each response, as it arrives, and ends when the client
// disconnects.
func TestWatchOverJSON(t *testing.T) {
	addr := start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/watch", strings.NewReader(`{"create_request":{"key":"Zm9v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || !strings.Contains(lines.Text(), "Zm9v") {
			t.Fatalf("line %d: %q: %v", i, lines.Text(), lines.Err())
		}
	}
}

// The gateway serves etcd's paths outside of its API: /version and /health.
func TestVersionAndHealth(t *testing.T) {
	addr := start(t, nil)
	for path, want := range map[string]string{
		"/version": `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}`,
		"/health":  `{"health":"true","reason":""}`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s: %d %s, %v", path, resp.StatusCode, b, err)
		}
	}
}

// Silent connections and invalid bytes do not affect other requests.
func TestNonsense(t *testing.T) {
	addr := start(t, nil)
	for _, text := range []string{"", "P", "PRI", "PRI * HTTP/3.0\r\n\r\n", "\x16\x03\x01", "GET\r\n\r\n"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
	if code, body := post(t, http.DefaultClient, "http://"+addr+"/v3/kv/range", `{"key":"Zm9v"}`); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	http.DefaultClient.CloseIdleConnections()
}
