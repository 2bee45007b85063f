package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/control/mapfile"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

const (
	// membersPoll is the interval at which the members are checked without a signal.
	membersPoll = time.Second
	// stopTimeout bounds each step of stopping raft: a hanging disk must not
	// keep the process running.
	stopTimeout = 5 * time.Second
	// mapFilePause is the least time between two writes of the map file, each of the
	// whole map: some 20 MB for 100,000 shards. A crash loses the changes in that time
	// from this node's file. A starting node needs the file only while it reaches no
	// voter, and voters also have each change in the raft log.
	mapFilePause = time.Second
)

var (
	// ErrNoLeader reports that the map cannot be changed at the moment.
	ErrNoLeader = errors.New("the shard map has no raft leader: make sure that a majority of the voters runs and can communicate; until then shards stay where they are and are served")
	// ErrUnknownOutcome reports that a change may or may not have been made.
	ErrUnknownOutcome = errors.New("the change may or may not have been made: propose it again with the same request ID")
	// ErrForeign reports a map or a member of another cluster.
	ErrForeign = errors.New("another cluster")
	// ErrStuck ends Run on a leader that cannot commit because its own disk hangs.
	ErrStuck = errors.New("raft leader cannot commit: the disk of the data directory hangs")
)

// NotLeaderError is the error of ApplyEncoded on a node that does not lead.
type NotLeaderError struct {
	// Leader is the leading node if known, otherwise "".
	Leader shard.NodeID
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return "this node is not the raft leader, and knows none"
	}
	return fmt.Sprintf("this node is not the raft leader: ask %s", e.Leader)
}

// Unwrap returns ErrNoLeader when no leader is known.
func (e *NotLeaderError) Unwrap() error {
	if e.Leader == "" {
		return ErrNoLeader
	}
	return nil
}

// mapFile stores the map on disk.
type mapFile interface {
	// Load returns nil without an error when there is no file.
	Load() (*shard.Map, error)
	Save(*shard.Map) error
	// Refuse moves an unusable file aside and returns its new path.
	Refuse() (string, error)
}

// Placement takes part in agreeing on the shard map, for one node.
type Placement struct {
	cfg     Config
	log     *slog.Logger
	self    raft.ServerID
	file    mapFile
	saved   *shard.Map // the map in file; owned by keepMapFile, then Run
	maps    *versions
	members wait.Signal // notified when the members or their reports may have changed
	votes   wait.Signal // notified when raft's configuration may have changed
	stats   *stats
	logs    raftLogs
	opened  chan struct{} // closed once the disk was read

	recovering sync.Mutex // held by Recover

	mu         sync.Mutex
	raft       *raft.Raft      // guarded by mu; nil: not running, or never votes
	generation uint64          // guarded by mu; of the raft log
	futures    *sync.WaitGroup // guarded by mu; callers that wait for raft; nil: callers must not wait
	cluster    string          // guarded by mu; the cluster of the raft log, "" while there is none
}

// New returns a Placement and reads the map file. It starts nothing. It moves
// an unusable map file aside and logs that.
func New(cfg Config) (*Placement, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Placement{
		cfg: cfg, log: cfg.Logger.With("package", "placement"), self: serverID(cfg.Name, cfg.UUID),
		maps: new(versions), stats: newStats(), opened: make(chan struct{}),
	}
	if cfg.Disk != nil {
		p.file, p.logs = cfg.Disk, cfg.Disk
	} else {
		p.file, p.logs = mapfile.New(cfg.DataDir), diskLogs{raftDir(cfg.DataDir)}
	}
	m, err := p.file.Load()
	switch {
	case errors.Is(err, shard.ErrNewer): // the newer software needs it
		return nil, err
	case errors.Is(err, mapfile.ErrInvalid):
		to, rerr := p.file.Refuse()
		p.log.Error("the map file is moved aside; the map will come from another node", "error", err, "to", to, "rename", rerr)
	case err != nil:
		return nil, err
	case m != nil:
		if err := p.maps.show(m); err != nil {
			return nil, err
		}
		p.saved = m
	}
	return p, nil
}

// Run takes part until ctx ends, then hands over the leadership, stops, and
// returns nil. An error means that the node must not continue: its data directory
// belongs to another cluster, its log was written by a newer version, or its disk
// hangs (then some of its goroutines may still hang with it).
func (p *Placement) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.watchMembers(ctx) })
	g.Go(func() error { p.keepMapFile(ctx); return nil })
	if p.cfg.BootstrapExpect > 0 {
		g.Go(func() error { return p.vote(ctx) })
	} else {
		p.setCluster("") // it has no log
		if p.cfg.Listener != nil {
			defer p.cfg.Listener.Close()
		}
	}
	if err := g.Wait(); err != nil {
		return err // the disk may hang
	}
	if _, err := p.saveMap(p.Map()); err != nil {
		p.log.Error("could not write the map file", "error", err)
	}
	return nil
}

// Map returns the newest map this node knows; nil while it knows none. The
// caller must not change it.
func (p *Placement) Map() *shard.Map {
	m, _ := p.maps.watch()
	return m
}

// Watch returns the newest map this node knows, or nil, and a channel that is
// closed when there is a newer one.
func (p *Placement) Watch() (*shard.Map, <-chan struct{}) { return p.maps.watch() }

// MapSince returns the newest map this node knows, and the delta to it from the given
// version of that cluster: nil if that is too large, or the version is unknown here.
func (p *Placement) MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	return p.maps.since(cluster, version)
}

// ObserveDelta applies a delta of the map received from another node. It fails
// with [shard.ErrOtherMap] when the delta was made for another map than this node
// has. Fetch the whole map in this case.
func (p *Placement) ObserveDelta(d *shard.Delta) error {
	m := p.Map()
	if m != nil && m.ClusterID == d.Map.ClusterID && m.Version >= d.Version() {
		return nil
	}
	next, err := d.Apply(m)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	return p.maps.show(next)
}

// Observe takes over a map received from another node. It ignores an older map,
// and fails with ErrForeign for a map of another cluster. The caller must not
// change m afterwards.
func (p *Placement) Observe(m *shard.Map) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	if id := p.ClusterID(); id != "" && id != m.ClusterID {
		return fmt.Errorf("shard map of cluster %s; this node belongs to cluster %s: %w", m.ClusterID, id, ErrForeign)
	}
	return p.maps.show(m)
}

// ClusterID returns the cluster this node belongs to, or "". Gossip must
// announce it as soon as it is known, which is before there is a map: it keeps
// other nodes from bootstrapping a second cluster.
func (p *Placement) ClusterID() string {
	if m := p.Map(); m != nil {
		return m.ClusterID
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster
}

// Opened is closed once Run has read the disk: from then on ClusterID returns the
// cluster of an earlier run.
func (p *Placement) Opened() <-chan struct{} { return p.opened }

// Leader returns the raft leader, and false when this node knows none. Nodes
// that do not vote never know it.
func (p *Placement) Leader() (shard.NodeID, bool) {
	r := p.current()
	if r == nil {
		return "", false
	}
	_, id := r.LeaderWithID()
	return nameOf(id), id != ""
}

// Voters returns the voters, ordered by name; empty on nodes that do not vote,
// and before there is a cluster.
func (p *Placement) Voters() []shard.NodeID {
	r := p.current()
	if r == nil {
		return nil
	}
	var out []shard.NodeID
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			out = append(out, nameOf(s.ID))
		}
	}
	slices.Sort(out)
	return out
}

// RaftIndex returns the newest entry of this node's raft log; 0 on a node without
// one.
func (p *Placement) RaftIndex() uint64 {
	r := p.current()
	if r == nil {
		return 0
	}
	return r.LastIndex()
}

// IsVoter reports whether name is in Voters.
func (p *Placement) IsVoter(name shard.NodeID) bool { return slices.Contains(p.Voters(), name) }

// current returns raft; nil when it does not run, or when its log is of an older
// generation than the map and does not list the present voters.
func (p *Placement) current() *raft.Raft {
	m := p.Map()
	p.mu.Lock()
	defer p.mu.Unlock()
	if m != nil && m.Generation > p.generation {
		return nil
	}
	return p.raft
}

func (p *Placement) setCurrent(r *raft.Raft, generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raft, p.generation = r, generation
	if r != nil {
		p.futures = new(sync.WaitGroup)
	}
	p.votes.Notify()
}

func (p *Placement) setCluster(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster = id
	if !wait.Over(p.opened) {
		close(p.opened)
	}
}

// ourMembers returns the members without those of another cluster.
func (p *Placement) ourMembers() []shard.Member { return planner.Ours(p.ClusterID(), p.cfg.Members()) }

// Owed returns how many shards of m lack live replicas and will get one on this
// node; see [planner.Owed].
func (p *Placement) Owed(m *shard.Map) int { return planner.Owed(m, p.ourMembers(), p.cfg.Name) }

// watchMembers notifies members, reports whether this node votes, and ends the node when it has joined a
// different cluster than that of its data directory.
func (p *Placement) watchMembers(ctx context.Context) error {
	tick := time.NewTimer(beat.Until(membersPoll))
	defer tick.Stop()
	var seen []shard.Member
	for {
		votes := p.votes.Wait()
		if now := p.cfg.Members(); !slices.Equal(seen, now) {
			seen = slices.Clone(now)
			p.members.Notify()
		}
		if p.cfg.Voting != nil {
			p.cfg.Voting(p.IsVoter(p.cfg.Name))
		}
		if id := p.ClusterID(); id != "" {
			if theirs, who := planner.Foreign(id, p.cfg.Name, p.cfg.Members()); theirs != "" {
				return fmt.Errorf("this node's data directory belongs to cluster %s, and it joined cluster %s (of %s): correct --join, or start with an empty data directory: %w", id, theirs, who, ErrForeign)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(beat.Until(membersPoll))
		case <-votes:
		case <-p.cfg.MembersChanged:
		}
	}
}

// keepMapFile writes the newest map to the map file, at most once in mapFilePause. Run
// writes the last map. A full or failed disk prevents the file, but does not end the node.
func (p *Placement) keepMapFile(ctx context.Context) {
	told := false
	for {
		m, changed := p.maps.watch()
		wrote, err := p.saveMap(m)
		if err != nil && !told {
			p.log.Error("could not write the map file, retrying", "error", err)
		}
		told = err != nil
		switch {
		case err != nil:
			changed = nil
		case wrote: // changes in the pause are written together
			if !pause(ctx, mapFilePause, true) {
				return
			}
		}
		if !pause(ctx, retryPause, err != nil, changed) {
			return
		}
	}
}

// saveMap writes m to the map file unless the file has it. It reports whether it wrote.
func (p *Placement) saveMap(m *shard.Map) (bool, error) {
	if m == nil || p.saved != nil && p.saved.Version == m.Version && p.saved.ClusterID == m.ClusterID {
		return false, nil
	}
	if err := p.file.Save(m); err != nil {
		return false, err
	}
	p.saved = m
	return true, nil
}
