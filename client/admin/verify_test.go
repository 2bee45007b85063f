package admin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// A comparison whose node falls silent after the first shard fails, and does not restart on
// another node.
func TestVerifyAtASilentNode(t *testing.T) {
	t.Parallel() // it waits until the node counts as silent
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Zones: []string{"a", "b"}})
	c, answered := connectApart(t, cluster)
	if _, err := c.ShardMap(deadline(t)); err != nil {
		t.Fatal(err)
	}
	large := "/z" + strings.Repeat("z", 3<<20) // more bytes than arrive unread, so that the answer for the second shard is cut
	cluster.Put(large, "1")
	cluster.Corrupt("n1", large)
	var shards []uint64
	err := c.Verify(deadline(t), admin.VerifyRequest{}, func(v admin.VerifiedShard) error {
		shards = append(shards, v.Shard)
		answered().Stall()
		return nil
	})
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "silent") || len(shards) != 1 {
		t.Errorf("%v after shards %v", err, shards)
	}
}
