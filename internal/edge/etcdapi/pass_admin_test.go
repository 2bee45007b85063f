package etcdapi_test

import (
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// records are the records of an audit log.
type records chan string

func (r records) Write(p []byte) (int, error) {
	r <- string(p)
	return len(p), nil
}

// Without a policy, etcd decides who may administer it. Its denials are recorded as refusals, and refusals are
// recorded only in part.
func TestDenialsOfEtcdAreRecordedAsRefusals(t *testing.T) {
	e := etcdtest.Start(t)
	root := e.AuthOn()
	etcdtest.Permit(t, root, "ann")
	log := make(records, 10)
	auth := etcdserverpb.NewAuthClient(startPass(t, e.Endpoint(), func(c *etcdapi.Config) {
		c.Audit = authz.NewAudit(slog.New(slog.NewTextHandler(log, nil)))
	}).conn)
	for _, c := range []struct{ token, want string }{
		{e.Token("ann"), "msg=refused"}, {"nobody's", "msg=refused"}, {e.Token("root"), "msg=administration"},
	} {
		ctx := metadata.AppendToOutgoingContext(within(t), "token", c.token)
		_, err := auth.UserAdd(ctx, &etcdserverpb.AuthUserAddRequest{Name: "eve", Password: "hunter2"})
		if (err == nil) != (c.want == "msg=administration") {
			t.Errorf("%s: %v", c.want, err)
		}
		select {
		case got := <-log: // written before the call returns
			if !strings.Contains(got, c.want) || !strings.Contains(got, "Auth/UserAdd") || strings.Contains(got, "hunter2") {
				t.Errorf("%s: %s", c.want, got)
			}
		default:
			t.Errorf("%s: %v has no record in the audit log", c.want, err)
		}
	}
}
