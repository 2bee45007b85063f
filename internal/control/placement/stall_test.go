package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// halfDead is a voter that grants every vote and answers heartbeats. The test
// decides whether it appends.
type halfDead struct{ appends atomic.Bool }

func (h *halfDead) run(ctx context.Context, t *raft.InmemTransport) {
	for {
		select {
		case <-ctx.Done():
			return
		case rpc := <-t.Consumer():
			rpc.Respond(h.answer(rpc.Command))
		}
	}
}

func (h *halfDead) answer(command any) (any, error) {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
	switch c := command.(type) {
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{RPCHeader: header, Term: c.Term, Granted: true}, nil
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{RPCHeader: header, Term: c.Term, Granted: true}, nil
	case *raft.AppendEntriesRequest:
		last := c.PrevLogEntry + uint64(len(c.Entries))
		if last > 0 && !h.appends.Load() { // a heartbeat does not concern the log
			return nil, errors.New("the disk is full")
		}
		return &raft.AppendEntriesResponse{RPCHeader: header, Term: c.Term, LastLog: last, Success: true}, nil
	}
	return nil, fmt.Errorf("no answer to %T", command)
}

// A leader without a majority that appends stays if its own disk works. It continues
// as soon as the other voters append.
func TestLeaderWithoutMajorityStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		network, disk := NewMemNetwork(), NewMemDisk()
		var members []shard.Member
		var others halfDead
		for _, name := range []shard.NodeID{"n1", "n2", "n3"} {
			m := shard.Member{Name: name, UUID: "u-" + string(name), RaftAddress: string(name) + ":7402", BootstrapExpect: 3, State: shard.Alive, Since: time.Now()}
			if name == "n1" {
				m.UUID = disk.Identity()
			} else {
				go others.run(ctx, network.join(m.RaftAddress, 0))
			}
			members = append(members, m)
		}
		var log strings.Builder
		cfg := Defaults()
		cfg.Name, cfg.UUID, cfg.Address, cfg.BootstrapExpect = "n1", disk.Identity(), "n1:7402", 3
		cfg.Network, cfg.Disk = network, disk
		cfg.Spec = shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}
		cfg.Members = func() []shard.Member { return members }
		cfg.FoundingFacts = func(context.Context) (uint64, []string, error) { return 1, nil, nil }
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()

		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			t.Fatalf("the leader ended: %v", err)
		default:
		}
		if _, ok := p.Leader(); !ok || p.Map() != nil {
			t.Fatalf("leads: %v, map: %+v; the test needs a leader without a map", ok, p.Map())
		}
		others.appends.Store(true)
		time.Sleep(time.Minute)
		if p.Map() == nil {
			t.Error("the leader did not continue when the others appended")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := strings.Count(log.String(), "no majority of the voters confirms"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, &log)
		}
		time.Sleep(time.Minute) // raft's last calls end by their timeouts
	})
}

// Raft writes its unchanged term when it starts, on the caller's goroutine. This writes nothing,
// so a full disk does not end that goroutine.
func TestStartOfRaftWritesNoTerm(t *testing.T) {
	disk := NewMemDisk()
	s, err := disk.open(0, newRaftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stable.SetUint64([]byte(keyTerm), 7); err != nil {
		t.Fatal(err)
	}
	disk.Fail(true)
	stable := &fatalStore{StableStore: s.stable, failed: make(chan error, 1)}
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := errors.Join(stable.SetUint64([]byte(keyTerm), 7), stable.SetUint64([]byte("none"), 0)); err != nil {
			t.Error(err)
		}
		returned = true
		_ = stable.SetUint64([]byte(keyTerm), 8)
		t.Error("an unwritten term was accepted")
	}()
	<-done
	if err := <-stable.failed; !returned || !errors.Is(err, errUnwritten) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("returned: %v, failed with %v", returned, err)
	}
}
