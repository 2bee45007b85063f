package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/report"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// everyone are apiservers that authenticate any token as one user and allow everything.
type everyone struct{}

func (everyone) Ready(context.Context, string) error { return nil }

func (everyone) Post(_ context.Context, path string, _, out any) (string, error) {
	answer := `{"status":{"allowed":true}}`
	if strings.HasSuffix(path, "/tokenreviews") {
		answer = `{"status":{"authenticated":true,"user":{"username":"alice"}}}`
	}
	return "", json.Unmarshal([]byte(answer), out)
}

// unreached returns a server that cannot follow its apiservers. Upstream answers with 418.
func unreached(t *testing.T, secrets bool) *Server {
	t.Helper()
	return before(t, gone(), func(cfg *Config) { cfg.Secrets, cfg.Patience = secrets, time.Millisecond })
}

// before returns a server in front of an apiserver. Upstream answers with 418.
func before(t *testing.T, apiserver string, set func(*Config)) *Server {
	t.Helper()
	upstream := source.Defaults()
	upstream.Servers, upstream.HTTP = []string{apiserver}, httptest.NewTLSServer(nil).Client()
	client, err := source.New(upstream)
	if err != nil {
		t.Fatal(err)
	}
	reviews := guard.Defaults()
	reviews.Apiservers = everyone{}
	cfg := Defaults()
	if cfg.Guard, err = guard.New(reviews); err != nil {
		t.Fatal(err)
	}
	cfg.Source, cfg.Budget = client, budget.New(1<<20)
	set(&cfg)
	cfg.Upstream = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(); s.feeds.run.Wait() })
	return s
}

// Requests for Secrets are forwarded to an apiserver. The node follows no Secrets, neither for clients nor for
// other nodes. Resources of other groups with this name are not Secrets.
func TestSecretsArePassedOn(t *testing.T) {
	for _, c := range []struct {
		path            string
		secrets, passed bool
	}{
		{"/api/v1/secrets", false, true},
		{"/api/v1/namespaces/a/secrets?watch=1", false, true},
		{"/api/v1/namespaces/a/secrets/b?resourceVersion=0", false, true},
		{"/api/v1/secrets", true, false},
		{"/apis/example.com/v1/secrets", false, false},
		{"/api/v1/configmaps", false, false},
	} {
		s := unreached(t, c.secrets)
		r := get(c.path, "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		q, _ := parse(r)
		_, _ = s.Copy(t.Context(), q.resource, true) // a request of another node, which fails because nothing is loaded
		s.Keep(q.resource)
		if passed, held := w.Code == http.StatusTeapot, s.feeds.find(q.resource) != nil; passed != c.passed || held == c.passed {
			t.Errorf("%s with secrets=%t: status %d, followed: %t", c.path, c.secrets, w.Code, held)
		}
	}
}

// Lists and watches of a resource that no apiserver serves fail with 429 and Retry-After. Informers then retry,
// and do not list.
func TestAResourceThatCannotBeLoadedIsTriedAgain(t *testing.T) {
	s := unreached(t, false)
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/configmaps?watch=1&resourceVersion=7"} {
		r := get(path, "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"retryAfterSeconds":1`) {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// A get for the newest object is forwarded to an apiserver at once, because caches may not have it. No resource is
// followed for it.
func TestAGetWithoutAVersionIsPassedOn(t *testing.T) {
	s := unreached(t, false)
	r := get("/api/v1/namespaces/a/pods/b", "")
	r.Header.Set("Authorization", "Bearer a")
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != http.StatusTeapot || len(s.feeds.every()) > 0 {
		t.Errorf("status %d %s, %d resources are followed", w.Code, w.Body, len(s.feeds.every()))
	}
}

// Requests are forwarded if the apiserver refuses their resource, or sends it in a form that a feed cannot hold,
// as some aggregated APIs do.
func TestAResourceThatCannotBeFollowedIsPassedOn(t *testing.T) {
	for name, answer := range map[string][3]string{
		"refused":                  {"403", "application/json", `{"kind":"Status","apiVersion":"v1","code":403}`},
		"another encoding":         {"200", "text/html", "<p>"},
		"a version of two numbers": {"200", "application/json", `{"type":"ADDED","object":{"kind":"Thing","metadata":{"name":"a","resourceVersion":"1/2"}}}` + "\n"},
		"no version":               {"200", "application/json", `{"type":"ADDED","object":{"kind":"Thing","metadata":{"name":"a"}}}` + "\n"},
	} {
		to := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			code, _ := strconv.Atoi(answer[0])
			w.Header().Set("Content-Type", answer[1])
			w.WriteHeader(code)
			_, _ = io.WriteString(w, answer[2])
		})
		s := before(t, to, func(*Config) {})
		r := get("/apis/example.com/v1/things", "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusTeapot {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// Requests in protobuf or JSON that caches can answer in neither encoding load the resource in protobuf only. JSON
// is requested only if the apiserver has no protobuf of it.
func TestAPassedRequestLoadsNoOtherEncoding(t *testing.T) {
	for _, c := range []struct {
		path     string
		protobuf bool // the apiserver supports protobuf
		want     int
	}{
		{"things?watch=1&resourceVersion=5", true, http.StatusTeapot}, // below the window, with an unknown difference
		{"things?resourceVersion=5&resourceVersionMatch=Exact", true, http.StatusTeapot},
		{"things?resourceVersion=0&fieldSelector=spec.a%3Db", true, http.StatusTeapot},
		{"namespaces/a/things?resourceVersion=0", true, http.StatusTeapot},
		{"things?resourceVersion=0", true, http.StatusOK},
		{"things?resourceVersion=0", false, http.StatusOK},
	} {
		var asked [2]atomic.Int32 // requests by encoding
		to := answering(t, func(w http.ResponseWriter, r *http.Request) {
			enc := object.JSON
			if strings.Contains(r.Header.Get("Accept"), object.Protobuf.MediaType()) {
				enc = object.Protobuf
			}
			asked[enc].Add(1)
			if enc == object.Protobuf && !c.protobuf {
				w.WriteHeader(http.StatusNotAcceptable)
				return
			}
			w.Header().Set("Content-Type", enc.WatchType())
			thing, err := object.FromItem(enc, "v1", "Thing", []byte([]string{
				object.JSON: `{"metadata":{"name":"b","resourceVersion":"12"}}`, object.Protobuf: "\x0a\x07\x0a\x01b\x32\x0212",
			}[enc]))
			if err != nil {
				t.Error(err)
			}
			out := object.AppendEvent(nil, enc, object.Added, thing)
			_, _ = w.Write(object.AppendEvent(out, enc, object.Bookmark, object.NewBookmark(enc, "v1", "Thing", 20, true)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		s := before(t, to, func(*Config) {})
		r := get("/apis/example.com/v1/"+c.path, "application/vnd.kubernetes.protobuf, */*")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		held := s.feeds.find(source.Resource{Group: "example.com", Version: "v1", Name: "things", Encoding: object.JSON}) != nil
		if w.Code != c.want || held == c.protobuf || (asked[object.JSON].Load() > 0) == c.protobuf || asked[object.Protobuf].Load() == 0 {
			t.Errorf("%s with protobuf=%t: status %d, JSON followed: %t, JSON requested %d times: %s", c.path, c.protobuf, w.Code, held, asked[object.JSON].Load(), w.Body)
		}
	}
}

// If an apiserver refuses a resource to the node, or sends no objects, the feed that another node requests ends,
// and requests are forwarded without another attempt. An apiserver that is not ready, or does not have the
// resource yet, is tried again.
func TestARefusedResourceIsNotTriedByEachRequest(t *testing.T) {
	things := source.Resource{Group: "example.com", Version: "v1", Name: "things", Encoding: object.JSON}
	for name, c := range map[string]struct {
		code, ready int
		again       bool
	}{
		"refused":                          {http.StatusForbidden, http.StatusOK, false},
		"refused by one that is not ready": {http.StatusForbidden, http.StatusInternalServerError, true},
		"not there":                        {http.StatusNotFound, http.StatusOK, true},
		"no objects":                       {http.StatusOK, http.StatusOK, false},
	} {
		var tries atomic.Int32
		to := answering(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.WriteHeader(c.ready)
				return
			}
			tries.Add(1)
			w.WriteHeader(c.code)
		})
		s := before(t, to, func(*Config) {})
		s.Keep(things)
		testkit.Eventually(t, name+": the feed ends", func() bool { return s.feeds.find(things) == nil })
		tried := tries.Load()
		if _, err := s.Copy(t.Context(), things, false); errors.As(err, new(*kv.InvalidError)) == c.again {
			t.Errorf("%s: another node gets the error %v", name, err)
		}
		r := get("/apis/example.com/v1/things", "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusTeapot || (tries.Load() > tried) != c.again {
			t.Errorf("%s: status %d, %d attempts after the request, %d before", name, w.Code, tries.Load(), tried)
		}
	}
}

// Refusals are remembered up to a bound, the limit of followed resources, until they expire.
func TestRefusalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &feeds{cfg: &Config{MaxFeeds: 2, Logger: slog.New(slog.DiscardHandler)}, refused: map[source.Resource]time.Time{}}
		all := []source.Resource{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		known := func() (out []bool) {
			for _, r := range all {
				out = append(out, s.refuses(r))
			}
			return out
		}
		for _, r := range all {
			s.refuse(&feed{r: r, stop: func() {}}, source.ErrRefused)
		}
		if got := known(); !slices.Equal(got, []bool{true, true, false}) {
			t.Errorf("remembered of three refusals: %v, want the first two", got)
		}
		time.Sleep(refusedFor)
		s.refuse(&feed{r: all[2], stop: func() {}}, source.ErrRefused)
		if got := known(); !slices.Equal(got, []bool{false, false, true}) {
			t.Errorf("remembered after the first two have expired: %v, want the third", got)
		}
	})
}

// Lists and watches of cluster-scoped objects below a namespace are forwarded to an apiserver, which answers 404.
func TestNodesOfANamespaceArePassedOn(t *testing.T) {
	for _, c := range []struct {
		namespace, path string // of the object and of the request
		want            int
	}{
		{"", "things?resourceVersion=0", http.StatusOK},
		{"", "namespaces/a/things?resourceVersion=0", http.StatusTeapot},
		{"", "namespaces/a/things?watch=1&resourceVersion=0", http.StatusTeapot},
		{"a", "namespaces/a/things?resourceVersion=0", http.StatusOK},
		{"b", "namespaces/a/things?resourceVersion=0", http.StatusOK},
	} {
		to := answering(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			thing := fmt.Appendf(nil, `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"b","namespace":%q,"resourceVersion":"12"}}`, c.namespace)
			out := object.AppendEvent(nil, object.JSON, object.Added, thing)
			_, _ = w.Write(object.AppendEvent(out, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", 20, true)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		s := before(t, to, func(*Config) {})
		r := get("/apis/example.com/v1/"+c.path, "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s with an object in the namespace %q: status %d %s", c.path, c.namespace, w.Code, w.Body)
		}
	}
}

// A list or a watch without a version detects that the apiserver's etcd was restored to an earlier version. The
// node's watch of that apiserver would stay silent. The request is forwarded, and the feed ends.
func TestARestoredClusterIsNoticed(t *testing.T) {
	for _, query := range []string{"", "?watch=1"} {
		to := answering(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("watch") == "" {
				_, _ = io.WriteString(w, `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[]}`)
				return
			}
			_, _ = w.Write(object.AppendEvent(nil, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", 20, true)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		s := before(t, to, func(*Config) {})
		r := get("/apis/example.com/v1/things"+query, "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		q, _ := parse(r)
		if w.Code != http.StatusTeapot || s.feeds.find(q.resource) != nil {
			t.Fatalf("query %q: status %d %s, followed: %t", query, w.Code, w.Body, s.feeds.find(q.resource) != nil)
		}
	}
}

// For lists and watches without a version, the node itself sends a request to an apiserver. If the apiserver
// refuses that, the client's request is forwarded. After another failure the client gets 429 and retries. It never
// gets the node's error, after which an informer would list.
func TestAFailureOfTheNodesOwnRequestIsNotTheClients(t *testing.T) {
	var code atomic.Int32
	to := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			n := int(code.Load())
			w.WriteHeader(n)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","reason":"OfTheNode","code":%d}`, n)
			return
		}
		_, _ = w.Write(object.AppendEvent(nil, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", 20, true)))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := before(t, to, func(*Config) {})
	for answered, want := range map[int]int{
		http.StatusForbidden: http.StatusTeapot, http.StatusNotFound: http.StatusTeapot,
		http.StatusUnauthorized: http.StatusTooManyRequests, http.StatusRequestTimeout: http.StatusTooManyRequests, http.StatusTooManyRequests: http.StatusTooManyRequests,
		http.StatusInternalServerError: http.StatusTooManyRequests, http.StatusServiceUnavailable: http.StatusTooManyRequests, http.StatusGatewayTimeout: http.StatusTooManyRequests,
	} {
		code.Store(int32(answered))
		for _, query := range []string{"", "?watch=1", "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
			r := get("/apis/example.com/v1/things"+query, "")
			r.Header.Set("Authorization", "Bearer a")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if after := w.Header().Get("Retry-After"); w.Code != want || (after != "") != (want == http.StatusTooManyRequests) {
				t.Errorf("the node's request gets %d, and query %q gets %d, Retry-After %q: %s", answered, query, w.Code, after, w.Body)
			}
		}
	}
}

// A followed resource is withdrawn when a ready apiserver answers 404 for it: its watches end, and requests are
// forwarded. While the apiserver is not ready, like one that has just started, the feed stays. A preloaded
// resource that is withdrawn does not make the node unready.
func TestAResourceThatIsNotServedAnyMoreIsPassedOn(t *testing.T) {
	var refuses, ready atomic.Bool
	var refused atomic.Int32
	end := make(chan struct{})
	to := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/readyz":
			if refused.Add(1); !ready.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		case refuses.Load():
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(object.AppendEvent(nil, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", 20, true)))
			_ = http.NewResponseController(w).Flush()
			<-end
		}
	})
	things := source.Resource{Group: "example.com", Version: "v1", Name: "things", Encoding: object.JSON}
	s := before(t, to, func(cfg *Config) { cfg.Preload = []source.Resource{things} })
	ask := func(query string) *httptest.ResponseRecorder {
		r := get("/apis/example.com/v1/things"+query, "")
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	s.preload()
	if w := ask("?resourceVersion=0"); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	f := s.feeds.find(things)
	watched := make(chan int)
	go func() { watched <- ask("?watch=1&resourceVersion=20").Code }()
	refuses.Store(true)
	close(end)
	testkit.Eventually(t, "an apiserver that has just started refuses twice", func() bool { return refused.Load() >= 2 })
	for range 30 { // the failure and the state arrive in any order
		if w := ask("?resourceVersion=0"); w.Code != http.StatusOK || s.feeds.find(things) != f {
			t.Fatalf("the feed ended because of an apiserver that is not ready: %d %s", w.Code, w.Body)
		}
	}
	ready.Store(true)
	if code := <-watched; code != http.StatusOK && code != http.StatusTeapot { // the watch may begin after the feed has ended
		t.Errorf("the watch ends with %d", code)
	}
	<-f.ended
	if w := ask("?resourceVersion=0"); w.Code != http.StatusTeapot {
		t.Errorf("a list was not forwarded: %d %s", w.Code, w.Body)
	}
	if why := s.NotReady(); len(why) > 0 {
		t.Errorf("the node is not ready: %q", why)
	}
	if got, want := s.Report().Resources, []report.Resource{{Name: "things.v1.example.com", Encoding: "json", State: report.Withdrawn}}; !slices.Equal(got, want) {
		t.Errorf("the resource is reported as %+v, want withdrawn", got)
	}
}

// Many concurrent requests for one resource share one feed for each encoding.
func TestOneFeedForEachResourceAndEncoding(t *testing.T) {
	s := unreached(t, false)
	var mu sync.Mutex
	found := map[*feed]int{}
	var requests sync.WaitGroup
	for i := range 40 {
		requests.Go(func() {
			f := s.feeds.use(source.Resource{Version: "v1", Name: "configmaps", Encoding: []object.Encoding{object.JSON, object.Protobuf}[i%2]})
			defer f.release()
			mu.Lock()
			defer mu.Unlock()
			found[f]++
		})
	}
	requests.Wait()
	if len(found) != 2 || len(s.feeds.every()) != 2 {
		t.Errorf("requests found %d feeds for two encodings, %d feeds remain", len(found), len(s.feeds.every()))
	}
}

// Lists and initial events of a version that is not reached yet fail like an apiserver's. A reflector then knows
// that it need not list from the beginning.
func TestAVersionThatIsNotReachedYet(t *testing.T) {
	x := newFanned(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &answer{f: x.feed, q: &request{resource: pods(), version: 11}}
	_, listed := a.state(ctx)
	_, watched := (&stream{answer: a}).fromState(ctx)
	for _, err := range []error{listed, watched} {
		status, ok := errors.AsType[*object.Status](err)
		if !ok || status.Code != http.StatusGatewayTimeout || status.Reason != "Timeout" || status.Cause != "ResourceVersionTooLarge" || status.RetryAfter != 1 {
			t.Errorf("got %+v", err)
		}
	}
}

// The last frame of a watch that ends, for example in a drain, is a bookmark. Its client resumes after all events
// up to the newest version, including events that its selector does not match.
func TestTheLastFrameOfAWatchIsABookmark(t *testing.T) {
	x := newFanned(t)
	k := kinds[2]
	joined, alone := x.view(t, k.namespace, k.labels, k.fields, 0, k.matches), x.view(t, k.namespace, k.labels, k.fields, 0, k.matches)
	joined.step(t)
	for _, app := range []string{"a1", "a2", "a2"} {
		x.change(t, &pod{"n0", "p" + app, app, "h1", 0}, false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, v := range []*viewer{joined, alone} {
		v.last(ctx)
		if body := v.body.String(); strings.Count(body, `"BOOKMARK"`) != 1 || !strings.HasSuffix(body, "}\n") || !strings.Contains(body[strings.Index(body, `"BOOKMARK"`):], `"resourceVersion":"13"`) {
			t.Errorf("the watch ends with %s", body)
		}
		x.check(t, v)
	}
}

// A watch lasts at least a second, even if it has to end at once: a reflector lists again after a shorter watch
// without an event.
func TestNoWatchEndsWithinItsFirstSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFanned(t)
		began := time.Now()
		v := x.view(t, "", "", "", 0, nil)
		v.began = began
		v.last(t.Context())
		if took := time.Since(began); took != upstream.ShortestWatch {
			t.Errorf("the watch ended after %v", took)
		}
		x.stop()
	})
}
