package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// look makes each request that a node answers about the cluster.
func look(ctx context.Context, conn grpc.ClientConnInterface) map[string]error {
	out := make(map[string]error)
	cluster, admin := shardwatchv1.NewClusterServiceClient(conn), shardwatchv1.NewAdminServiceClient(conn)
	_, out["members"] = cluster.ListMembers(ctx, &shardwatchv1.ListMembersRequest{})
	_, out["status"] = cluster.Status(ctx, &shardwatchv1.StatusRequest{})
	following, stop := context.WithCancel(ctx)
	defer stop()
	s, err := cluster.WatchShardMap(following, &shardwatchv1.WatchShardMapRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	out["map"] = err
	_, out["status of all"] = admin.ClusterStatus(ctx, &shardwatchv1.ClusterStatusRequest{})
	_, out["trace"] = admin.TraceRevision(ctx, &shardwatchv1.TraceRevisionRequest{Revision: 1})
	_, out["etcd's members"] = etcdserverpb.NewClusterClient(conn).MemberList(ctx, &etcdserverpb.MemberListRequest{})
	return out
}

// unknown fails the test unless all requests were refused for lack of a user.
func unknown(t *testing.T, who string, errs map[string]error) {
	t.Helper()
	for what, err := range errs {
		switch {
		case what == "etcd's members":
			if !errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) && !errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
				t.Errorf("%s: %s: %v", who, what, err)
			}
		case status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "log in"):
			t.Errorf("%s: %s: %v", who, what, err)
		}
	}
}

// While etcd's authentication is on, a node shows the cluster only to etcd's users,
// whatever their rights. Clients log in before they follow the map, and continue to
// follow it when authentication is enabled under them.
func TestTheClusterIsForUsersWhileAuthenticationIsOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, shards(2, 2))
	c.account, c.etcd = "root", etcdtest.Start(t)
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	conn := c.nodes[0].dialRaw(insecure.NewCredentials())
	for what, err := range look(within(t), conn) {
		if err != nil {
			t.Errorf("authentication is off: %s: %v", what, err)
		}
	}
	s, err := shardwatchv1.NewClusterServiceClient(conn).WatchShardMap(within(t), &shardwatchv1.WatchShardMapRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	etcdtest.Permit(t, c.etcd.Client(), "ann")
	ann := c.connect(client.Config{RetryFor: patience, Username: "ann", Password: etcdtest.Password}, c.nodes)
	if _, err := admin.New(ann).ShardMap(within(t)); err != nil {
		t.Fatal(err)
	}
	c.etcd.AuthOn()
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a client without a user follows the map until %v", err)
	}
	for _, m := range c.nodes {
		testkit.Succeeds(t, m.name+" has learned of authentication", func() error {
			if err := look(within(t), m.dialRaw(insecure.NewCredentials()))["members"]; status.Code(err) != codes.Unauthenticated {
				return errors.New("members are listed without a user")
			}
			return nil
		})
		conn := m.dialRaw(insecure.NewCredentials())
		unknown(t, "without a token", look(within(t), conn))
		unknown(t, "a false token", look(metadata.AppendToOutgoingContext(within(t), "token", "false.1"), conn))
		login, err := etcdserverpb.NewAuthClient(conn).Authenticate(within(t), &etcdserverpb.AuthenticateRequest{Name: "ann", Password: etcdtest.Password})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range look(metadata.AppendToOutgoingContext(within(t), "token", login.GetToken()), conn) {
			if err != nil {
				t.Errorf("a user without rights: %s: %v", what, err)
			}
		}
	}
	for name, cl := range map[string]*client.Client{
		"of before": ann, "new": c.connect(client.Config{RetryFor: patience, Username: "ann", Password: etcdtest.Password}, c.nodes),
	} {
		all, err := admin.New(cl).ClusterStatus(within(t), time.Second)
		if err != nil || len(all.Members) != 2 || all.Members[0].Error+all.Members[1].Error != "" {
			t.Errorf("client %s: %+v, %v", name, all.Members, err)
		}
		if m, err := admin.New(cl).ShardMap(within(t)); err != nil || len(m.Shards) == 0 {
			t.Errorf("client %s: %+v, %v", name, m, err)
		}
	}
	stranger := c.connect(client.Config{RetryFor: patience}, c.nodes)
	if _, err := admin.New(stranger).Members(within(t)); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a client without a user: %v", err)
	}
}

// A caller with a name in the policy, from a certificate or a token, needs no etcd user
// to see the cluster, even while etcd is down; an anonymous caller needs one.
func TestTheClusterIsForNamesOfThePolicy(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, policyHead+webMay+`  - {match: [anonymous], roles: [web, operator]}
`)
	p.account, p.etcd = "root", etcdtest.Start(t)
	p.etcd.AuthOn()
	p.nodes[0].start()
	p.ready()
	_, anonymous := admin.New(p.native(who{})).ClusterStatus(within(t), time.Second)
	if !errors.Is(anonymous, client.ErrUnauthenticated) {
		t.Errorf("without a name: %v", anonymous)
	}
	unknown(t, "without a name", look(within(t), p.nodes[0].dialRaw(credentials.NewTLS(p.tls(who{})))))
	shows := func(when string) {
		t.Helper()
		for name, w := range map[string]who{"a certificate": {name: "web"}, "a token": {token: p.token("web", time.Hour)}} {
			cl := p.native(w)
			_, errMembers := admin.New(cl).Members(within(t))
			m, errMap := admin.New(cl).ShardMap(within(t))
			if err := errors.Join(errMembers, errMap); err != nil || len(m.Shards) == 0 {
				t.Errorf("%s: %s: %d shards, %v", when, name, len(m.Shards), err)
			}
		}
		if _, err := admin.New(p.native(who{name: "ops"})).ClusterStatus(within(t), time.Second); err != nil {
			t.Errorf("%s: an operator: %v", when, err)
		}
	}
	shows("etcd is up")
	p.etcd.Stop()
	shows("etcd is down")
}
