package guard

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Remembers makes no review. An allow counts while the decision is valid, for the same credentials and request. A
// refusal does not count.
func TestRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiservers{users: map[string]string{"t": "alice", "u": "bob"}, allowed: map[string]bool{"alice": true}}
		g := newGuard(t, s, nil)
		asks := func(token string) *http.Request {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("X-Other", "value")
			return r
		}
		alice, bob := Again(asks("t")), Again(asks("u"))
		if len(alice.Header) != 1 || CredentialsOf(alice) == CredentialsOf(bob) || CredentialsOf(alice) != CredentialsOf(asks("t")) {
			t.Errorf("want only the credentials of each request; kept headers: %v", alice.Header)
		}
		if g.Remembers(alice, pods) {
			t.Error("Remembers reports an allow without a review")
		}
		for _, r := range []*http.Request{alice, bob} {
			id, status := g.Identify(r)
			if status != nil {
				t.Fatal(status)
			}
			if _, status := g.Allow(t.Context(), id, pods); status != nil {
				t.Fatal(status)
			}
		}
		asked := s.questions()
		whole := pods.Whole()
		for _, c := range []struct {
			what string
			r    *http.Request
			a    *Attributes
			want bool
		}{
			{"an allow", alice, pods, true},
			{"a refusal", bob, pods, false},
			{"of all namespaces", alice, &whole, false},
		} {
			if got := g.Remembers(c.r, c.a); got != c.want {
				t.Errorf("%s: remembered: %v", c.what, got)
			}
		}
		time.Sleep(10*time.Second - 1)
		if !g.Remembers(alice, pods) {
			t.Error("an allow is forgotten within its validity")
		}
		time.Sleep(time.Nanosecond)
		id, status := g.Identify(alice)
		if status != nil || id == nil {
			t.Fatal(status)
		}
		if g.Remembers(alice, pods) {
			t.Error("an allow is remembered beyond its validity")
		}
		if s.questions() != asked+1 { // the review of Identify
			t.Errorf("%d reviews, want only that of Identify", s.questions()-asked)
		}
	})
}
