package etcdauth

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Before etcd has answered, all reads fail with a retryable error.
func TestReadsFailBeforeEtcdHasAnswered(t *testing.T) {
	g, err := New(quick(&fake{}))
	if err != nil {
		t.Fatal(err)
	}
	_, errCaller := g.Caller(calling(t, "token", "x"))
	for name, err := range map[string]error{"caller": errCaller, "read": g.MayRead("", kv.Single("a")), "root": g.MayRead("root", kv.Single("a"))} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := g.Status(); s.Known || s.On {
		t.Errorf("status %+v", s)
	}
}

func TestRights(t *testing.T) {
	s := etcdtest.Start(t)
	log := &lines{}
	cfg := quick(account(t, s, "root"))
	cfg.Logger = logTo(log)
	g := start(t, cfg)
	settled(t, g, false)
	if user, err := g.Caller(calling(t, "token", "whatever")); user != "" || err != nil {
		t.Errorf("without authentication: %q, %v", user, err)
	}
	if err := g.MayRead("", kv.Range{}); err != nil {
		t.Errorf("without authentication: %v", err)
	}
	before := g.Changed()
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "/a/", "/a0", "k", "", "x", "\x00")
	<-before
	settled(t, g, true)
	follows(t, g, s)
	for _, c := range []struct {
		caller string
		r      kv.Range
		want   error
	}{
		{"ann", kv.Prefix("/a/"), nil},
		{"ann", kv.Single("/a/1"), nil},
		{"ann", kv.Single("k"), nil},
		{"ann", kv.Range{Start: "y"}, nil},
		{"ann", kv.Prefix("/a"), rpctypes.ErrGRPCPermissionDenied},
		{"ann", kv.Range{Start: "/a/"}, rpctypes.ErrGRPCPermissionDenied},
		{"ann", kv.Prefix("k"), rpctypes.ErrGRPCPermissionDenied},
		{"ann", kv.Range{}, rpctypes.ErrGRPCPermissionDenied},
		{"bob", kv.Single("k"), rpctypes.ErrGRPCPermissionDenied},
		{"root", kv.Range{}, nil},
		{"", kv.Single("k"), rpctypes.ErrGRPCUserEmpty}, // a watch from before authentication
	} {
		if err := g.MayRead(c.caller, c.r); !errors.Is(err, c.want) {
			t.Errorf("%q, %v: %v, want %v", c.caller, c.r, err, c.want)
		}
	}
	// The right is revoked, and waiters are notified.
	before = g.Changed()
	began := time.Now()
	if _, err := root.UserRevokeRole(t.Context(), "ann", "ann"); err != nil {
		t.Fatal(err)
	}
	<-before
	follows(t, g, s)
	t.Logf("right revoked after %v, with a poll interval of %v", time.Since(began), cfg.Poll)
	if err := g.MayRead("ann", kv.Single("k")); !errors.Is(err, rpctypes.ErrGRPCPermissionDenied) {
		t.Errorf("without the role: %v", err)
	}
	if _, err := root.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(t, g, false)
	if err := g.MayRead("", kv.Range{}); err != nil {
		t.Errorf("authentication is off: %v", err)
	}
	testkit.Succeeds(t, "each change is logged once", func() error {
		if on, off := log.count("authentication is on:"), log.count("authentication is off:"); on != 1 || off != 1 {
			return fmt.Errorf("%d lines for on, %d lines for off", on, off)
		}
		return nil
	})
}

// If the account may not read users and roles, all reads are denied.
func TestAccountMayNotReadUsers(t *testing.T) {
	for _, user := range []string{"", "ann", "none such"} {
		t.Run("as "+user, func(t *testing.T) {
			s := etcdtest.Start(t)
			log := &lines{}
			cfg := quick(account(t, s, user))
			cfg.Logger = logTo(log)
			g := start(t, cfg)
			settled(t, g, false)
			root := s.AuthOn()
			etcdtest.Permit(t, root, "ann", "k", "")
			token := s.Token("root")
			denied := func() error {
				_, err := g.Caller(calling(t, "token", token))
				if err == nil {
					err = g.MayRead("root", kv.Single("k"))
				}
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--etcd-user must name a user with the role root") {
					return errors.New("got " + status.Convert(err).String())
				}
				return nil
			}
			testkit.Succeeds(t, "no user may read", denied)
			testkit.Succeeds(t, "the reason is logged", func() error {
				if log.count("level=WARN") == 0 || log.count("--etcd-user") == 0 {
					return errors.New(log.b.String())
				}
				return nil
			})
			if user == "ann" { // the operator's remedy
				if _, err := root.UserGrantRole(t.Context(), "ann", "root"); err != nil {
					t.Fatal(err)
				}
				settled(t, g, true)
				if err := g.MayRead("ann", kv.Single("k")); err != nil {
					t.Error(err)
				}
				if _, err := root.UserRevokeRole(t.Context(), "ann", "root"); err != nil {
					t.Fatal(err)
				}
				testkit.Succeeds(t, "no user may read again", denied)
			}
			if n := log.count("level=WARN"); n > 2 {
				t.Errorf("warned %d times:\n%s", n, log.b.String())
			}
			if _, err := root.AuthDisable(t.Context()); err != nil {
				t.Fatal(err)
			}
			settled(t, g, false)
		})
	}
}

// While etcd is unavailable, its last answer applies.
func TestRightsStayValidWhileEtcdIsUnavailable(t *testing.T) {
	s := etcdtest.Start(t)
	g := start(t, quick(account(t, s, "root")))
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "k", "")
	settled(t, g, true)
	follows(t, g, s)
	s.Stop()
	testkit.Succeeds(t, "the guard notices that etcd is down", func() error {
		if !g.away() {
			return errors.New("not yet")
		}
		return nil
	})
	if err := g.MayRead("ann", kv.Single("k")); err != nil {
		t.Error(err)
	}
	if err := g.MayRead("ann", kv.Single("l")); !errors.Is(err, rpctypes.ErrGRPCPermissionDenied) {
		t.Error(err)
	}

	// A node that starts now gets the rights from another node.
	late := quick(account(t, s, "root"))
	late.Peers = peersOf(t, g)
	g2 := start(t, late)
	settled(t, g2, true)
	for key, want := range map[string]error{"k": nil, "l": rpctypes.ErrGRPCPermissionDenied} {
		if err := g2.MayRead("ann", kv.Single(key)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", key, err, want)
		}
	}
	if err := g2.MayRead("root", kv.Range{}); err != nil {
		t.Error(err)
	}
	s.Restart()
	if _, err := s.As("root").UserRevokeRole(t.Context(), "ann", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Checker{g, g2} {
		testkit.Succeeds(t, "the guard asks etcd again", func() error {
			if err := g.MayRead("ann", kv.Single("k")); err == nil {
				return errors.New("still allowed")
			}
			return nil
		})
	}
}

// A node without known rights shares none, and a node without authentication reports that it is off.
func TestNodesShareOnlyKnownRights(t *testing.T) {
	nothing, err := New(quick(&fake{}))
	if err != nil {
		t.Fatal(err)
	}
	off := start(t, quick(&fake{}))
	settled(t, off, false)
	on := start(t, quick(&fake{on: true, revision: 7, grants: func() (etcdroles.Grants, error) { return etcdroles.Grants{}, nil }}))
	settled(t, on, true)
	for name, c := range map[string]struct {
		peers []*Checker
		want  *known
	}{
		"nobody":  {nil, nil},
		"nothing": {[]*Checker{nothing}, nil},
		"off":     {[]*Checker{nothing, off}, &known{}},
		"on":      {[]*Checker{off, on, nothing}, &known{on: true, revision: 7}}, // strict when they differ
	} {
		cfg := quick(&fake{})
		cfg.Peers = peersOf(t, c.peers...)
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := g.askRights(t.Context())
		if (got == nil) != (c.want == nil) || got != nil && (got.on != c.want.on || got.revision != c.want.revision || got.denied != nil) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// If users and roles change while they are read, rights that were never granted together must not result.
func TestRightsReadWhileTheyChange(t *testing.T) {
	e := &fake{on: true, revision: 1}
	read := func(key string) []etcdroles.Permission { return []etcdroles.Permission{{Key: key, Read: true}} }
	readings := []etcdroles.Grants{
		// ann is in r, and r has nothing secret; then ann leaves r, then r gets
		// the secret: a read in between sees both.
		{Users: map[string][]string{"ann": {"r"}, "bob": {"s"}}, Roles: map[string][]etcdroles.Permission{"r": read("secret"), "s": read("b")}},
		{Users: map[string][]string{"bob": {"s"}, "cid": {"s"}}, Roles: map[string][]etcdroles.Permission{"r": read("secret"), "s": read("b")}},
		{Users: map[string][]string{"bob": {"s"}, "cid": {"s"}}, Roles: map[string][]etcdroles.Permission{"r": read("secret"), "s": read("b")}},
	}
	e.grants = func() (etcdroles.Grants, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		n := e.calls["grants"]
		if n < len(readings) {
			e.revision++ // during the read
		}
		return readings[min(n, len(readings))-1], nil
	}
	g, err := New(quick(e))
	if err != nil {
		t.Fatal(err)
	}
	allowed := func() (got string) {
		for user, key := range map[string]string{"ann": "secret", "bob": "b", "cid": "b"} {
			if g.MayRead(user, kv.Single(key)) == nil {
				got += user + " "
			}
		}
		return got
	}
	g.look(t.Context())
	if got := allowed(); got != "bob " {
		t.Errorf("after the first look: %q", got)
	}
	g.look(t.Context())
	if got := allowed(); !strings.Contains(got, "bob ") || !strings.Contains(got, "cid ") || strings.Contains(got, "ann") {
		t.Errorf("after the second look: %q", got)
	}
	if n := e.count("grants"); n != 3 {
		t.Errorf("read %d times", n)
	}
	g.look(t.Context())
	if n := e.count("grants"); n != 3 {
		t.Errorf("read %d times without a change", n)
	}
	g.cfg.Reread = time.Nanosecond
	g.look(t.Context())
	if n := e.count("grants"); n != 4 {
		t.Errorf("read %d times, want a reread after the interval", n)
	}
}

// While authentication is off, no raft proposals are made at etcd.
func TestNoRaftProposalsWhileAuthenticationIsOff(t *testing.T) {
	e := &fake{}
	g, err := New(quick(e))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		g.look(t.Context())
	}
	if e.count("authenticated") != 3 || e.count("status")+e.count("grants") != 0 {
		t.Errorf("calls: %v", e.calls)
	}
}

// A node with authentication off asks no other node while etcd is unavailable; a node at which it is turned off
// notifies its watches.
func TestANodeKnowsThatAuthenticationIsOff(t *testing.T) {
	e := &fake{on: true, revision: 3, grants: func() (etcdroles.Grants, error) { return etcdroles.Grants{}, nil }}
	cfg := quick(e)
	cfg.Peers = peersOf(t, knowing(t, 9, "k"))
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.look(t.Context())
	changed := g.Changed()
	e.on = false
	g.look(t.Context())
	select {
	case <-changed:
	default:
		t.Error("watches are not notified that authentication was turned off")
	}
	if s := g.Status(); !s.Known || s.On {
		t.Fatalf("%+v", s)
	}
	e.away = errors.New("etcd does not answer")
	g.look(t.Context())
	if s := g.Status(); !s.Known || s.On {
		t.Errorf("known rights are replaced by another node's: %+v", s)
	}
}

// Only etcd's root role may administer; other users are counted as denied.
func TestRootAdministers(t *testing.T) {
	g := knowing(t, 3, "k")
	table := etcdroles.Grants{Users: map[string][]string{"ann": {"r"}, "op": {etcdroles.RootRole}}}.Table()
	now := *g.rights.Load()
	now.table = table
	g.set(&now)
	for user, may := range map[string]bool{"op": true, "ann": false, "nobody": false, "": false} {
		if err := g.MayAdminister(user); (err == nil) != may {
			t.Errorf("%q: %v", user, err)
		}
	}
	if n := g.Status().Denied; n != 2 {
		t.Errorf("%d were denied", n)
	}
	if table.Root("nobody") || table.Root("ann") || !table.Root("op") {
		t.Error("the wrong users have the root role")
	}
}

// All etcd users may read the shard map, whatever their rights. Before etcd has answered, a node with an
// account expects authentication to be on; a node without an account, which could serve no reads then, allows
// it.
func TestUsersMayReadTheShardMap(t *testing.T) {
	g := knowing(t, 3, "k")
	for user, want := range map[string]error{"ann": nil, "nobody": rpctypes.ErrGRPCPermissionDenied, "": rpctypes.ErrGRPCUserEmpty} {
		if err := g.MayLook(user); !errors.Is(err, want) {
			t.Errorf("%q: %v", user, err)
		}
	}
	if n := g.Status().Denied; n != 1 {
		t.Errorf("%d were denied", n)
	}
	g.set(&known{})
	if err := g.MayLook(""); err != nil {
		t.Errorf("authentication is off: %v", err)
	}
	g.set(&known{on: true, denied: wire.Denied(unreadable)})
	if err := g.MayLook("ann"); !wire.IsDenied(err) {
		t.Errorf("users are unknown: %v", err)
	}
	for _, account := range []bool{false, true} {
		fresh, err := New(quick(&fake{account: account}))
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.MayLook(""); wire.IsUnavailable(err) != account || err != nil && !account {
			t.Errorf("before etcd's first answer, account %v: %v", account, err)
		}
	}
}
