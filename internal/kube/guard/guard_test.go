package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// apiservers answer reviews as the test configures, in fake time. test/kube has real apiservers.
type apiservers struct {
	mu       sync.Mutex
	asked    []string          // guarded by mu; the reviews
	allowed  map[string]bool   // guarded by mu; by user
	users    map[string]string // guarded by mu; by token
	fails    error             // guarded by mu; of each review
	notReady error             // guarded by mu
	takes    time.Duration     // guarded by mu; to answer a review
	partly   bool              // guarded by mu; only watches with a label selector are allowed
}

func (s *apiservers) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *apiservers) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *apiservers) Post(ctx context.Context, path string, in, out any) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	s.asked = append(s.asked, string(body))
	takes := s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if s.fails != nil {
		return "", s.fails
	}
	var answer string
	switch q := in.(type) {
	case *tokenReview:
		user := s.users[q.Spec.Token]
		answer = fmt.Sprintf(`{"status":{"authenticated":%t,"user":{"username":%q,"uid":"7","groups":["g","system:authenticated"],"extra":{"k":["v"]}}}}`, user != "", user)
	case *accessReview:
		answer = fmt.Sprintf(`{"status":{"allowed":%t}}`, s.allowed[q.Spec.User] && (!s.partly || strings.Contains(string(body), `"labelSelector"`)))
	default:
		return "", fmt.Errorf("question at %s", path)
	}
	return "one", json.Unmarshal([]byte(answer), out)
}

func (s *apiservers) Ready(_ context.Context, server string) error {
	if server != "one" {
		return fmt.Errorf("%q has not answered", server)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReady
}

var (
	errDown = errors.New("connection refused")
	alice   = &Identity{User: "alice", Groups: []string{"g"}}
	pods    = &Attributes{Verb: "watch", Version: "v1", Resource: "pods", Namespace: "n"}
)

func newGuard(t *testing.T, s *apiservers, change func(*Config)) *Guard {
	t.Helper()
	cfg := Defaults()
	cfg.Apiservers = s
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flood has one client send unknown tokens until the test ends, more than can be reviewed in time.
func flood(t *testing.T, g *Guard) {
	var all sync.WaitGroup
	for i := range 10 * atATime {
		all.Go(func() {
			r := withToken(fmt.Sprint("unknown", i))
			r.RemoteAddr = fmt.Sprintf("192.0.2.1:%d", 1024+i)
			_, _ = g.Identify(Again(r))
		})
	}
	t.Cleanup(all.Wait)
}

// While one client sends many unknown tokens, another client waits only for the running reviews, not for the
// queued ones. Reviews that time out in the queue do not mean that no apiserver answers.
func TestQuestionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{users: map[string]string{"b": "bob", "c": "bob"}, takes: 700 * time.Millisecond}
		g := newGuard(t, s, nil)
		flood(t, g)
		synctest.Wait()
		for _, token := range []string{"b", "c"} {
			began := time.Now()
			r := withToken(token)
			r.RemoteAddr = "192.0.2.2:1024"
			identified(t, g, r, "bob")
			if took := time.Since(began); took > 1400*time.Millisecond {
				t.Errorf("the other client waited for %v, want the running reviews at most", took)
			}
			time.Sleep(1700 * time.Millisecond) // 3.1 s after the flood, the second time
		}
		if st := g.Stats(); st.Failures != 0 || st.Refused == 0 {
			t.Errorf("stats %+v, want refusals and no failure", st)
		}
	})
}

// A client cannot prolong its rights by sending too many reviews: its last allows do not count. They count while
// no apiserver answers, however many reviews are queued.
func TestNoAllowCountsBecauseTooManyReviewsWait(t *testing.T) {
	for answers, want := range map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			s := &apiservers{allowed: map[string]bool{"alice": true}, users: map[string]string{"a": "alice"}}
			g := newGuard(t, s, nil)
			r := withToken("a")
			r.RemoteAddr = "192.0.2.1:1024"
			identified(t, g, r, "alice")
			may(t, g, alice, pods, http.StatusOK)
			s.set(func() {
				if s.takes, s.users, s.allowed = time.Hour, nil, nil; answers {
					s.takes = 700 * time.Millisecond
				}
			})
			time.Sleep(10 * time.Second)
			flood(t, g)
			var all sync.WaitGroup
			for i := range 10 * atATime {
				all.Go(func() {
					_, _ = g.Allow(t.Context(), alice, &Attributes{Verb: "watch", Version: "v1", Resource: "pods", Namespace: fmt.Sprint(i)})
				})
			}
			synctest.Wait()
			all.Go(func() { may(t, g, alice, pods, want) })
			got := http.StatusOK
			if _, status := g.Identify(r); status != nil {
				got = status.Code
			}
			if got != want {
				t.Errorf("with apiservers that answer: %v: the token gets status %d, want %d", answers, got, want)
			}
			all.Wait()
		})
	}
}

// If many clients need one review each at a time, as after a node's start, some reviews time out in the queue. The
// clients are not the cause, so their last allows count.
func TestManyClientsKeepTheirAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{}}
		g := newGuard(t, s, nil)
		users := make([]*Identity, 10*atATime)
		for i := range users {
			users[i] = &Identity{User: fmt.Sprint("user", i)}
			s.allowed[users[i].User] = true
			may(t, g, users[i], pods, http.StatusOK)
		}
		s.set(func() { s.takes = 700 * time.Millisecond })
		time.Sleep(10 * time.Second)
		var all sync.WaitGroup
		for _, u := range users {
			all.Go(func() { may(t, g, u, pods, http.StatusOK) })
		}
		all.Wait()
		if st := g.Stats(); st.Stale == 0 || st.Failures != 0 {
			t.Errorf("stats %+v, want stale allows and no failure", st)
		}
	})
}

// may requests one decision and compares it with want: 200 for allowed, 403 for denied, or else the status.
func may(t *testing.T, g *Guard, id *Identity, a *Attributes, want int) {
	t.Helper()
	got := http.StatusForbidden
	allowed, status := g.Allow(t.Context(), id, a)
	switch {
	case status != nil:
		if got = status.Code; status.RetryAfter == 0 {
			t.Errorf("status %d without Retry-After", got)
		}
	case allowed:
		got = http.StatusOK
	}
	if got != want {
		t.Errorf("user %s: status %d, want %d", id.User, got, want)
	}
}

func TestADecisionIsUsedForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{"alice": true}}
		g := newGuard(t, s, nil)
		may(t, g, alice, pods, http.StatusOK)
		s.set(func() { s.allowed["alice"] = false })
		time.Sleep(9 * time.Second)
		may(t, g, alice, pods, http.StatusOK)
		if n := s.questions(); n != 1 {
			t.Errorf("%d reviews within 10 s, want 1", n)
		}
		time.Sleep(time.Second)
		may(t, g, alice, pods, http.StatusForbidden)
		s.set(func() { s.allowed["alice"] = true })
		time.Sleep(9 * time.Second)
		may(t, g, alice, pods, http.StatusForbidden)
		time.Sleep(time.Second)
		may(t, g, alice, pods, http.StatusOK)
	})
}

// Many open watches of one identity, each with its own selector, need one review if the identity may watch the
// whole resource. If not, each watch is reviewed, and the whole resource is not reviewed again.
func TestOneReviewForAllWatchesOfAResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{"alice": true}}
		g := newGuard(t, s, nil)
		still := func(want bool) {
			t.Helper()
			for i := range 5 {
				a := &Attributes{Verb: "watch", Version: "v1", Resource: "pods", LabelSelector: fmt.Sprintf("n=%d", i)}
				if allowed, status := g.AllowStill(t.Context(), alice, a); allowed != want || status != nil {
					t.Errorf("watch %d is allowed: %v, %v; want %v", i, allowed, status, want)
				}
			}
		}
		for _, c := range []struct {
			name           string
			allowed, parts bool
			want           int
		}{
			{"all of the resource", true, false, 1},
			{"only parts, at first", true, true, 6},
			{"only parts, later", true, true, 5},
			{"nothing", false, false, 5},
		} {
			before := s.questions()
			s.set(func() { s.allowed["alice"], s.partly = c.allowed, c.parts })
			time.Sleep(10 * time.Second)
			still(c.allowed)
			if n := s.questions() - before; n != c.want {
				t.Errorf("%s: %d reviews, want %d", c.name, n, c.want)
			}
		}
	})
}

func TestTheLastAllowCountsWhileNoApiserverAnswers(t *testing.T) {
	for name, failure := range map[string]error{
		"down": errDown, "500": &object.Status{Code: 500}, "503": &object.Status{Code: 503}, "429": &object.Status{Code: 429},
		"our token is not known": &object.Status{Code: 401}, "our role is not known": &object.Status{Code: 403},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiservers{allowed: map[string]bool{"alice": true}}
				g := newGuard(t, s, nil)
				may(t, g, alice, pods, http.StatusOK)
				may(t, g, &Identity{User: "bob"}, pods, http.StatusForbidden)
				s.set(func() { s.fails = failure })
				time.Sleep(5 * time.Minute)
				may(t, g, alice, pods, http.StatusOK)
				may(t, g, &Identity{User: "bob"}, pods, http.StatusTooManyRequests)
				may(t, g, alice, &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "n"}, http.StatusTooManyRequests)
				time.Sleep(2 * time.Second)
				may(t, g, alice, pods, http.StatusTooManyRequests)
				s.set(func() { s.fails = nil })
				time.Sleep(pause)
				may(t, g, alice, pods, http.StatusOK)
				if st := g.Stats(); st.Stale != 1 || st.Refused != 3 || st.Failures != 2 {
					t.Errorf("stats %+v, want 1 stale allow, 3 refusals and 2 failures", st)
				}
			})
		})
	}
}

func TestAnApiserverThatStartsWithdrawsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{"alice": true}, users: map[string]string{"secret": "alice"}}
		g := newGuard(t, s, nil)
		r := withToken("secret")
		identified(t, g, r, "alice")
		may(t, g, alice, pods, http.StatusOK)
		s.set(func() { s.notReady, s.users, s.allowed = errDown, nil, nil })
		time.Sleep(time.Minute)
		identified(t, g, r, "alice")
		may(t, g, alice, pods, http.StatusOK)
		// Nor is a request refused that has no earlier decision, such as a request with a renewed token.
		time.Sleep(pause)
		if _, status := g.Identify(withToken("renewed")); status == nil || status.Code != http.StatusTooManyRequests {
			t.Errorf("an unknown token while no apiserver answers: %v, want 429", status)
		}
		time.Sleep(pause)
		may(t, g, &Identity{User: "bob"}, pods, http.StatusTooManyRequests)
		s.set(func() { s.notReady = nil })
		time.Sleep(pause)
		identified(t, g, r, "")
		may(t, g, alice, pods, http.StatusForbidden)
		s.set(func() { s.fails = errDown })
		time.Sleep(time.Minute)
		may(t, g, alice, pods, http.StatusTooManyRequests) // it has been withdrawn
		if _, status := g.Identify(r); status == nil || status.Code != http.StatusTooManyRequests {
			t.Errorf("a rejected token while no apiserver answers: %v, want 429", status)
		}
	})
}

// The right to a whole resource covers a watch of a part of it. If that watch is opened again while no apiserver
// answers, the review of the whole resource counts, not the review of the first request.
func TestAWatchOfAPartResumesWhileNoApiserverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{"alice": true}}
		g := newGuard(t, s, nil)
		may(t, g, alice, pods, http.StatusOK)
		for range 60 {
			time.Sleep(time.Minute)
			if allowed, status := g.AllowStill(t.Context(), alice, pods); !allowed || status != nil {
				t.Fatalf("allowed: %v, status %v", allowed, status)
			}
		}
		s.set(func() { s.fails = errDown })
		time.Sleep(4 * time.Minute)
		may(t, g, alice, pods, http.StatusOK)
		may(t, g, alice, &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "n"}, http.StatusTooManyRequests)
		time.Sleep(time.Minute + time.Second)
		may(t, g, alice, pods, http.StatusTooManyRequests)
	})
}

func withToken(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func identified(t *testing.T, g *Guard, r *http.Request, want string) {
	t.Helper()
	id, status := g.Identify(r)
	switch {
	case want == "" && (status == nil || status.Code != http.StatusUnauthorized):
		t.Errorf("identity %v, status %v; want 401", id, status)
	case want != "" && (status != nil || id.User != want):
		t.Errorf("identity %v, status %v; want %s", id, status, want)
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{users: map[string]string{"a": "alice", "b": "bob"}}
		g := newGuard(t, s, nil)
		for range 3 {
			identified(t, g, withToken("a"), "alice")
			identified(t, g, withToken("b"), "bob")
			identified(t, g, withToken("c"), "")
		}
		if n := s.questions(); n != 3 {
			t.Errorf("%d reviews for 3 tokens", n)
		}
		id, _ := g.Identify(withToken("a"))
		if id.UID != "7" || !slices.Equal(id.Groups, []string{"g", "system:authenticated"}) || !slices.Equal(id.Extra["k"], []string{"v"}) {
			t.Errorf("identity %+v", id)
		}
		for _, header := range []string{"", "Basic YTpi", "Bearer ", "Bearer"} {
			r := withToken("")
			r.Header.Set("Authorization", header)
			identified(t, g, r, "")
		}
		s.set(func() { delete(s.users, "b") })
		time.Sleep(10 * time.Second)
		identified(t, g, withToken("b"), "")
		s.set(func() { s.fails = errDown })
		time.Sleep(10 * time.Second)
		identified(t, g, withToken("a"), "alice")
		for _, unknown := range []string{"b", "c", "d"} {
			if _, status := g.Identify(withToken(unknown)); status == nil || status.Code != http.StatusTooManyRequests {
				t.Errorf("token %s while no apiserver answers: %v, want 429", unknown, status)
			}
		}
		time.Sleep(5 * time.Minute)
		if _, status := g.Identify(withToken("a")); status == nil || status.Code != http.StatusTooManyRequests {
			t.Errorf("a token whose last review expired minutes ago: %v, want 429", status)
		}
	})
}

func TestCertificates(t *testing.T) {
	g := newGuard(t, &apiservers{}, nil)
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "kubelet", Organization: []string{"nodes"}}, NotAfter: time.Now().Add(time.Hour)}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	identified(t, g, r, "") // a certificate that is presented but not verified
	r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
	identified(t, g, r, "kubelet")
	if id, _ := g.Identify(r); !slices.Equal(id.Groups, []string{"nodes", "system:authenticated"}) {
		t.Errorf("groups %v", id.Groups)
	}
	cert.NotAfter = time.Now().Add(-time.Second)
	identified(t, g, r, "")
	cert.NotAfter, cert.Subject.CommonName = time.Now().Add(time.Hour), ""
	identified(t, g, r, "")
}

func TestAQuestionIsAskedOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{allowed: map[string]bool{"alice": true}, takes: time.Second}
		g := newGuard(t, s, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { may(t, g, alice, pods, http.StatusOK) })
		}
		all.Wait()
		if n := s.questions(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
		// A caller that gives up does not cancel the review for the other callers.
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() { g.Allow(ctx, alice, pods) })
		synctest.Wait()
		all.Go(func() { may(t, g, alice, pods, http.StatusOK) })
		synctest.Wait()
		cancel()
		all.Wait()
		if n := s.questions(); n != 2 {
			t.Errorf("%d reviews, want 2", n)
		}
	})
}

func TestAReviewContainsAllInputsOfTheDecision(t *testing.T) {
	s := &apiservers{}
	g := newGuard(t, s, nil)
	id := &Identity{User: "u", UID: "i", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	a := &Attributes{Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "n", Name: "m", FieldSelector: "a=b", LabelSelector: "c=d"}
	may(t, g, id, a, http.StatusForbidden)
	const want = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"resourceAttributes":{"namespace":"n","verb":"list","group":"apps","version":"v1","resource":"deployments","name":"m","fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"rawSelector":"c=d"}},"user":"u","uid":"i","groups":["g"],"extra":{"k":["v"]}}}`
	if s.asked[0] != want {
		t.Errorf("sent %s\nwant %s", s.asked[0], want)
	}
	seen := map[key]string{keyOf(id, a): "the first"}
	differs := func(what string, id Identity, a Attributes) {
		k := keyOf(&id, &a)
		if seen[k] != "" {
			t.Errorf("%s shares the decision of %s", what, seen[k])
		}
		seen[k] = what
	}
	for i := range 4 {
		other := *id
		switch i {
		case 0:
			other.User = "x"
		case 1:
			other.UID = "x"
		case 2:
			other.Groups = []string{"x"}
		case 3:
			other.Extra = map[string][]string{"k": {"x"}}
		}
		differs(fmt.Sprintf("identity %d", i), other, *a)
	}
	for i := range 8 {
		other := *a
		*[]*string{&other.Verb, &other.Group, &other.Version, &other.Resource, &other.Namespace, &other.Name, &other.FieldSelector, &other.LabelSelector}[i] = "x"
		differs(fmt.Sprintf("attribute %d", i), *id, other)
	}
	// The same texts, split differently.
	differs("user of two", Identity{User: "u", UID: "i", Groups: []string{"g", "k"}, Extra: map[string][]string{"v": nil}}, *a)
}

func TestMemoryHasABound(t *testing.T) {
	s := &apiservers{allowed: map[string]bool{"alice": true}, users: map[string]string{"good": "alice"}}
	g := newGuard(t, s, func(c *Config) { c.Bytes = 64 << 10 })
	identified(t, g, withToken("good"), "alice")
	for n := range 1000 {
		identified(t, g, withToken(fmt.Sprint(n)), "")
		may(t, g, alice, &Attributes{Verb: "get", Name: fmt.Sprint(n)}, http.StatusOK)
	}
	if held := g.Stats().Bytes; held > 64<<10 || held < 16<<10 {
		t.Errorf("%d bytes are held, want at most %d, and at least a quarter of that", held, 64<<10)
	}
	asked := s.questions()
	identified(t, g, withToken("good"), "alice")
	may(t, g, alice, &Attributes{Verb: "get", Name: "999"}, http.StatusOK)
	if n := s.questions(); n != asked {
		t.Errorf("%d new reviews of the latest object and of a token that rejected tokens must not evict, want none", n-asked)
	}
	may(t, g, alice, &Attributes{Verb: "get", Name: "0"}, http.StatusOK)
	if n := s.questions(); n != asked+1 {
		t.Errorf("the oldest decision is still held")
	}
	long := &apiservers{users: map[string]string{"long": strings.Repeat("x", 64<<10)}}
	g = newGuard(t, long, func(c *Config) { c.Bytes = 64 << 10 })
	identified(t, g, withToken("long"), long.users["long"])
	if held := g.Stats().Bytes; held != 0 {
		t.Errorf("an identity above the size bound is held: %d bytes", held)
	}
}

func TestMistakesInTheConfig(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Apiservers = nil }, func(c *Config) { c.Fresh = 0 }, func(c *Config) { c.Timeout = 0 },
		func(c *Config) { c.Stale = -1 }, func(c *Config) { c.Bytes = 0 },
	} {
		cfg := Defaults()
		cfg.Apiservers = &apiservers{}
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("configuration %+v was accepted", cfg)
		}
	}
}
