package etcdauth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func accepted(context.Context, string) error     { return nil }
func refusedToken(context.Context, string) error { return rpctypes.ErrGRPCInvalidAuthToken }
func silent(context.Context, string) error       { return errors.New("etcd does not answer") }

// A token that etcd has refused is forgotten: it allows no reads while etcd is down later.
func TestRefusedTokenIsNotTrustedWhileEtcdIsAway(t *testing.T) {
	for name, token := range map[string]string{"given out": "x", "signed": signed(`{"username":"ann"}`)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fake{confirm: accepted}
				g := guarded(t, e, nil)
				if name == "given out" {
					g.Learn(t.Context(), "ann", token)
				}
				call := func() (string, error) { return g.Caller(calling(t, "token", token)) }
				if user, err := call(); user != "ann" || err != nil {
					t.Fatalf("%q, %v", user, err)
				}
				time.Sleep(2 * g.cfg.Confirm)
				e.confirm = refusedToken
				if _, err := call(); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
					t.Fatalf("etcd refuses it: %v", err)
				}
				e.confirm = silent
				for range 10 { // beyond the time for which the refusal is cached
					if user, err := call(); err == nil {
						t.Fatalf("etcd is down, and the refused token counts as %q's", user)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// A refusal is cached only briefly: another node may get the token meanwhile.
func TestRefusalIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{confirm: refusedToken}
		g := guarded(t, e, nil)
		token := signed(`{"username":"ann"}`)
		call := func() error { _, err := g.Caller(calling(t, "token", token)); return err }
		for range 2 {
			if err := call(); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
				t.Fatal(err)
			}
		}
		if n := e.count("confirm"); n != 1 {
			t.Errorf("etcd was asked %d times within a moment, want 1", n)
		}
		e.confirm = accepted
		time.Sleep(refusedFor + time.Millisecond)
		if err := call(); err != nil {
			t.Errorf("after %v: %v", refusedFor, err)
		}
	})
}

// A confirmation counts from its start, and for the users and roles known then: etcd may have used these.
func TestConfirmationCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(fake)
		g := guarded(t, e, func(c *Config) { c.Patience = time.Hour })
		e.confirm = accepted
		g.Learn(t.Context(), "ann", "x")
		call := func() {
			t.Helper()
			if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
				t.Fatalf("%q, %v", user, err)
			}
		}
		changes := func() {
			e.mu.Lock()
			e.revision++
			e.mu.Unlock()
			g.look(t.Context())
		}
		asked := func(what string, want int) {
			t.Helper()
			before := e.count("confirm")
			call()
			if n := e.count("confirm") - before; n != want {
				t.Errorf("%s: etcd was asked %d times, want %d", what, n, want)
			}
		}
		asked("the first use", 1)
		asked("the next", 0)
		e.confirm = func(context.Context, string) error { changes(); return nil }
		changes()
		asked("after a change, with another one meanwhile", 1)
		e.confirm = accepted
		asked("the change of meanwhile", 1)
		asked("nothing has changed", 0)

		time.Sleep(2 * g.cfg.Confirm)
		e.confirm = func(context.Context, string) error { time.Sleep(g.cfg.Confirm * 3 / 4); return nil }
		call()
		e.confirm = accepted
		time.Sleep(g.cfg.Confirm / 2)
		asked("longer than the interval since the last question began", 1)
	})
}

// After etcd has not answered, only trusted tokens are accepted without etcd for a while. Then it is asked again,
// or as soon as it answers any request.
func TestSilenceOfEtcdIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{confirm: accepted}
		g := guarded(t, e, nil)
		g.Learn(t.Context(), "ann", "x")
		asks := func(what string, want int) {
			t.Helper()
			before := e.count("confirm")
			if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
				t.Errorf("%s: %q, %v", what, user, err)
			}
			if n := e.count("confirm") - before; n != want {
				t.Errorf("%s: etcd was asked %d times, want %d", what, n, want)
			}
		}
		asks("the first use", 1)
		time.Sleep(2 * g.cfg.Confirm)
		e.confirm = silent
		asks("silent", 1)
		asks("still silent", 0)
		if _, err := g.Caller(calling(t, "token", signed(`{"username":"ann"}`))); status.Code(err) != codes.Unavailable {
			t.Errorf("a token that etcd has never accepted: %v", err)
		}
		time.Sleep(awayFor + time.Millisecond)
		asks("after a while", 1)
		g.look(t.Context()) // etcd answers
		e.confirm = accepted
		asks("etcd has answered", 1)
	})
}

// A token is confirmed again at exactly these intervals.
func TestIntervalsOfConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guarded(t, new(fake), func(c *Config) { c.Confirm = time.Hour })
		taken := time.Now()
		time.Sleep(10 * time.Hour)
		for _, c := range []struct {
			age      time.Duration
			revision uint64
			want     need
		}{
			{0, 5, fresh},
			{time.Hour, 5, fresh},
			{time.Hour + 1, 5, due},
			{90 * time.Minute, 5, due},
			{90*time.Minute + 1, 5, must},
			{0, 4, must},
			{0, 6, fresh},
			{10 * time.Hour, 6, must},
		} {
			if got := g.need(holder{user: "ann", taken: time.Now().Add(-c.age), revision: c.revision}, 5); got != c.want {
				t.Errorf("%v old, at revision %d: %v, want %v", c.age, c.revision, got, c.want)
			}
		}
		if got := g.need(holder{user: "ann", revision: 5}, 5); got != must {
			t.Errorf("never accepted: %v", got)
		}
		for _, c := range []struct {
			h    holder
			want bool
		}{
			{holder{}, false},
			{holder{taken: taken}, true},
			{holder{taken: taken, revision: 4}, true},
			{holder{taken: taken, claimed: true, revision: 4}, false},
			{holder{taken: taken, claimed: true, revision: 5}, true},
			{holder{claimed: true, revision: 5}, false},
		} {
			if got := c.h.trusted(5); got != c.want {
				t.Errorf("%+v: trusted %v", c.h, got)
			}
		}
	})
}

// A token longer than any of etcd's is refused without parsing it.
func TestALongTokenIsRefused(t *testing.T) {
	e := &fake{confirm: accepted}
	g := guarded(t, e, nil)
	token := signed(`{"username":"` + strings.Repeat("a", maxToken) + `"}`)
	if _, err := g.Caller(calling(t, "token", token)); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) || e.count("confirm") > 0 {
		t.Errorf("%v; etcd was asked %d times", err, e.count("confirm"))
	}
}
