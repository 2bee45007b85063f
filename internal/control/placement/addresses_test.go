package placement

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestAddresses(t *testing.T) {
	n2 := shard.Member{Name: "n2", UUID: "b", RaftAddress: "n2:1", State: shard.Alive}
	with := func(f func(*shard.Member)) []shard.Member {
		m := n2
		f(&m)
		return []shard.Member{{Name: "n1", UUID: "a", RaftAddress: "n1:1", State: shard.Alive}, m}
	}
	const fallback = ""
	for name, c := range map[string]struct {
		members []shard.Member
		want    raft.ServerAddress
	}{
		"where gossip sees it":              {with(func(*shard.Member) {}), "n2:1"},
		"dead, and there last":              {with(func(m *shard.Member) { m.State = shard.Dead }), "n2:1"},
		"moved":                             {with(func(m *shard.Member) { m.RaftAddress = "other:1" }), "other:1"},
		"wiped":                             {with(func(m *shard.Member) { m.UUID = "c" }), goneAddress("n2/b")},
		"wiped and moved":                   {with(func(m *shard.Member) { m.UUID, m.RaftAddress = "c", "other:1" }), goneAddress("n2/b")},
		"wiped and dead":                    {with(func(m *shard.Member) { m.UUID, m.State = "c", shard.Dead }), goneAddress("n2/b")},
		"its address has another node":      {with(func(m *shard.Member) { m.Name, m.UUID = "n4", "d" }), goneAddress("n2/b")},
		"its address had another node":      {with(func(m *shard.Member) { m.Name, m.UUID, m.State = "n4", "d", shard.Dead }), fallback},
		"gossip does not know it":           {with(func(m *shard.Member) { m.Name, m.RaftAddress = "n3", "n3:1" }), fallback},
		"gossip knows its name alone":       {with(func(m *shard.Member) { m.UUID = "" }), fallback},
		"gossip does not know its address":  {with(func(m *shard.Member) { m.RaftAddress = "" }), fallback},
		"gossip shows it beside its double": {append(with(func(m *shard.Member) { m.UUID = "c" }), n2), "n2:1"},
	} {
		configured := func(raft.ServerID) raft.ServerAddress { return "n2:1" }
		got, err := (&addresses{members: func() []shard.Member { return c.members }, configured: configured}).ServerAddr("n2/b")
		if got != c.want || (err == nil) != (c.want != fallback) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// A voter that lost its disk and returned on its port is reached under its new
// identity only.
func TestWipedVoterIsReachedOnlyByItsNewIdentity(t *testing.T) {
	log := newRaftLogger(slog.New(slog.DiscardHandler))
	var members []shard.Member
	open := func() (transport, raft.ServerAddress) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Address: l.Addr().String(), Members: func() []shard.Member { return members }}
		p := openPort(l)
		tr := openTransport(&cfg, p, 0, func(raft.ServerID) raft.ServerAddress { return "" }, log)
		t.Cleanup(func() {
			if err := errors.Join(tr.close(), p.close()); err != nil {
				t.Error(err)
			}
		})
		return tr, raft.ServerAddress(cfg.Address)
	}
	wiped, at := open()
	asks, _ := open()
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			select {
			case rpc := <-wiped.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
			case <-stop:
				return
			}
		}
	}()
	ask := func(id raft.ServerID) (granted bool, err error) {
		var resp raft.RequestVoteResponse
		err = asks.RequestVote(id, at, &raft.RequestVoteRequest{Term: 1}, &resp)
		return resp.Granted, err
	}
	if granted, err := ask("n2/old"); !granted {
		t.Errorf("before gossip has the node, its old identity is not reached: %v", err)
	}
	members = []shard.Member{{Name: "n2", UUID: "new", RaftAddress: string(at), State: shard.Alive}}
	if granted, err := ask("n2/old"); granted || !errors.Is(err, errGone) {
		t.Errorf("asked under its old identity: %v, %v", granted, err)
	}
	if granted, err := ask("n2/new"); !granted {
		t.Errorf("asked under its new identity: %v", err)
	}
	if _, err := asks.AppendEntriesPipeline("n2/old", at); !errors.Is(err, errGone) {
		t.Errorf("a pipeline to its old identity: %v", err)
	}
}
