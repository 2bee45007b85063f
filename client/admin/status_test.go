package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func TestStatusOfNodesAndCluster(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 2})
	cluster.Put("/a", "1")
	c := connect(t, cluster)
	members, err := c.Members(deadline(t))
	if err != nil || len(members) != 3 || members[0].Name != "n1" || members[0].State != admin.MemberAlive {
		t.Errorf("members: %+v, %v", members, err)
	}
	m, err := c.ShardMap(deadline(t))
	if err != nil || len(m.Shards) != 2 || m.Shards[0].Range != client.Between("", "/m") || m.Shards[1].Range != client.Between("/m", "") || m.Shards[1].Owner() != "n2" {
		t.Errorf("map: %+v, %v", m, err)
	}
	s, err := c.Status(deadline(t), cluster.Endpoints()[2])
	if err != nil || s.Self.Name != "n3" || len(s.Replicas) != 1 || s.EtcdRevision != 2 {
		t.Errorf("status: %+v, %v", s, err)
	}
	cluster.Nodes()[2].Kill()
	cs, err := c.ClusterStatus(deadline(t), time.Second)
	if err != nil || len(cs.Members) != 3 || cs.Members[2].Error == "" || cs.Members[2].Status != nil || cs.Members[0].Status == nil {
		t.Errorf("cluster: %+v, %v", cs, err)
	}
	if _, err := c.Status(deadline(t), cluster.Endpoints()[2]); err == nil {
		t.Error("status of a dead node")
	}
}

// The status of a cluster may be as large as its map, and is returned for any wait.
func TestStatusOfALargeCluster(t *testing.T) {
	var cuts []string
	for c := 'a'; c < 'j'; c++ {
		cuts = append(cuts, strings.Repeat(string(c), 1<<20)) // the map contains each key twice
	}
	c := connect(t, start(t, clienttest.Config{Nodes: 1, Cuts: cuts}))
	for _, wait := range []time.Duration{0, time.Hour} {
		if cs, err := c.ClusterStatus(deadline(t), wait); err != nil || len(cs.Map.Shards) != len(cuts)+1 {
			t.Errorf("wait %v: %d shards, %v", wait, len(cs.Map.Shards), err)
		}
	}
}
