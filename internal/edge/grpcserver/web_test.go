package grpcserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
)

// webRig is a server that answers plain HTTP requests, and a client of it.
type webRig struct {
	*http.Client
	t    *testing.T
	url  string
	done chan error // the handler's result
}

func startWeb(t *testing.T, server, client *tls.Config) *webRig {
	t.Helper()
	r := &webRig{t: t, done: make(chan error, 10)}
	cfg := config()
	if server != nil {
		cfg.Credentials = credentials.NewTLS(server)
	}
	mux := http.NewServeMux()
	cfg.HTTP = mux
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method+" "+r.Host+" "+r.URL.RawQuery)
		w.Header()["X-Many"] = r.Header["X-Many"]
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/peer", func(w http.ResponseWriter, r *http.Request) {
		p, ok := peer.FromContext(r.Context())
		fmt.Fprintf(w, "%t %t %t", ok && p.Addr.String() == r.RemoteAddr, r.TLS != nil, r.ProtoMajor == 2)
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, q *http.Request) {
		for n := 0; ; n++ {
			if _, err := fmt.Fprintf(w, "%d\n", n); err != nil {
				r.done <- err
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				r.done <- err
				return
			}
			if n > 2 {
				<-q.Context().Done()
			}
		}
	})
	mux.HandleFunc("/abort", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/slow-reader", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := w.Write(make([]byte, 8<<20))
		r.done <- err
	})
	mux.HandleFunc("/slow-writer", func(w http.ResponseWriter, q *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := io.ReadAll(q.Body)
		r.done <- err
		http.Error(w, "too slow", http.StatusRequestTimeout)
	})
	address, _ := serve(t, cfg)
	var protocols http.Protocols
	r.url = "http://" + address
	if protocols.SetUnencryptedHTTP2(true); client != nil {
		protocols.SetHTTP1(true) // the server chooses, as with browsers and curl
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(false)
		client = client.Clone()
		client.NextProtos = nil
		r.url = "https://" + address
	}
	r.Client = &http.Client{Transport: &http.Transport{Protocols: &protocols, TLSClientConfig: client}}
	t.Cleanup(r.CloseIdleConnections)
	return r
}

func (r *webRig) do(method, path string, body io.Reader) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header["X-Many"] = []string{"one", "two"}
	resp, err := r.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (r *webRig) read(resp *http.Response) string {
	r.t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// Plain HTTP requests are answered completely over HTTP/2, beside calls on the same port, with and
// without TLS.
func TestWebRequests(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secure), func(t *testing.T) {
			var server, client *tls.Config
			if secure {
				server, client = certificates(t)
				server.NextProtos = []string{"h2", "http/1.1"}
			}
			r := startWeb(t, server, client)
			large := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB, more than all windows
			resp := r.do(http.MethodPost, "/echo?a=b", bytes.NewReader(large))
			if got := r.read(resp); resp.StatusCode != http.StatusAccepted || resp.ProtoMajor != 2 || got != string(large) {
				t.Errorf("%s %s with %d bytes", resp.Proto, resp.Status, len(got))
			}
			if got := resp.Header.Get("X-Method"); got != "POST "+resp.Request.URL.Host+" a=b" || strings.Join(resp.Header["X-Many"], ",") != "one,two" {
				t.Errorf("headers %v", resp.Header)
			}
			if got := r.read(r.do(http.MethodGet, "/peer", nil)); got != fmt.Sprintf("true %t true", secure) {
				t.Errorf("the handler sees %q", got)
			}
			if resp := r.do(http.MethodHead, "/peer", nil); resp.StatusCode != http.StatusOK || r.read(resp) != "" {
				t.Errorf("HEAD: %s", resp.Status)
			}
			if resp := r.do(http.MethodGet, "/nothing", nil); resp.StatusCode != http.StatusNotFound {
				t.Errorf("an unknown path: %s", resp.Status)
			}
		})
	}
}

// The HTTP handler gets no gRPC calls, even of a connection that also carries plain requests.
func TestWebRequestsBesideCalls(t *testing.T) {
	r := startWeb(t, nil, nil)
	conn := dial(t, strings.TrimPrefix(r.url, "http://"))
	for range 3 {
		emptyUnary(t, conn, pb.NewTestServiceClient(conn))
		r.read(r.do(http.MethodGet, "/peer", nil))
	}
}

// Flushing sends the answer written so far. The handler ends when its client disconnects.
func TestWebStream(t *testing.T) {
	r := startWeb(t, nil, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for n := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint(n) {
			t.Fatalf("line %d is %q: %v", n, lines.Text(), lines.Err())
		}
	}
	cancel()
	if err := <-r.done; err == nil {
		t.Error("the handler could write after the client had disconnected")
	}
}

// An answer that breaks off is not mistaken for a complete one. Deadlines end the wait for a client
// that does not read or does not send.
func TestWebRequestsThatFail(t *testing.T) {
	r := startWeb(t, nil, nil)
	b, err := io.ReadAll(r.do(http.MethodGet, "/abort", nil).Body)
	var reset http2.StreamError
	if err == nil || errors.As(err, &reset) && reset.Code != http2.ErrCodeInternal {
		t.Errorf("%q, %v", b, err)
	}

	resp := r.do(http.MethodGet, "/slow-reader", nil)
	if err := <-r.done; err == nil {
		t.Error("a write of 8 MiB succeeded although the client reads nothing")
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the client read a truncated answer without an error")
	}

	never, hold := io.Pipe()
	defer hold.Close()
	if resp := r.do(http.MethodPost, "/slow-writer", never); resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a request whose body does not arrive: %s", resp.Status)
	}
	if err := <-r.done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
}

// A request with a malformed path gets 400.
func TestWebRequestWithoutPath(t *testing.T) {
	r := startWeb(t, nil, nil)
	c := greet(t, strings.TrimPrefix(r.url, "http://"))
	c.open(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "nothing")
	if got, _, _ := c.answer(1); got[":status"] != "400" {
		t.Errorf("headers %v", got)
	}
}
