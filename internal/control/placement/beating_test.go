package placement

import (
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Only raft's heartbeats wait for a beat: changes of the map are sent at once. A heartbeat is not
// delayed if raft's timeouts are too short for that.
func TestHeartbeatsAreSentAtTicks(t *testing.T) {
	open := func(heartbeat time.Duration) (transport, raft.ServerAddress) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Address: l.Addr().String(), Members: func() []shard.Member { return nil }, Logger: slog.New(slog.DiscardHandler), Heartbeat: heartbeat}
		p := openPort(l)
		tr := openTransport(&cfg, p, 0, func(raft.ServerID) raft.ServerAddress { return raft.ServerAddress(cfg.Address) }, newRaftLogger(cfg.Logger))
		t.Cleanup(func() {
			if err := tr.close(); err != nil {
				t.Error(err)
			}
			if err := p.close(); err != nil {
				t.Error(err)
			}
		})
		return tr, raft.ServerAddress(cfg.Address)
	}
	follower, to := open(time.Second)
	follower.SetHeartbeatHandler(func(r raft.RPC) { r.Respond(&raft.AppendEntriesResponse{}, nil) })
	done := make(chan struct{})
	var answers sync.WaitGroup
	answers.Go(func() {
		for {
			select {
			case r := <-follower.Consumer():
				r.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-done:
				return
			}
		}
	})
	defer answers.Wait()
	defer close(done)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, Addr: []byte("leader")}
	heartbeat := &raft.AppendEntriesRequest{RPCHeader: header, Term: 1}
	change := &raft.AppendEntriesRequest{RPCHeader: header, Term: 1, Entries: []*raft.Log{{Index: 1, Term: 1}}}
	// early reports whether a request is answered before the beat that follows its start.
	early := func(from transport, request *raft.AppendEntriesRequest) bool {
		t.Helper()
		next := time.Now().Add(beat.Until(beat.Every))
		if err := from.AppendEntries("follower", to, request, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		return time.Now().Before(next)
	}
	leader, _ := open(heartbeats * beat.Every)
	for range 3 {
		if early(leader, heartbeat) {
			t.Error("a heartbeat was sent before the beat")
		}
	}
	for !early(leader, change) { // a request without delay is early unless it begins just before a beat
	}
	hasty, _ := open(heartbeats*beat.Every - 1)
	for !early(hasty, heartbeat) {
	}
	if _, ok := leader.Transport.(raft.WithPreVote); !ok {
		t.Error("raft cannot request a pre-vote")
	}
}
