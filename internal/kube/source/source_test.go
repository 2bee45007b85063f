package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// apiserver answers requests with scripts. A request without a script is a mistake of the test. test/kube does the
// same with real apiservers.
type apiserver struct {
	url    string
	client *http.Client

	mu     sync.Mutex
	script map[string]func(http.ResponseWriter, *http.Request) // guarded by mu; by query
	asked  []string                                            // guarded by mu
}

func serve(t *testing.T, script map[string]func(http.ResponseWriter, *http.Request)) *apiserver {
	t.Helper()
	a := &apiserver{script: script}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("allowWatchBookmarks")
		query.Del("resourceVersionMatch")
		a.mu.Lock()
		answer := a.script[query.Encode()]
		if answer == nil && query.Encode() == "limit=1" {
			answer = sends(200, false, current(1<<20)) // it has no older versions than others
		} else {
			a.asked = append(a.asked, query.Encode())
		}
		a.mu.Unlock()
		if answer == nil {
			t.Errorf("unexpected request %s", r.URL)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	a.url, a.client = s.URL, s.Client()
	return a
}

// sends returns a script that sends text, and with hold waits until the client disconnects.
func sends(code int, hold bool, text ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.Join(text, ""))
		if hold {
			w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's
			<-r.Context().Done()
		}
	}
}

func item(name string, version int) string {
	return fmt.Sprintf(`{"kind":"Thing","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"%d"}}`, name, version)
}

func event(typ, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", typ, object)
}

// current is a list of one page at a version.
func current(version int) string {
	return fmt.Sprintf(`{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, version)
}

func bookmark(version int, end bool) string {
	return event(object.Bookmark, string(object.NewBookmark(object.JSON, "v1", "Thing", int64(version), end)))
}

const gone = `{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old"}`

func follow(t *testing.T, gap source.Gap, servers ...*apiserver) *source.Source {
	t.Helper()
	return followOf(t, source.Resource{Version: "v1", Name: "things"}, gap, servers...)
}

func followOf(t *testing.T, r source.Resource, gap source.Gap, servers ...*apiserver) *source.Source {
	t.Helper()
	cfg := source.Defaults()
	cfg.HTTP = servers[0].client
	for _, a := range servers {
		cfg.Servers = append(cfg.Servers, a.url)
	}
	c, err := source.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.Source(r, gap)
}

// collect follows until an update is enough, or an error.
func collect(t *testing.T, s *source.Source, req kv.FollowRequest, enough func(kv.Update) bool) (told []string, err error) {
	t.Helper()
	for u, err := range s.Follow(t.Context(), req) {
		if err != nil {
			return told, err
		}
		switch u.Kind {
		case kv.UpdateBegin:
			told = append(told, fmt.Sprintf("begin %d leap=%v", u.Revision, u.Leap))
		case kv.UpdateState:
			for _, item := range u.KVs {
				told = append(told, fmt.Sprintf("state %s@%d", item.Key(), item.ModRevision()))
			}
			for _, key := range u.Gone {
				told = append(told, "gone "+key)
			}
		case kv.UpdateBatch:
			told = append(told, fmt.Sprintf("%v %s@%d", u.Batch.Events[0].Type, u.Batch.Events[0].KV.Key(), u.Batch.Revision))
		case kv.UpdateProgress:
			told = append(told, fmt.Sprintf("progress %d", u.Revision))
		default:
		}
		if enough(u) {
			return told, nil
		}
	}
	return told, nil
}

func progress(at kv.Revision) func(kv.Update) bool {
	return func(u kv.Update) bool { return u.Kind == kv.UpdateProgress && u.Revision == at }
}

const stream = "sendInitialEvents=true&watch=1"

func TestAStreamedListIsTheStateAtItsBookmark(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		stream: sends(200, true, event("ADDED", item("b", 5)), event("ADDED", item("a", 7)), event("ADDED", item("c", 6)), bookmark(7, false),
			event("MODIFIED", item("b", 8)), event("DELETED", item("c", 9)), bookmark(9, true),
			event("MODIFIED", item("a", 10)), event("DELETED", item("b", 12)), event("ADDED", item("b", 12)), bookmark(11, false), bookmark(20, false)),
	})
	s := follow(t, nil, a)
	told, err := collect(t, s, kv.FollowRequest{}, progress(20))
	want := []string{"begin 9 leap=false", "state //v1/things//a@7", "state //v1/things//b@8", "PUT //v1/things//a@10", "DELETE //v1/things//b@12", "progress 20"}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("got updates %q, %v\nwant %q", told, err, want)
	}
	if kind, ok := s.Kind(); !ok || kind != (source.Kind{APIVersion: "v1", Kind: "Thing"}) {
		t.Errorf("the kind is %v, known: %v", kind, ok)
	}
}

func TestAnApiserverThatDoesNotStreamListsIsPaged(t *testing.T) {
	page := `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"9"%s},"items":[%s]}`
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		stream:                       sends(422, false, `{"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}`),
		"limit=500":                  sends(200, false, fmt.Sprintf(page, `,"continue":"more"`, `{"metadata":{"name":"b","resourceVersion":"5"}}`)),
		"continue=more&limit=500":    sends(200, false, fmt.Sprintf(page, ``, `{"metadata":{"name":"a","resourceVersion":"6"}}`)),
		"resourceVersion=9&watch=1":  sends(200, true, bookmark(11, false)),
		"resourceVersion=11&watch=1": sends(200, true),
	})
	told, err := collect(t, follow(t, nil, a), kv.FollowRequest{}, progress(11))
	want := []string{"begin 9 leap=false", "state //v1/things//a@6", "state //v1/things//b@5", "progress 11"}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("got updates %q, %v\nwant %q", told, err, want)
	}
}

func TestAnotherApiserverIsAskedFirst(t *testing.T) {
	for name, refuses := range map[string]func(http.ResponseWriter, *http.Request){
		"410":             sends(410, false, gone),
		"410 as an event": sends(200, true, event("ERROR", gone)),
		"500":             sends(500, false, "broken"),
	} {
		a := serve(t, map[string]func(http.ResponseWriter, *http.Request){"resourceVersion=8&watch=1": refuses})
		b := serve(t, map[string]func(http.ResponseWriter, *http.Request){"resourceVersion=8&watch=1": sends(200, true, bookmark(12, false))})
		// Both certificates are issued by the CA of httptest.
		told, err := collect(t, follow(t, nil, a, b), kv.FollowRequest{From: 9}, progress(12))
		if err != nil || !slices.Contains(told, "progress 12") || len(a.asked) != 1 {
			t.Errorf("%s: got updates %q, %v, requests %q", name, told, err, a.asked)
		}
		_, err = collect(t, follow(t, nil, a), kv.FollowRequest{From: 9}, progress(12))
		var compacted *kv.CompactedError
		if errors.As(err, &compacted) != strings.HasPrefix(name, "410") || err == nil {
			t.Errorf("%s, without another apiserver: %v", name, err)
		}
	}
}

func TestALeapReportsTheHeldObjects(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		stream: sends(200, true, event("ADDED", item("a", 5)), event("ADDED", item("c", 15)), event("ADDED", item("d", 16)), bookmark(20, true)),
	})
	var told []string
	s := follow(t, func(after, before kv.Revision, held []*kv.KeyValue) {
		told = append(told, fmt.Sprintf("gap %d-%d", after, before))
		for _, item := range held {
			told = append(told, fmt.Sprintf("held %s@%d", item.Key(), item.ModRevision()))
		}
	}, a)
	held := func(yield func(*kv.KeyValue) bool) {
		for _, k := range []struct {
			name string
			at   kv.Revision
		}{{"a", 5}, {"b", 6}, {"c", 7}, {"e", 8}} {
			if !yield(kv.NewKeyValue(kv.Fields{Key: []byte("//v1/things//" + k.name), ModRevision: k.at})) {
				return
			}
		}
	}
	ready := func(u kv.Update) bool { return u.Kind == kv.UpdateReady }
	updates, err := collect(t, s, kv.FollowRequest{Held: held, HeldAt: 10}, ready)
	told = append(told, updates...)
	want := []string{
		"gap 10-20", "held //v1/things//b@6", "held //v1/things//c@7", "held //v1/things//e@8",
		"begin 20 leap=true", "state //v1/things//c@15", "state //v1/things//d@16", "gone //v1/things//b", "gone //v1/things//e",
	}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("got updates %q, %v\nwant %q", told, err, want)
	}
	_, err = collect(t, s, kv.FollowRequest{Held: held, HeldAt: 21}, ready)
	if !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("a state older than the held one: %v, want ErrOtherHistory", err)
	}
}

// A watch from a version that a restored etcd has not reached yet does not begin, because it would stay silent.
func TestAWatchOfARestoredEtcdDoesNotBegin(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		"limit=1":                   sends(200, false, current(7)),
		"resourceVersion=8&watch=1": sends(200, true),
	})
	ready := func(u kv.Update) bool { return u.Kind == kv.UpdateReady }
	_, err := collect(t, follow(t, nil, a), kv.FollowRequest{From: 9}, ready)
	var found *kv.ContradictionError
	if !errors.As(err, &found) || !found.Ahead {
		t.Errorf("%v", err)
	}
	a.script["limit=1"] = sends(200, false, current(8))
	if _, err := collect(t, follow(t, nil, a), kv.FollowRequest{From: 9}, ready); err != nil {
		t.Error(err)
	}
}

func TestWantedProgressIsProbed(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		"resourceVersion=8&watch=1": sends(200, true),
		"limit=1":                   sends(200, false, `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"30"},"items":[]}`),
		"resourceVersion=8&timeoutSeconds=4&watch=1": sends(200, false, event("ADDED", item("a", 25)), bookmark(30, false)),
	})
	want := new(kv.Demand)
	want.Ask(30)
	told, err := collect(t, follow(t, nil, a), kv.FollowRequest{From: 9, Want: want}, progress(30))
	if err != nil || !slices.Equal(told, []string{"begin 8 leap=false", "PUT //v1/things//a@25", "progress 30"}) {
		t.Errorf("got updates %q, %v", told, err)
	}
}

// The lease of Events deletes many of them in one version. All deletes of a version are one batch, whether a later
// version, a bookmark or a pause follows. In batches of their own, all deletes but the first would be dropped as
// duplicates. If the watch ends before the batch is complete, the source resumes before that version.
func TestEventsThatExpireTogetherAreAllDeleted(t *testing.T) {
	for name, after := range map[string]string{
		"another event": event("ADDED", item("d", 10)), "a bookmark": bookmark(10, false), "a bookmark of the version": bookmark(9, false), "a pause": "",
	} {
		for _, group := range []string{"", "events.k8s.io"} {
			a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
				"resourceVersion=8&watch=1": sends(200, true, event("DELETED", item("a", 9)), event("DELETED", item("b", 9)), event("DELETED", item("c", 9)), after),
			})
			var deleted []string
			s := followOf(t, source.Resource{Group: group, Version: "v1", Name: "events"}, nil, a)
			_, err := collect(t, s, kv.FollowRequest{From: 9}, func(u kv.Update) bool {
				for _, e := range u.Batch.Events {
					deleted = append(deleted, fmt.Sprintf("%v %s@%d", e.Type, e.KV.Key()[strings.LastIndexByte(string(e.KV.Key()), '/'):], u.Batch.Revision))
				}
				return len(u.Batch.Events) > 0
			})
			if want := []string{"DELETE /a@9", "DELETE /b@9", "DELETE /c@9"}; err != nil || !slices.Equal(deleted, want) {
				t.Errorf("%s of group %q after the deletes: got %q, %v", name, group, deleted, err)
			}
		}
	}
	twice := event("DELETED", item("a", 9)) + event("DELETED", item("b", 9))
	both := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		"resourceVersion=8&watch=1": sends(200, true, twice),
		"limit=1":                   sends(200, false, `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"30"},"items":[]}`),
		"resourceVersion=8&timeoutSeconds=4&watch=1": sends(200, false, twice, bookmark(30, false)),
	})
	want := new(kv.Demand)
	want.Ask(30)
	deleted := 0
	_, err := collect(t, followOf(t, source.Resource{Version: "v1", Name: "events"}, nil, both), kv.FollowRequest{From: 9, Want: want}, func(u kv.Update) bool {
		deleted += len(u.Batch.Events)
		return u.Kind == kv.UpdateProgress && u.Revision == 30
	})
	if err != nil || deleted != 2 {
		t.Errorf("two watches deliver the same deletes: got %d, want 2, %v", deleted, err)
	}
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		"resourceVersion=8&watch=1": sends(200, false, event("DELETED", item("a", 9))),
	})
	told, err := collect(t, followOf(t, source.Resource{Version: "v1", Name: "events"}, nil, a), kv.FollowRequest{From: 9}, progress(12))
	if want := []string{"begin 8 leap=false"}; err == nil || !slices.Equal(told, want) {
		t.Errorf("a watch that ends within the deletes: updates %q, %v", told, err)
	}
}

func TestMalformedEventsEndTheSource(t *testing.T) {
	for _, bad := range []string{
		event("ADDED", item("a/b", 9)), event("ADDED", item("", 9)), event("ADDED", item("a", 0)), event("RENAMED", item("a", 9)), event("ADDED", `[]`), "{}\n",
	} {
		a := serve(t, map[string]func(http.ResponseWriter, *http.Request){"resourceVersion=8&watch=1": sends(200, false, bad)})
		if told, err := collect(t, follow(t, nil, a), kv.FollowRequest{From: 9}, progress(12)); !errors.Is(err, object.ErrMalformed) || source.MayFollow(err) {
			t.Errorf("%s: got updates %q, %v", bad, told, err)
		}
	}
}

func TestPagesHaveABound(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){"limit=1": sends(200, false, strings.Repeat(" ", 200)+`{"metadata":{"resourceVersion":"5"},"items":[]}`)})
	for limit, want := range map[int]bool{300: true, 100: false} {
		cfg := source.Defaults()
		cfg.Servers, cfg.HTTP, cfg.MaxListBytes = []string{a.url}, a.client, limit
		c, err := source.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		version, err := c.Current(context.Background(), source.Resource{Version: "v1", Name: "things"})
		if (err == nil) != want || want && version != 5 || !want && !strings.Contains(err.Error(), "more than 100 bytes") {
			t.Errorf("a response bound of %d bytes: version %d, %v", limit, version, err)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	_, err := source.New(source.Config{Servers: []string{"http://a", "x"}})
	for _, want := range []string{`"http://a"`, `"x"`, "HTTP must be set", "MaxEventBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
}

func TestAResourceIsNamedByThePrefixOfItsKeys(t *testing.T) {
	for _, want := range []source.Resource{
		{Version: "v1", Name: "pods", Encoding: object.Protobuf},
		{Group: "apps", Version: "v1", Name: "deployments", Encoding: object.JSON},
	} {
		got, ok := source.ParseResource(want.Prefix(), want.Encoding.MediaType())
		if !ok || got != want {
			t.Errorf("%q parses as %v, %v; want %v", want.Prefix(), got, ok, want)
		}
	}
	for _, bad := range []string{"", "/", "pods", "//v1/pods", "//v1//", "///pods/", "x//v1/pods/", "//v1/pods/a", "//v1/pods/a/b"} {
		if got, ok := source.ParseResource(bad, object.JSON.MediaType()); ok {
			t.Errorf("%q is accepted as %v", bad, got)
		}
	}
	if got, ok := source.ParseResource("//v1/pods/", "application/cbor"); ok {
		t.Errorf("CBOR is accepted as %v", got)
	}
}

// Failure returns the newest failure until an update arrives.
func TestTheNewestFailureIsKnown(t *testing.T) {
	a := serve(t, map[string]func(http.ResponseWriter, *http.Request){
		stream: sends(http.StatusForbidden, false, `{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden","message":"things are not for you"}`),
		"":     sends(http.StatusOK, false), // of /readyz
	})
	s := follow(t, nil, a)
	if err := s.Failure(); err != nil {
		t.Errorf("a failure before the first request: %v", err)
	}
	first := func(kv.Update) bool { return true }
	if _, err := collect(t, s, kv.FollowRequest{}, first); err == nil {
		t.Error("a forbidden resource is followed")
	}
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), "things are not for you") {
		t.Errorf("failure %v lacks the apiserver's message", err)
	}
	a.mu.Lock()
	a.script[stream] = sends(http.StatusOK, true, bookmark(7, true))
	a.mu.Unlock()
	ready := func(u kv.Update) bool { return u.Kind == kv.UpdateReady }
	if _, err := collect(t, s, kv.FollowRequest{}, ready); err != nil || s.Failure() != nil {
		t.Errorf("after an update the failure is still %v; Follow returned %v", s.Failure(), err)
	}
}

// A 403 counts as a refusal only if the apiserver is ready. A 404 does not count.
func TestRefusalsNeedAReadyApiserver(t *testing.T) {
	for _, c := range []struct {
		code, ready int
		refused     bool
	}{
		{http.StatusForbidden, http.StatusOK, true},
		{http.StatusForbidden, http.StatusInternalServerError, false},
		{http.StatusNotFound, http.StatusOK, false},
		{http.StatusRequestTimeout, http.StatusOK, false},
	} {
		a := serve(t, map[string]func(http.ResponseWriter, *http.Request){stream: sends(c.code, false), "": sends(c.ready, false)})
		_, err := collect(t, follow(t, nil, a), kv.FollowRequest{}, progress(12))
		if errors.Is(err, source.ErrRefused) != c.refused || source.CodeOf(err) != c.code {
			t.Errorf("a response with %d from an apiserver whose /readyz answers %d: %v", c.code, c.ready, err)
		}
	}
}

// An apiserver that refuses requests while it starts becomes the last choice until others fail.
func TestAnApiserverThatIsNotReadyIsAvoided(t *testing.T) {
	var servers []string
	cfg := source.Defaults()
	for _, code := range []int{http.StatusForbidden, http.StatusOK} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.WriteHeader(code)
				return
			}
			_, _ = io.WriteString(w, "{}")
		}))
		defer s.Close()
		servers, cfg.HTTP = append(servers, s.URL), s.Client() // all servers have the same certificate
	}
	cfg.Servers = servers
	c, err := source.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, ready := range []bool{false, true, true} {
		server, err := c.Post(t.Context(), "/reviews", struct{}{}, &struct{}{})
		if want := servers[min(i, 1)]; err != nil || server != want {
			t.Fatalf("server %q answered, want %q: %v", server, want, err)
		}
		if err := c.Ready(t.Context(), server); (err == nil) != ready {
			t.Errorf("%q: %v", server, err)
		}
	}
}

// An apiserver that rejects this node's credentials, or does not answer for a while, does not decide a review.
// Another apiserver gets the request, and is preferred from then on.
func TestAnApiserverThatRefusesTheNodeDoesNotDecide(t *testing.T) {
	for code, decides := range map[int]bool{401: false, 403: false, 408: false, 429: false, 500: false, 400: true, 404: true, 422: true} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			var asked [2]int
			cfg := source.Defaults()
			for i := range asked {
				s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if asked[i]++; i == 0 {
						w.WriteHeader(code)
					}
					_, _ = io.WriteString(w, "{}")
				}))
				defer s.Close()
				cfg.Servers, cfg.HTTP = append(cfg.Servers, s.URL), s.Client() // all servers have the same certificate
			}
			c, err := source.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				server, err := c.Post(t.Context(), "/reviews", struct{}{}, &struct{}{})
				if decides && (server != cfg.Servers[0] || source.CodeOf(err) != code) || !decides && (server != cfg.Servers[1] || err != nil) {
					t.Errorf("server %q answered: %v", server, err)
				}
			}
			if want := map[bool][2]int{true: {2, 0}, false: {1, 2}}[decides]; asked != want {
				t.Errorf("requests by apiserver: %v, want %v", asked, want)
			}
		})
	}
}
