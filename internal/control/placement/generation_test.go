package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A voter grants no vote to a voter of an older or newer generation: not over its
// raft port, and not in memory.
func TestVotersOfOtherGenerationsGetNoVote(t *testing.T) {
	opened := 0
	granted := func(network *MemNetwork, ours, theirs uint64) bool {
		open := func(generation uint64) (transport, raft.ServerAddress) {
			opened++
			cfg := Config{
				Address: fmt.Sprint(opened), Network: network, Logger: slog.New(slog.DiscardHandler),
				Members: func() []shard.Member { return nil },
			}
			var p *port
			if network == nil {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				cfg.Address = l.Addr().String()
				p = openPort(l)
				t.Cleanup(func() {
					if err := p.close(); err != nil {
						t.Error(err)
					}
				})
			}
			tr := openTransport(&cfg, p, generation, func(raft.ServerID) raft.ServerAddress { return "" }, newRaftLogger(cfg.Logger))
			t.Cleanup(func() {
				if err := tr.close(); err != nil {
					t.Error(err)
				}
			})
			return tr, raft.ServerAddress(cfg.Address)
		}
		us, at := open(ours)
		them, _ := open(theirs)
		stop, stopped := make(chan struct{}), make(chan struct{})
		defer func() { close(stop); <-stopped }()
		go func() {
			defer close(stopped)
			for {
				select {
				case rpc := <-us.Consumer():
					rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
				case <-stop:
					return
				}
			}
		}()
		var resp raft.RequestVoteResponse
		err := them.RequestVote("n1/us", at, &raft.RequestVoteRequest{Term: 9}, &resp)
		return err == nil && resp.Granted
	}
	for name, network := range map[string]*MemNetwork{"raft port": nil, "memory": NewMemNetwork()} {
		for _, c := range []struct{ ours, theirs uint64 }{{0, 0}, {7, 7}, {0, 7}, {7, 0}, {7, 8}, {8, 7}} {
			if got, want := granted(network, c.ours, c.theirs), c.ours == c.theirs; got != want {
				t.Errorf("%s: generation %d requests a vote of generation %d: granted %v", name, c.theirs, c.ours, got)
			}
		}
	}
	network := NewMemNetwork()
	a, b := network.join("a", 0), network.join("b", 7)
	network.Heal("a", "b")
	answered := make(chan error, 1)
	go func() {
		answered <- a.RequestVote("b", "b", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	}()
	select {
	case rpc := <-b.Consumer():
		t.Error("after a partition, a vote request reaches another generation")
		rpc.Respond(&raft.RequestVoteResponse{}, nil)
		<-answered
	case err := <-answered:
		if err == nil {
			t.Error("a vote request to another generation does not fail")
		}
	}
}

// A crash while the log of a new generation is created leaves the old log in use, and
// the next attempt starts again.
func TestUnfinishedRaftLogIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	id, err := Identity(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, logs := newRaftLogger(slog.New(slog.DiscardHandler)), diskLogs{raftDir(dir)}
	use := func(generation uint64) error {
		s, err := logs.open(generation, log)
		if err != nil {
			return err
		}
		return s.close()
	}
	if err := use(0); err != nil {
		t.Fatal(err)
	}
	crash := errors.New("crash")
	if err := logs.create(7, log, func(s *storage) error { return errors.Join(s.setClusterID("c"), crash) }); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if g, err := logs.newest(); g != 0 || err != nil {
		t.Errorf("the newest generation is %d, %v", g, err)
	}
	if err := logs.create(8, log, func(s *storage) error { return s.setClusterID("c") }); err != nil {
		t.Fatal(err)
	}
	if g, err := logs.newest(); g != 8 || err != nil {
		t.Errorf("the newest generation is %d, %v", g, err)
	}
	var names []string
	entries, err := os.ReadDir(raftDir(dir))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"8", "identity", "raft.db", "snapshots"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("files %v, want %v; %v", names, want, err)
	}
	s, err := logs.open(8, log)
	if err != nil {
		t.Fatal(err)
	}
	if cluster, err := s.clusterID(); cluster != "c" || err != nil {
		t.Errorf("the log has cluster ID %q, %v", cluster, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}

	// The identity persists, and is lost with the log of the newest generation.
	if again, err := Identity(dir); again != id || err != nil {
		t.Errorf("identity %s, was %s; %v", again, id, err)
	}
	if err := os.Remove(filepath.Join(raftDir(dir), "8", "raft.db")); err != nil {
		t.Fatal(err)
	}
	if again, err := Identity(dir); again == id || err != nil {
		t.Errorf("the identity is still %s without the log, %v", again, err)
	}
}

// While the map has a newer generation than the raft log, raft's leader and voters are
// outdated, and not reported. The leader treats the log of a node that has not received
// the newer map as missing.
func TestRaftOfAnOlderGenerationReportsNoVoters(t *testing.T) {
	m := &shard.Map{ClusterID: "c", Version: 9, Generation: 7}
	p := &Placement{maps: new(versions), raft: new(raft.Raft)}
	if err := p.maps.show(m); err != nil {
		t.Fatal(err)
	}
	for generation, want := range map[uint64]bool{0: false, 6: false, 7: true, 8: true} {
		p.generation = generation
		if got := p.current() != nil; got != want {
			t.Errorf("a raft log of generation %d is used: %v", generation, got)
		}
	}
	p.cfg.Reports = func(context.Context, []shard.NodeID) []planner.Report {
		return []planner.Report{{Node: "a", RaftIndex: 500, MapVersion: 6}, {Node: "b", RaftIndex: 5, MapVersion: 7}}
	}
	if got := (&leader{raftRun: &raftRun{Placement: p}}).askNodes(t.Context(), nil); got[0].RaftIndex != 0 || got[1].RaftIndex != 5 {
		t.Errorf("reports %+v", got)
	}
}

// A node that votes ends raft as soon as the map has the next generation, and not before.
func TestRaftEndsWithItsGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Placement{maps: new(versions)}
		run := &raftRun{Placement: p, generation: 7}
		f := newFSM(p.maps.show, func() {})
		show := func(version, generation uint64) {
			t.Helper()
			if err := p.maps.show(&shard.Map{ClusterID: "c", Version: version, Generation: generation}); err != nil {
				t.Fatal(err)
			}
		}
		show(8, 7)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of fake time
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- run.endOf(ctx, f, new(fatalStore)) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("raft ends in its own generation: %v", err)
		default:
		}
		show(9, 8)
		if err := <-ended; !errors.Is(err, errOutdated) {
			t.Errorf("in the next generation: %v", err)
		}
	})
}

// A founder that ended between writing the cluster's ID and its log belongs to no cluster.
func TestAFounderThatWroteTheIDAlone(t *testing.T) {
	logger := newRaftLogger(slog.New(slog.DiscardHandler))
	logs := diskLogs{raftDir(t.TempDir())}
	disk, err := logs.open(0, logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(disk.setClusterID("x"), disk.close()); err != nil {
		t.Fatal(err)
	}
	p := &Placement{cfg: Defaults(), log: slog.New(slog.DiscardHandler), self: "a/u", maps: new(versions), opened: make(chan struct{}), logs: logs}
	disk, _, err = p.open(logger)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.close()
	if id := p.ClusterID(); id != "" {
		t.Errorf("the node reports cluster %q", id)
	}
	if id, err := disk.clusterID(); id != "x" || err != nil {
		t.Errorf("the disk has cluster ID %q, %v", id, err)
	}
}

// A node is about to found a cluster, but others found it first, and it receives their
// raft log. They may have begun with other voters, so the node drops its own cluster ID,
// which would keep it from starting again.
func TestAClusterThatIsNotFoundedLeavesNoID(t *testing.T) {
	logger := newRaftLogger(slog.New(slog.DiscardHandler))
	disk, err := NewMemDisk().open(0, logger)
	if err != nil {
		t.Fatal(err)
	}
	p := &Placement{cfg: Defaults(), log: slog.New(slog.DiscardHandler), self: "a/u", maps: new(versions), opened: make(chan struct{})}
	cfg := p.raftConfig(logger)
	_, trans := raft.NewInmemTransport("a:1")
	theirs := raft.Configuration{Servers: []raft.Server{{ID: "a/u", Address: "a:1"}, {ID: "b/u", Address: "b:1"}}}
	if err := raft.BootstrapCluster(cfg, disk.logs, disk.stable, disk.snaps, trans, theirs); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(cfg, newFSM(p.maps.show, p.votes.Notify), disk.logs, disk.stable, disk.snaps, trans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	p.setCurrent(r, 0)
	if err := (&raftRun{Placement: p, r: r, disk: disk}).bootstrapWith(t.Context(), []planner.Server{{ID: "a/u", Address: "a:1"}, {ID: "c/u", Address: "c:1"}}); err != nil {
		t.Fatal(err)
	}
	if id, err := disk.clusterID(); id != "" || err != nil {
		t.Errorf("the node's disk has cluster ID %q, %v", id, err)
	}
}
