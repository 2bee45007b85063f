package etcdroles_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// The verdicts equal etcd's: the model in model_test.go only implements etcd's documentation.
func TestVerdictsOfEtcd(t *testing.T) {
	rng := testseed.Rand(t)
	s := etcdtest.Start(t)
	ctx := t.Context()
	free := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(free.UserAdd(ctx, "root", "secret"))
	must(free.UserGrantRole(ctx, "root", "root"))
	must(free.UserAdd(ctx, "u", "secret"))
	must(free.RoleAdd(ctx, "r"))
	must(free.UserGrantRole(ctx, "u", "r"))
	must(free.AuthEnable(ctx))
	as := func(user string) *clientv3.Client {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: []string{s.Endpoint()}, Username: user, Password: "secret", Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cli.Close() })
		return cli
	}
	root, user := as("root"), as("u")
	seen := map[bool]int{}
	for range 60 {
		// etcd keeps one permission for a range: the last granted.
		byRange := map[[2]string]etcdroles.Permission{}
		for _, p := range randomPermissions(rng) {
			kind := clientv3.PermissionType(clientv3.PermWrite)
			if p.Read {
				kind = []clientv3.PermissionType{clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermReadWrite)}[rng.IntN(2)]
			}
			must(root.RoleGrantPermission(ctx, "r", p.Key, p.RangeEnd, kind))
			byRange[[2]string{p.Key, p.RangeEnd}] = p
		}
		var permissions []etcdroles.Permission
		for _, p := range byRange {
			permissions = append(permissions, p)
		}
		table := one(permissions)
		for range 20 {
			key, end := randomEnd(rng, 1), randomEnd(rng, 0)
			_, err := user.Get(ctx, key, clientv3.WithRange(end), clientv3.WithCountOnly())
			if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Fatal(err)
			}
			got := table.MayRead("u", requested(key, end))
			if end != "" && end != "\x00" && end <= key && got && err != nil {
				continue // an empty range: etcd's verdict depends on the shape of its tree
			}
			if got != (err == nil) {
				t.Errorf("%#v with %q: got %v, etcd says %v", permissions, []string{key, end}, got, err)
			}
			seen[err == nil]++
		}
		for r := range byRange {
			must(root.RoleRevokePermission(ctx, "r", r[0], r[1]))
		}
	}
	if seen[true] < 50 || seen[false] < 50 {
		t.Errorf("verdicts: %v: the test must try both", seen)
	}
	t.Logf("verdicts: %v", seen)
}
