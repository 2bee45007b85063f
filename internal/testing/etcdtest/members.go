//go:build unix

package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/freeport"
)

// StartMembers runs an etcd cluster of n members, each in a process of its own,
// until the test ends.
func StartMembers(t TB, n int) []*Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	peers, err := freeport.Take(n)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	names, cluster := make([]string, n), make([]string, n)
	for i, peer := range peers {
		names[i] = fmt.Sprintf("m%d", i+1)
		cluster[i] = names[i] + "=http://" + peer
	}
	members := make([]*Process, n)
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range members {
		members[i], err = NewProcess(ctx, ProcessConfig{
			Dir: t.TempDir(), Name: names[i], PeerAddr: peers[i], Cluster: strings.Join(cluster, ","),
		})
		if err != nil {
			t.Fatalf("prepare etcd: %v", err)
			return nil
		}
		t.Cleanup(func() { _ = members[i].Kill() }) // it may be gone
	}
	for i, m := range members {
		all.Go(func() { failed[i] = m.Start(ctx) }) // none serves before most do
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatalf("start etcd: %v", err)
			return nil
		}
	}
	return members
}
