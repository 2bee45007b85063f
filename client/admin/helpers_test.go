package admin_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	start    = scripted.Start
	deadline = scripted.Deadline
)

func connect(t testing.TB, cluster *clienttest.Cluster) *admin.Client {
	t.Helper()
	return admin.New(scripted.Connect(t, cluster))
}
