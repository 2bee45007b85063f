package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/source"
)

// passing forwards requests to servers over HTTP/1.1.
func passing(t *testing.T, token func() (string, error), servers ...string) http.Handler {
	t.Helper()
	h, _ := passingBy(t, token, servers...)
	return h
}

// passingBy is passing, and also returns the client that keeps the state of the servers.
func passingBy(t *testing.T, token func() (string, error), servers ...string) (http.Handler, *source.Client) {
	t.Helper()
	cfg := source.Defaults()
	transport := httptest.NewTLSServer(nil).Client().Transport
	cfg.Servers, cfg.HTTP = servers, &http.Client{Transport: transport}
	client, err := source.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Source: client, Streams: transport, Upgrades: transport, Token: token, Impersonate: token != nil}), client
}

// A server that has failed is no longer avoided once it has answered a forwarded request.
func TestAnAnswerEndsAvoidance(t *testing.T) {
	for code, avoided := range map[int]bool{200: false, 404: false, 500: true} {
		to := record(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		h, client := passingBy(t, nil, to.url)
		client.Avoid(to.url, io.ErrUnexpectedEOF)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		if why := client.Avoided(to.url); (why != nil) != avoided {
			t.Errorf("after a response with status %d, the server is avoided because of: %v", code, why)
		}
	}
}

// recorder is an apiserver that records its requests.
type recorder struct {
	url string

	mu      sync.Mutex
	headers []http.Header // guarded by mu
	bodies  []string      // guarded by mu
	paths   []string      // guarded by mu
}

func record(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	c := &recorder{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		c.headers, c.bodies, c.paths = append(c.headers, r.Header), append(c.bodies, string(body)), append(c.paths, r.URL.RequestURI())
		c.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// gone returns the URL of a server that cannot be reached.
func gone() string {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s.URL
}

func TestTheApiserverSeesTheSender(t *testing.T) {
	id := &guard.Identity{User: "carol", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"p"}}}
	send := func(token func() (string, error), id *guard.Identity) (*recorder, http.Header) {
		to := record(t, nil)
		r := httptest.NewRequest(http.MethodGet, "/apis/x//y%2Fz?q=1", http.NoBody)
		r.Header.Set("Authorization", "Bearer client")
		r.Header.Set("X-Remote-User", "root")
		r.Header.Set("X-Remote-Group", "system:masters")
		r.Header.Set("X-Remote-Extra-Scopes", "all")
		if id != nil {
			r = guard.With(r, id)
		}
		passing(t, token, to.url).ServeHTTP(httptest.NewRecorder(), r)
		return to, to.headers[0]
	}
	to, h := send(nil, id)
	want := http.Header{"X-Remote-User": {"carol"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"a", "b"}, "X-Remote-Extra-Authentication.kubernetes.io%2fpod-Name": {"p"}}
	for name, values := range h {
		if strings.HasPrefix(name, "X-Remote-") && !slices.Equal(values, want[name]) {
			t.Errorf("%s: %q, want %q", name, values, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 || h.Get("Authorization") != "" {
		t.Errorf("missing headers %v; Authorization %q", want, h.Get("Authorization"))
	}
	if to.paths[0] != "/apis/x//y%2Fz?q=1" {
		t.Errorf("path %s", to.paths[0])
	}
	_, h = send(func() (string, error) { return "node", nil }, id)
	if h.Get("Impersonate-User") != "carol" || !slices.Equal(h.Values("Impersonate-Group"), id.Groups) || h.Get("Authorization") != "Bearer node" || h.Get("X-Remote-User") != "" {
		t.Errorf("headers with impersonation: %v", h)
	}
	if _, h = send(nil, nil); h.Get("X-Remote-User") != "system:anonymous" || h.Get("X-Remote-Group") != "system:unauthenticated" {
		t.Errorf("headers without an identity: %v", h)
	}
}

func TestAnotherApiserverGetsTheRequest(t *testing.T) {
	to := record(t, nil)
	h := passing(t, nil, gone(), to.url)
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/pods", strings.NewReader("a pod")))
		if w.Code != http.StatusOK {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	}
	if !slices.Equal(to.bodies, []string{"a pod", "a pod"}) {
		t.Errorf("bodies %q", to.bodies)
	}
}

// The status shows whether a failed request may have reached an apiserver: after 429, a client repeats its
// request.
func TestAFailureReportsWhetherTheRequestWasSent(t *testing.T) {
	dies := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		method  string
		servers []string
		want    string
	}{
		{http.MethodGet, []string{gone()}, "429"},
		{http.MethodPost, []string{gone(), gone()}, "429"},
		{http.MethodGet, []string{record(t, dies).url}, "429"},
		{http.MethodPost, []string{record(t, dies).url}, "cut"},
		{http.MethodDelete, []string{record(t, dies).url, record(t, nil).url}, "cut"},
		{http.MethodGet, []string{record(t, dies).url, record(t, nil).url}, "200"},
	} {
		w := httptest.NewRecorder()
		var body io.Reader
		if c.method != http.MethodGet {
			body = strings.NewReader("body")
		}
		got := func() (got string) {
			defer func() {
				if err, ok := recover().(error); ok && errors.Is(err, http.ErrAbortHandler) {
					got = "cut"
				}
			}()
			passing(t, nil, c.servers...).ServeHTTP(w, httptest.NewRequest(c.method, "/api/v1/pods", body))
			return fmt.Sprint(w.Code)
		}()
		if got != c.want || got == "429" && w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s with %d servers: %s, want %s; Retry-After %q", c.method, len(c.servers), got, c.want, w.Header().Get("Retry-After"))
		}
	}
}

func TestAFailureOfAListIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		method, path string
		code, want   int
	}{
		{http.MethodGet, "/api/v1/pods", 500, 429},
		{http.MethodGet, "/api/v1/pods?watch=1", 503, 429},
		{http.MethodGet, "/apis/apps/v1/deployments", 502, 429},
		{http.MethodGet, "/api/v1/pods", 504, 504},
		{http.MethodGet, "/api/v1/pods", 410, 410},
		{http.MethodGet, "/api/v1/namespaces/a/pods/b", 503, 503},
		{http.MethodGet, "/healthz", 500, 500},
		{http.MethodPost, "/api/v1/namespaces/a/pods", 500, 500},
	} {
		to := record(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, "the reason")
		})
		for _, path := range []string{"", "/k8s/clusters/a"} { // of the server's URL
			w := httptest.NewRecorder()
			passing(t, nil, to.url+path).ServeHTTP(w, httptest.NewRequest(c.method, c.path, http.NoBody))
			if w.Code != c.want || !bytes.Contains(w.Body.Bytes(), []byte("the reason")) {
				t.Errorf("%s %s%s with %d: %d %s, want %d", c.method, path, c.path, c.code, w.Code, w.Body, c.want)
			}
			if (w.Header().Get("Retry-After") != "") != (w.Code == 429) {
				t.Errorf("%s %s%s: Retry-After %q", c.method, path, c.path, w.Header().Get("Retry-After"))
			}
		}
	}
}

// An apiserver that is not ready refuses requests that it would allow later. The next apiserver gets the request,
// and without another one the client gets 429: a reflector would list again after 401 or 403. An apiserver that
// refuses this node is treated like one that does not answer.
func TestARefusalByAnApiserverThatStarts(t *testing.T) {
	impersonates := func() (string, error) { return "node", nil }
	answers := func(code, ready int, why string) string {
		return record(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.WriteHeader(ready)
				return
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, why)
		}).url
	}
	forbids := func(ready int, why string) string {
		status, err := json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "message": why})
		if err != nil {
			t.Fatal(err)
		}
		return answers(403, ready, string(status))
	}
	refuses := func(code, ready int) string {
		if code == 403 {
			return forbids(ready, `secrets is forbidden: User "a" cannot list resource "secrets" in API group "" at the cluster scope`)
		}
		return answers(code, ready, "Unauthorized")
	}
	notTheNode := forbids(200, `users "a" is forbidden: User "the-node" cannot impersonate resource "users" in API group "" at the cluster scope`)
	notTheClient := forbids(200, `secrets is forbidden: User "a" cannot list resource "secrets" in API group "" in the namespace ": User \"a\" cannot impersonate resource \""`)
	behind := record(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/") {
			w.WriteHeader(401)
		}
	}).url
	for _, c := range []struct {
		method, path string
		servers      []string
		want         int
	}{
		{http.MethodGet, "/apis/metrics.k8s.io/v1beta1/pods", []string{behind, refuses(401, 200)}, 401},
		{http.MethodGet, "/api/v1/secrets", []string{notTheClient, record(t, nil).url}, 403},
		{http.MethodGet, "/api/v1/secrets", []string{refuses(401, 200)}, 429},
		{http.MethodGet, "/api/v1/secrets?watch=1", []string{refuses(401, 200), record(t, nil).url}, 200},
		{http.MethodGet, "/api/v1/secrets", []string{notTheNode}, 429},
		{http.MethodGet, "/api/v1/secrets?watch=1", []string{notTheNode, record(t, nil).url}, 200},
		{http.MethodGet, "/api/v1/secrets?watch=1", []string{refuses(403, 500)}, 429},
		{http.MethodGet, "/api/v1/secrets", []string{refuses(401, 403)}, 429},
		{http.MethodGet, "/api/v1/secrets", []string{refuses(401, 500), record(t, nil).url}, 200},
		{http.MethodGet, "/api/v1/secrets", []string{refuses(403, 200), record(t, nil).url}, 403},
		{http.MethodGet, "/api/v1/namespaces/a/secrets/b", []string{refuses(403, 500)}, 403},
		{http.MethodPost, "/api/v1/namespaces/a/secrets", []string{refuses(403, 500)}, 403},
	} {
		w := httptest.NewRecorder()
		passing(t, impersonates, c.servers...).ServeHTTP(w, httptest.NewRequest(c.method, c.path, http.NoBody))
		if w.Code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.Code, w.Body, c.want)
		}
		if w.Code == 403 && !strings.Contains(w.Body.String(), "is forbidden") {
			t.Errorf("%s %s: refused with %q, which lacks the apiserver's reason", c.method, c.path, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (w.Code == 429) {
			t.Errorf("%s %s: Retry-After %q", c.method, c.path, w.Header().Get("Retry-After"))
		}
	}
	// A front proxy does not impersonate, so that a refused impersonation is one that the client requested.
	w := httptest.NewRecorder()
	passing(t, nil, notTheNode, record(t, nil).url).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/secrets", http.NoBody))
	if w.Code != http.StatusForbidden {
		t.Errorf("a refused impersonation that the client requested: status %d, want 403", w.Code)
	}
}

// If an apiserver dies, its watches end as if their timeout had passed: a reflector lists again
// after the reset of a stream. A truncated list still fails.
func TestAWatchAtAnApiserverThatDies(t *testing.T) {
	to := record(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "an event")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	front := httptest.NewServer(passing(t, nil, to.url))
	defer front.Close()
	for path, resumes := range map[string]bool{"/api/v1/pods?watch=1": true, "/api/v1/pods?watch=true": true, "/api/v1/pods?watch=0": false, "/api/v1/pods": false} {
		resp, err := http.Get(front.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "an event" || (err == nil) != resumes {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
}

// A forwarded watch lasts at least a second: a reflector lists again after a shorter watch without an event.
func TestNoPassedWatchEndsWithinItsFirstSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		passed := &passedWatch{ReadCloser: io.NopCloser(strings.NewReader("")), began: began, ctx: t.Context()}
		if _, err := passed.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != ShortestWatch {
			t.Errorf("a forwarded watch whose apiserver dies ends after %v: %v", time.Since(began), err)
		}
	})
}
