package lineage

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// While a node checks whether --etcd is wrong, etcd is replaced by another cluster, and the next lineage begins.
// The finding of the previous lineage does not apply to the new one, so the node continues.
func TestANodeThatEntersTheNextLineageContinues(t *testing.T) {
	l := &Keeper{known: true}
	l.over.Store(&kv.HistoryError{Cause: kv.CauseCluster, Was: kv.Mark{Cluster: 1}, Is: kv.Mark{Cluster: 2}})
	if err := l.WrongCluster(); err != nil {
		t.Fatalf("a node that has read its etcd stops: %v", err)
	}
	l.mu.Lock()
	judged := make(chan error)
	go func() { judged <- l.WrongCluster() }()
	time.Sleep(20 * time.Millisecond) // long enough for WrongCluster to wait for the lock; a shorter sleep hides the defect, but the test still passes
	l.known = false
	l.over.Store(nil)
	l.mu.Unlock()
	if err := <-judged; err != nil {
		t.Errorf("a node that has just entered a lineage stops: %v", err)
	}
	l.over.Store(&kv.HistoryError{Cause: kv.CauseCluster, Was: kv.Mark{Cluster: 1}, Is: kv.Mark{Cluster: 2}})
	if l.WrongCluster() == nil {
		t.Error("a node that has read only the wrong etcd continues")
	}
}
