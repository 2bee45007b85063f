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

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// outcome is how a call ended.
type outcome struct {
	user string
	err  error
}

// Callers with the same token share one answer of etcd, even if a caller stops waiting.
func TestWaitingCallersShareTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   codes.Code
	}{
		"taken":   {nil, codes.OK},
		"refused": {rpctypes.ErrGRPCInvalidAuthToken, codes.Unauthenticated},
		"silence": {errors.New("etcd does not answer"), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := make(chan error)
				e := &fake{confirm: func(context.Context, string) error { return <-answer }}
				g := guarded(t, e, nil)
				token := signed(`{"username":"ann"}`)
				done := make(chan outcome)
				call := func(ctx context.Context) {
					go func() {
						user, err := g.Caller(ctx)
						done <- outcome{user, err}
					}()
					synctest.Wait()
				}
				gone, cancel := context.WithCancel(calling(t, "token", token))
				call(calling(t, "token", token))
				call(gone)
				call(calling(t, "token", token))
				cancel()
				if got := <-done; !errors.Is(got.err, context.Canceled) || got.user != "" {
					t.Errorf("the caller that stops waiting: %q, %v", got.user, got.err)
				}
				answer <- c.answer
				for range 2 {
					got := <-done
					if status.Code(got.err) != c.want || (got.user == "ann") != (c.want == codes.OK) {
						t.Errorf("%q, %v, want %v", got.user, got.err, c.want)
					}
				}
				if n := e.count("confirm"); n != 1 {
					t.Errorf("etcd was asked %d times", n)
				}
			})
		})
	}
}

// After a change of users and roles, no caller reads with an earlier confirmation while etcd is asked.
func TestCallersWaitAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		e := &fake{confirm: accepted}
		g := guarded(t, e, nil)
		g.Learn(t.Context(), "ann", "x")
		if _, err := g.Caller(calling(t, "token", "x")); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.revision++
		e.confirm = func(context.Context, string) error { return <-answer }
		e.mu.Unlock()
		g.look(t.Context())
		done := make(chan outcome, 2)
		for range 2 {
			go func() {
				user, err := g.Caller(calling(t, "token", "x"))
				done <- outcome{user, err}
			}()
			synctest.Wait()
		}
		if len(done) > 0 {
			t.Errorf("a caller did not wait for etcd: %+v", <-done)
		}
		answer <- rpctypes.ErrGRPCInvalidAuthToken
		for range 2 {
			if got := <-done; !errors.Is(got.err, rpctypes.ErrGRPCInvalidAuthToken) || got.user != "" {
				t.Errorf("%q, %v", got.user, got.err)
			}
		}
	})
}

// If etcd hangs, a token that it has accepted is trusted after the patience, and any other token is refused after
// five seconds.
func TestPatienceWithAnEtcdThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{confirm: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }}
		g := guarded(t, e, nil)
		g.Learn(t.Context(), "ann", "x")
		began := time.Now()
		if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil || time.Since(began) != g.cfg.Patience {
			t.Errorf("%q, %v after %v, want %v", user, err, time.Since(began), g.cfg.Patience)
		}
		g.heard(true)
		began = time.Now()
		if _, err := g.Caller(calling(t, "token", signed(`{"username":"ann"}`))); status.Code(err) != codes.Unavailable || time.Since(began) != unknownPatience {
			t.Errorf("%v after %v, want %v", err, time.Since(began), unknownPatience)
		}
	})
}

// The user of a signed token is confirmed once, the token itself repeatedly.
func TestTheUserOfASignedTokenIsConfirmedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{confirm: accepted}
		g := guarded(t, e, nil)
		for range 3 {
			if user, err := g.Caller(calling(t, "token", signed(`{"username":"ann"}`))); user != "ann" || err != nil {
				t.Fatalf("%q, %v", user, err)
			}
			time.Sleep(2 * g.cfg.Confirm)
		}
		if confirmed, asked := e.count("confirm"), e.count("owner"); confirmed != 3 || asked != 1 {
			t.Errorf("confirmed %d times, asked for its user %d times", confirmed, asked)
		}
		e.owner = refusedToken3
		if user, err := g.Caller(calling(t, "token", signed(`{"username":"bob"}`))); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
			t.Errorf("a token that etcd refuses as bob's counts as %q's: %v", user, err)
		}
	})
}

func refusedToken3(context.Context, string, string) error { return rpctypes.ErrGRPCInvalidAuthToken }

// A token of the maximum length is looked up.
func TestTheLongestToken(t *testing.T) {
	g := guarded(t, &fake{confirm: accepted}, nil)
	for bytes, lookups := range map[int]int64{maxToken: 1, maxToken + 1: 0} {
		before := g.Status().Lookups
		if _, err := g.Caller(calling(t, "token", strings.Repeat("x", bytes))); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
			t.Error(err)
		}
		if n := g.Status().Lookups - before; n != lookups {
			t.Errorf("%d bytes: looked up %d times, want %d", bytes, n, lookups)
		}
	}
}

// A call without a token is refused while authentication is on, and refusals are counted.
func TestACallWithoutATokenIsRefused(t *testing.T) {
	g := guarded(t, &fake{confirm: accepted}, nil)
	g.Learn(t.Context(), "ann", "x")
	if user, err := g.Caller(t.Context()); !errors.Is(err, rpctypes.ErrGRPCUserEmpty) {
		t.Errorf("%q, %v", user, err)
	}
	if _, err := g.Caller(calling(t, "token", "x")); err != nil {
		t.Error(err)
	}
	if _, err := g.Caller(calling(t, "token", "stranger")); err == nil {
		t.Error("a call without a token is accepted")
	}
	if err := g.MayRead("ann", kv.Single("a")); !errors.Is(err, rpctypes.ErrGRPCPermissionDenied) {
		t.Errorf("ann has no rights: %v", err)
	}
	if err := g.MayRead("", kv.Single("a")); !errors.Is(err, rpctypes.ErrGRPCUserEmpty) {
		t.Errorf("an anonymous caller: %v", err)
	}
	if s := g.Status(); s.Refused != 1 || s.Denied != 1 {
		t.Errorf("%d refused, %d denied", s.Refused, s.Denied)
	}
}

// A caller that stops waiting does not make its token refused.
func TestACanceledCallIsNoRefusal(t *testing.T) {
	g := guarded(t, &fake{confirm: accepted}, func(c *Config) { c.MaxLookups = 1 })
	token := signed(`{"username":"ann"}`)
	g.lookups <- struct{}{}
	ctx, cancel := context.WithCancel(calling(t, "token", token))
	cancel()
	if _, err := g.Caller(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-g.lookups
	if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Errorf("%q, %v", user, err)
	}
}

// Every error with which etcd rejects a token ends the trust in the token.
func TestEveryRefusalOfEtcdEndsTrust(t *testing.T) {
	for _, refusal := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty} {
		synctest.Test(t, func(t *testing.T) {
			e := &fake{confirm: accepted}
			g := guarded(t, e, nil)
			g.Learn(t.Context(), "ann", "x")
			if _, err := g.Caller(calling(t, "token", "x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * g.cfg.Confirm)
			e.confirm = func(context.Context, string) error { return refusal }
			if _, err := g.Caller(calling(t, "token", "x")); !errors.Is(err, refusal) {
				t.Errorf("%v: %v", refusal, err)
			}
			e.confirm = silent
			time.Sleep(2 * refusedFor)
			if user, err := g.Caller(calling(t, "token", "x")); err == nil {
				t.Errorf("after %v, with etcd down, the token counts as %s's", refusal, user)
			}
		})
	}
}

// A guard asks etcd every second until it has an answer, then once a poll.
func TestIntervalsOfRequestsToEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{away: errors.New("etcd does not answer")}
		cfg := quick(e)
		cfg.Poll = time.Minute
		g := start(t, cfg)
		synctest.Wait()
		if g.Trouble() == "" || g.Status().Known {
			t.Error("a guard without known rights allows a read")
		}
		time.Sleep(10*time.Second + soon/2)
		if n := e.count("authenticated"); n != 11 {
			t.Errorf("asked %d times in ten seconds, want 11", n)
		}
		e.mu.Lock()
		e.away = nil
		e.mu.Unlock()
		time.Sleep(soon)
		if g.Trouble() != "" || !g.Status().Known {
			t.Errorf("a second after etcd has answered: %s", g.Trouble())
		}
		before := e.count("authenticated")
		time.Sleep(10 * time.Minute)
		if n := e.count("authenticated") - before; n < 10 || n > 12 {
			t.Errorf("asked %d times in ten minutes, want 10 to 12", n)
		}
	})
}

// etcd is not asked while other reads often enough prove that authentication is off; it is asked at once after
// a read that finds authentication on.
func TestOtherReadsReplaceTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{grants: func() (etcdroles.Grants, error) { return etcdroles.Grants{}, nil }}
		cfg := quick(e)
		cfg.Poll = Defaults().Poll
		g := start(t, cfg)
		prove := func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.open = time.Now()
		}
		for range 100 {
			prove()
			time.Sleep(cfg.Poll)
		}
		if n := e.count("authenticated"); n != 1 {
			t.Errorf("asked %d times while reads proved it, want 1", n)
		}
		time.Sleep(100 * cfg.Poll)
		if n := e.count("authenticated"); n < 99 {
			t.Errorf("asked %d times within 100 polls without a proof", n)
		}
		prove()
		time.Sleep(cfg.Poll) // the last request has been sent
		prove()
		e.mu.Lock()
		e.on, e.revision, e.open = true, 1, time.Time{}
		e.mu.Unlock()
		e.ended.Notify()
		synctest.Wait()
		if s := g.Status(); !s.On {
			t.Errorf("%+v when a read has found that authentication is on", s)
		}
		before := e.count("status")
		prove() // a proof from before authentication was turned on
		time.Sleep(10 * cfg.Poll)
		if n := e.count("status") - before; n < 10 {
			t.Errorf("asked %d times for changes of rights within 10 polls", n)
		}
	})
}
