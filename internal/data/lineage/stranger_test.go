package lineage

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// etcd is replaced by another cluster, and the next lineage begins while the node checks
// whether --etcd is wrong: the finding of the lineage before does not apply to the new
// one, and the node continues.
func TestANodeThatEntersTheNextLineageIsNoStranger(t *testing.T) {
	l := &Keeper{known: true}
	l.over.Store(&kv.HistoryError{Cause: kv.CauseCluster, Was: kv.Mark{Cluster: 1}, Is: kv.Mark{Cluster: 2}})
	if err := l.WrongCluster(); err != nil {
		t.Fatalf("a node that has read etcd before: %v", err)
	}
	l.mu.Lock()
	judged := make(chan error)
	go func() { judged <- l.WrongCluster() }()
	time.Sleep(20 * time.Millisecond) // long enough for WrongCluster to wait for the lock; less hides the defect, and fails nothing
	l.known = false
	l.over.Store(nil)
	l.mu.Unlock()
	if err := <-judged; err != nil {
		t.Errorf("a node that has just entered a lineage: %v", err)
	}
	l.over.Store(&kv.HistoryError{Cause: kv.CauseCluster, Was: kv.Mark{Cluster: 1}, Is: kv.Mark{Cluster: 2}})
	if l.WrongCluster() == nil {
		t.Error("a node that has seen only the wrong etcd continues")
	}
}
