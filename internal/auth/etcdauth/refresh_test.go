package etcdauth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// A change of users or roles through a node applies there, and at the nodes that it reaches, when it is
// acknowledged: no node polls in this test.
func TestRefreshBringsAChangeToAllNodes(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := quick(account(t, s, "root"))
	cfg.Poll = time.Hour
	b, c := start(t, cfg), start(t, cfg)
	cfg.Peers, cfg.PeerTimeout, cfg.RefreshTimeout = peersOf(t, b, c), patience, patience
	a := start(t, cfg)
	all := map[string]*Checker{"a": a, "b": b, "c": c}
	for _, g := range all {
		settled(t, g, false)
	}
	expect := func(what string, user string, want error) {
		t.Helper()
		a.Refresh(t.Context())
		for name, g := range all {
			if err := g.MayRead(user, kv.Single("k")); !errors.Is(err, want) {
				t.Errorf("%s: %s: %v, want %v", what, name, err, want)
			}
		}
	}
	root := s.AuthOn()
	expect("authentication is on", "", rpctypes.ErrGRPCUserEmpty)
	etcdtest.Permit(t, root, "ann", "k", "")
	expect("granted", "ann", nil)
	if _, err := root.RoleRevokePermission(t.Context(), "ann", "k", ""); err != nil {
		t.Fatal(err)
	}
	expect("revoked", "ann", rpctypes.ErrGRPCPermissionDenied)
	if _, err := root.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("authentication is off", "", nil)
}

// A look that began before a change may have missed it. So the change starts another look, shared by all changes
// that wait for it.
func TestRereadBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fake{on: true, revision: 1}
		held := make(chan struct{})
		e.grants = func() (etcdroles.Grants, error) {
			allowed := e.count("grants") > 1 // the state when the read began
			<-held
			out := etcdroles.Grants{Users: map[string][]string{"ann": {"r"}}, Roles: map[string][]etcdroles.Permission{"r": nil}}
			if allowed {
				out.Roles["r"] = []etcdroles.Permission{{Key: "k", Read: true}}
			}
			return out, nil
		}
		cfg := quick(e)
		cfg.Reread = time.Nanosecond // every look reads
		g, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() { g.Reread(t.Context()) })
		synctest.Wait() // the first look has read outdated rights
		for range 5 {
			all.Go(func() {
				g.Reread(t.Context())
				if err := g.MayRead("ann", kv.Single("k")); err != nil {
					t.Errorf("after the change: %v", err)
				}
			})
		}
		gone, leave := context.WithCancel(t.Context())
		all.Go(func() { g.Reread(gone) })
		synctest.Wait()
		leave()
		synctest.Wait() // the cancelled Reread has returned, or all.Wait would hang
		time.Sleep(time.Second)
		close(held)
		all.Wait()
		if n := e.count("grants"); n != 2 {
			t.Errorf("read %d times, want 2", n)
		}
	})
}
