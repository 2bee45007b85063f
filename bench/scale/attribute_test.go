package main

import (
	"testing"
	"time"
)

// traces is output of go tool pprof -traces -unit=ms.
const traces = `File: scale
Type: cpu
Duration: 1.50s, Total samples = 130ms
-----------+-------------------------------------------------------
      10ms   runtime.memmove
             github.com/hashicorp/memberlist.(*Memberlist).gossip
             github.com/hashicorp/memberlist.(*Memberlist).triggerFunc
-----------+-------------------------------------------------------
      30ms   syscall.Syscall
             google.golang.org/grpc/internal/transport.(*loopyWriter).run
-----------+-------------------------------------------------------
      20ms   runtime.mallocgc
             google.golang.org/grpc.(*Server).processUnaryRPC
             github.com/shardwatch/shardwatch/internal/testing/sim/memetcd.(*kvServer).Range
-----------+-------------------------------------------------------
      40ms   runtime.gcDrain
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
    5.50ms   github.com/hashicorp/raft.(*Raft).heartbeat
-----------+-------------------------------------------------------
      24ms   github.com/shardwatch/shardwatch/internal/etcd.(*Client).readHeader
-----------+-------------------------------------------------------
`

// CPU time counts for the first purpose on its stack; the runtime's own and the transport's count
// separately.
func TestCPUTimeIsAttributed(t *testing.T) {
	shares, err := sumUp([]byte(traces))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{
		"etcd, in the same process": 20 * time.Millisecond, gossiping: 10 * time.Millisecond, mapping: 5500 * time.Microsecond,
		"watches at etcd, and etcd's revision": 24 * time.Millisecond, transport: 30 * time.Millisecond, golang: 40 * time.Millisecond,
	}
	for _, s := range shares {
		if s.took != want[s.name] {
			t.Errorf("%s: %v, want %v", s.name, s.took, want[s.name])
		}
		delete(want, s.name)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
	if _, err := sumUp([]byte("x\n-----------+--\n  much   f\n")); err == nil {
		t.Error("text is taken for a duration")
	}
}
