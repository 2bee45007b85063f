package mapfollow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

const (
	// mapGrace is how long a node waits for the stream of a voter, which is faster than
	// gossip, to deliver a map that gossip has announced. Then it fetches the map.
	mapGrace = 200 * time.Millisecond
	// mapFetch bounds one attempt to fetch the map.
	mapFetch = time.Second
	// firstMapPause and longestMapPause are the pauses between failed attempts.
	firstMapPause   = 50 * time.Millisecond
	longestMapPause = 5 * time.Second
)

// Config configures a Follower. Its functions may be called from any goroutine.
type Config struct {
	Self      shard.NodeID
	Placement *placement.Placement
	Members   *membership.Membership
	// Changed returns a channel that is closed when the map or the members change.
	Changed func() <-chan struct{}
	// Conn returns the connection to another node.
	Conn   func(shard.NodeID) (grpc.ClientConnInterface, error)
	Logger *slog.Logger
}

// Follower keeps the shard map of this node up to date. Voters receive it from raft;
// each other node follows one voter. Gossip announces new versions: a node that has
// not received one in time fetches it from any node that has it, and follows another
// voter from then on.
type Follower struct {
	cfg  Config
	late wait.Signal // a map that gossip announced did not come in time
}

// New returns a Follower that does nothing yet.
func New(cfg Config) *Follower { return &Follower{cfg: cfg} }

// Run keeps the shard map up to date until ctx ends. It ends earlier with the error
// of tooOld.
func (f *Follower) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var parts sync.WaitGroup
	parts.Go(func() { f.followVoters(ctx, fail) })
	parts.Go(func() { f.heedMapNews(ctx, fail) })
	parts.Wait()
	if err := context.Cause(ctx); errors.Is(err, shard.ErrNewer) {
		return err
	}
	return nil
}

// tooOld returns an error if this node must end because its software does not
// understand the feature level of the map that another node sent. Otherwise the node
// would never become ready, or would act on an old map forever. The error requires
// that the other node has newer software: if it has not, its map is damaged.
func (f *Follower) tooOld(from shard.NodeID, err error) error {
	if m, ok := f.member(from); !ok || m.Level <= shard.Level || !errors.Is(err, shard.ErrNewer) {
		return nil
	}
	return fmt.Errorf("the upgrade of the cluster was finalized, and this node's software is older (start it with the version of %s): %w", from, err)
}

// member returns gossip's view of a node.
func (f *Follower) member(name shard.NodeID) (shard.Member, bool) {
	for _, m := range f.cfg.Members.Members() {
		if m.Name == name {
			return m, true
		}
	}
	return shard.Member{}, false
}

// followVoters follows one voter at a time, and another one after a failure.
func (f *Follower) followVoters(ctx context.Context, fail context.CancelCauseFunc) {
	var failed []shard.NodeID // since the last stream that worked
	pause := firstMapPause
	for ctx.Err() == nil {
		changed := f.cfg.Changed()
		from := f.mapSource(failed)
		if from == "" {
			failed = nil
			wait.For(ctx, changed)
			continue
		}
		began := time.Now()
		err := f.followVoter(ctx, from)
		if ctx.Err() != nil {
			return
		}
		if why := f.tooOld(from, err); why != nil {
			fail(why)
			return
		}
		f.cfg.Logger.Debug("shard map stream ended", "from", string(from), "error", err)
		if time.Since(began) > longestMapPause {
			failed, pause = nil, firstMapPause
		}
		failed = append(failed, from)
		wait.Sleep(ctx, pause)
		pause = min(2*pause, longestMapPause)
	}
}

// errLateMap ends the stream of a voter whose map is older than that of other nodes.
var errLateMap = errors.New("other nodes have newer shard maps than this voter")

// followVoter follows the map of a voter until mapVoters no longer returns it, or its map is late.
func (f *Follower) followVoter(ctx context.Context, voter shard.NodeID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		for {
			changed, late := f.cfg.Changed(), f.late.Wait()
			if !slices.ContainsFunc(f.mapVoters(), func(v shard.NodeID) bool { return v == voter }) {
				cancel(errors.New("the node is no longer a voter, or gossip reports it as gone"))
			}
			select {
			case <-changed:
			case <-late:
				cancel(errLateMap)
			case <-ctx.Done():
				return
			}
		}
	})
	if err := f.takeMap(ctx, voter, false); context.Cause(ctx) == nil {
		return err
	}
	return context.Cause(ctx)
}

// mapSource returns the voter to follow: none if this node votes, or while gossip
// shows no other voter. Voters that failed come last.
func (f *Follower) mapSource(failed []shard.NodeID) shard.NodeID {
	voters := f.mapVoters()
	if len(voters) == 0 {
		return ""
	}
	return slices.MinFunc(voters, func(a, b shard.NodeID) int {
		return cmp.Compare(slices.Index(failed, a), slices.Index(failed, b))
	})
}

// mapVoters returns the other voters that can be followed, none if this node votes.
// Each node has its own order, which spreads the followers over the voters.
func (f *Follower) mapVoters() []shard.NodeID {
	if f.cfg.Placement.IsVoter(f.cfg.Self) {
		return nil
	}
	return f.nodesThat(func(m *shard.Member) bool { return m.Voter && m.State != shard.Suspect })
}

// nodesThat returns the other nodes of the cluster that ok accepts and that gossip
// does not report as gone, in this node's own order.
func (f *Follower) nodesThat(ok func(*shard.Member) bool) (out []shard.NodeID) {
	cluster := f.cfg.Placement.ClusterID()
	for _, m := range f.cfg.Members.Members() {
		foreign := cluster != "" && m.ClusterID != "" && m.ClusterID != cluster
		if m.Name != f.cfg.Self && m.State != shard.Dead && m.State != shard.Left && !foreign && ok(&m) {
			out = append(out, m.Name)
		}
	}
	slices.SortFunc(out, func(a, b shard.NodeID) int { return cmp.Compare(f.taste(a), f.taste(b)) })
	return out
}

func (f *Follower) taste(other shard.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(other + "\x00" + f.cfg.Self))
	return h.Sum64()
}

// heedMapNews fetches maps that gossip announces and that the stream does not deliver in time.
func (f *Follower) heedMapNews(ctx context.Context, fail context.CancelCauseFunc) {
	pause := firstMapPause
	for ctx.Err() == nil {
		news, newer := f.cfg.Members.MapNews()
		m, moved := f.cfg.Placement.Watch()
		switch {
		case versionOf(m) >= news.Version:
			pause = firstMapPause
			wait.For(ctx, newer)
			continue
		case m != nil:
			select {
			case <-moved: // the stream works
				continue
			case <-time.After(mapGrace):
			case <-ctx.Done():
				return
			}
		}
		got, err := f.Fetch(ctx, news.Version)
		if got {
			f.late.Notify()
			continue
		}
		if errors.Is(err, shard.ErrNewer) {
			fail(err)
			return
		}
		select {
		case <-time.After(pause):
		case <-moved:
		case <-ctx.Done():
		}
		pause = min(2*pause, longestMapPause)
	}
}

// Fetch fetches the map from nodes that may have the version, until this node
// has it, and reports whether it does. The only error is that of tooOld.
func (f *Follower) Fetch(ctx context.Context, version uint64) (bool, error) {
	var from []shard.NodeID
	if news, _ := f.cfg.Members.MapNews(); news.Version >= version {
		from = append(from, news.Node)
	}
	from = append(from, f.nodesThat(func(m *shard.Member) bool { return m.Voter })...)
	if rest := f.nodesThat(func(m *shard.Member) bool { return !m.Voter }); len(rest) > 0 {
		from = append(from, rest[version%uint64(len(rest))])
	}
	for i, node := range from {
		if node == f.cfg.Self || slices.Contains(from[:i], node) {
			continue
		}
		if versionOf(f.cfg.Placement.Map()) >= version {
			return true, nil
		}
		attempt, cancel := context.WithTimeout(ctx, mapFetch)
		err := f.takeMap(attempt, node, true)
		cancel()
		if why := f.tooOld(node, err); why != nil {
			return false, why
		}
		if err != nil && ctx.Err() == nil {
			f.cfg.Logger.Debug("shard map not fetched", "from", string(node), "version", version, "error", err)
		}
	}
	return versionOf(f.cfg.Placement.Map()) >= version, nil
}

func versionOf(m *shard.Map) uint64 {
	if m == nil {
		return 0
	}
	return m.Version
}

// takeMap receives the maps that are newer than this node's: the newest one, and all later ones unless once.
func (f *Follower) takeMap(ctx context.Context, from shard.NodeID, once bool) error {
	conn, err := f.cfg.Conn(from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &peerv1.FollowMapRequest{Once: once}
	if m := f.cfg.Placement.Map(); m != nil {
		request.KnownVersion, request.ClusterId = m.Version, m.ClusterID
	}
	stream, err := peerv1.NewPeerServiceClient(conn).FollowMap(ctx, request)
	if err != nil {
		return wire.Error(err)
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) && once {
			return nil
		}
		if err != nil {
			return wire.Error(err)
		}
		if err := f.learnMap(r); err != nil {
			return fmt.Errorf("shard map from %s: %w", from, err)
		}
	}
}

// learnMap applies a map, or a delta to the map of this node. After
// [shard.ErrOtherMap] the next stream begins with the right delta or the whole map.
func (f *Follower) learnMap(r *peerv1.FollowMapResponse) error {
	if len(r.GetDelta()) > 0 {
		d, err := shard.DecodeDelta(r.GetDelta())
		if err != nil {
			return err
		}
		return f.cfg.Placement.ObserveDelta(d)
	}
	m, err := shard.DecodeMap(r.GetMap())
	if err != nil {
		return err
	}
	return f.cfg.Placement.Observe(m)
}
