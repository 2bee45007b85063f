package etcdapi_test

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// After every forwarded change of users or roles, the node reads them again before it acknowledges
// the change. It does not after reads and refused changes.
func TestChangesOfRightsAreReadAgain(t *testing.T) {
	e := etcdtest.Start(t)
	g := &known{&rights{changed: make(chan struct{})}}
	r := startPass(t, e.Endpoint(), func(c *etcdapi.Config) { c.Guard = g })
	auth, ctx := etcdserverpb.NewAuthClient(r.conn), within(t)
	for _, c := range []struct {
		what string
		call func() error
		want int32 // number of refreshes
	}{
		{"add a user", func() error {
			_, err := auth.UserAdd(ctx, &etcdserverpb.AuthUserAddRequest{Name: "root", Password: etcdtest.Password})
			return err
		}, 1},
		{"add a role", func() error {
			_, err := auth.RoleAdd(ctx, &etcdserverpb.AuthRoleAddRequest{Name: "root"})
			return err
		}, 1},
		{"grant a role", func() error {
			_, err := auth.UserGrantRole(ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
			return err
		}, 1},
		{"list users", func() error {
			_, err := auth.UserList(ctx, &etcdserverpb.AuthUserListRequest{})
			return err
		}, 0},
		{"turn it on", func() error {
			_, err := auth.AuthEnable(ctx, &etcdserverpb.AuthEnableRequest{})
			return err
		}, 1},
		{"ask whether it is on", func() error {
			_, err := auth.AuthStatus(ctx, &etcdserverpb.AuthStatusRequest{})
			return err
		}, 0},
	} {
		before := g.refreshed.Load()
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if n := g.refreshed.Load() - before; n != c.want {
			t.Errorf("%s: rights read %d times, want %d", c.what, n, c.want)
		}
	}
	if _, err := auth.RoleDelete(ctx, &etcdserverpb.AuthRoleDeleteRequest{Role: "root"}); err == nil {
		t.Error("a stranger has deleted a role")
	}
	if n := g.refreshed.Load(); n != 4 {
		t.Errorf("rights read %d times, want 4: a refused call changes nothing", n)
	}
	e.Stop()
	if _, err := auth.RoleDelete(ctx, &etcdserverpb.AuthRoleDeleteRequest{Role: "root"}); err == nil {
		t.Error("answered without etcd")
	}
	if n := g.refreshed.Load(); n != 5 {
		t.Errorf("rights read %d times, want 5: an interrupted call may have been applied", n)
	}
}
