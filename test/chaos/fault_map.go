package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	peerpb "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// mapFaults are changes of the shard map in a healthy cluster. They may cause no more than a pause
// for clients.
func mapFaults() []Fault {
	return []Fault{
		{
			Name: "map-changes", About: "five splits, merges and moves a second, at random, for a minute",
			For: time.Minute, Stall: 500 * time.Millisecond, Shards: 2, Inject: changeMap,
		},
		{
			Name: "scale", About: "two nodes join and take their shards, then one of them is drained and the other killed, both permanently",
			Stall: 2 * time.Second, Inject: scale,
		},
	}
}

// mapChangeEvery is the time between two changes of the map.
const mapChangeEvery = 200 * time.Millisecond

// changeMap changes the shard map until it is healed.
func changeMap(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	m, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return nil, err
	}
	c := &mapChanger{s: s, rng: s.rng(), least: len(m.Shards), made: map[string]int{}}
	changing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- c.run(changing) }()
	return func(context.Context) error {
		stop()
		if err := <-ended; err != nil {
			return err
		}
		s.Say("%v in %v; %d were too late for the map that they were made for", c.made, time.Since(began).Round(time.Second), c.stale)
		for _, what := range []string{"split", "merge", "move"} {
			if c.made[what] == 0 {
				return fmt.Errorf("no %s was made", what)
			}
		}
		return nil
	}, nil
}

// mapChanger changes the map at random. There are never fewer shards than at first, since the
// cluster would split them on its own, and at most half as many more.
type mapChanger struct {
	s     *Scene
	rng   *rand.Rand
	least int
	made  map[string]int
	stale int
}

func (c *mapChanger) run(ctx context.Context) error {
	tick := time.NewTicker(mapChangeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := poll(ctx, patience, "a change of the map", func() error { return c.once(ctx) })
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// once makes one change. It fails if the map has changed meanwhile.
func (c *mapChanger) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := c.s.Cluster.fullMap(ctx)
	if err != nil {
		return err
	}
	loaded, err := c.s.Cluster.loaded(ctx)
	if err != nil {
		return err
	}
	what, change := c.next(m, loaded)
	if change == nil {
		return nil
	}
	err = c.s.Cluster.propose(ctx, shard.Command{RequestID: uuid.NewString(), IfVersion: m.Version, Change: change})
	if err != nil {
		c.stale++
		return fmt.Errorf("%s: %w", what, err)
	}
	c.made[what]++
	return nil
}

// copies has the loaded shards of each node.
type copies map[shard.NodeID]map[shard.ID]bool

// next returns a random change of m, or nil if the drawn one is not possible. Like the leader's and
// an operator's changes, it moves nothing to a node that is still loading: that node would have to
// list at etcd.
func (c *mapChanger) next(m *shard.Map, loaded copies) (what string, change shard.Change) {
	i := c.rng.IntN(len(m.Shards))
	s := &m.Shards[i]
	switch n := len(m.Shards); {
	case c.rng.IntN(3) == 0:
		return "move", c.move(s, loaded)
	case n >= c.least+c.least/2 || n > c.least && c.rng.IntN(2) == 0:
		return "merge", merge(m, i, loaded)
	}
	key := c.s.keys.any(c.rng)
	if at, ok := m.Find(key); ok && key > at.Range.Start {
		return "split", shard.Split{Shard: at.ID, At: []string{key}}
	}
	return "split", nil
}

// merge merges a shard with the next one, on the nodes that have both.
func merge(m *shard.Map, i int, loaded copies) shard.Change {
	if i+1 == len(m.Shards) {
		return nil
	}
	a, b := &m.Shards[i], &m.Shards[i+1]
	both := slices.DeleteFunc(slices.Clone(a.Replicas), func(n shard.NodeID) bool {
		return !slices.Contains(b.Replicas, n) || !loaded[n][a.ID] || !loaded[n][b.ID]
	})
	if len(both) == 0 || a.Range.End != b.Range.Start {
		return nil
	}
	return shard.Merge{Shards: []shard.ID{a.ID, b.ID}, Replicas: both}
}

// move changes the owner of a shard, or removes a replica, which the planner adds again.
func (c *mapChanger) move(s *shard.Shard, loaded copies) shard.Change {
	next := slices.Clone(s.Replicas)
	if len(next) < 2 || slices.ContainsFunc(next, func(n shard.NodeID) bool { return !loaded[n][s.ID] }) {
		return nil
	}
	if c.rng.IntN(2) == 0 && len(next) > 2 {
		i := c.rng.IntN(len(next))
		next = slices.Delete(next, i, i+1)
	} else {
		next = append(next[1:], next[0])
	}
	return shard.Assign{Moves: []shard.Move{{Shard: s.ID, Replicas: next}}}
}

// scale adds two nodes and removes them again, one by a drain and one by a kill.
func scale(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	soft, hard := s.Cluster.Spares[0], s.Cluster.Spares[1]
	if s.Turn%2 == 1 {
		soft, hard = hard, soft
	}
	for _, n := range s.Cluster.Spares {
		s.Say("%s joins", n.Name)
		if err := errors.Join(n.Wipe(), n.Start()); err != nil {
			return nil, err
		}
	}
	leave := func(context.Context) error { return errors.Join(soft.Kill(), hard.Kill(), soft.Wipe(), hard.Wipe()) }
	if err := s.Cluster.await(ctx, "both to have shards", func(m *shard.Map) error { return have(m, soft, hard) }); err != nil {
		return leave, err
	}
	// The moves have ended: further changes are caused by the nodes' leave.
	if err := s.Cluster.calm(ctx); err != nil {
		return leave, err
	}
	s.Say("drain %s permanently", soft.Name)
	if err := soft.Drain(); err != nil {
		return leave, err
	}
	s.Say("kill %s permanently", hard.Name)
	if err := hard.Kill(); err != nil {
		return leave, err
	}
	err := s.Cluster.await(ctx, "the shards to leave both", func(m *shard.Map) error { return without(m, soft, hard) })
	if err == nil {
		err = s.Cluster.calm(ctx)
	}
	return leave, err
}

// have fails if one of the nodes has no replica of any shard. They need not be owners: few nodes may own
// all shards.
func have(m *shard.Map, nodes ...*Node) error {
	for _, n := range nodes {
		if !m.Holds(shard.NodeID(n.Name)) {
			return fmt.Errorf("%s has no shard", n.Name)
		}
	}
	return nil
}

func without(m *shard.Map, nodes ...*Node) error {
	for _, n := range nodes {
		for i := range m.Shards {
			if slices.Contains(m.Shards[i].Replicas, shard.NodeID(n.Name)) {
				return fmt.Errorf("%s has shard %d", n.Name, m.Shards[i].ID)
			}
		}
	}
	return nil
}

// await waits until is accepts the map.
func (c *Cluster) await(ctx context.Context, what string, is func(*shard.Map) error) error {
	return poll(ctx, patience, what, func() error {
		m, err := c.fullMap(ctx)
		if err != nil {
			return err
		}
		return is(m)
	})
}

// calm waits until the map has been unchanged for longer than the minimum time between two moves of
// a shard.
func (c *Cluster) calm(ctx context.Context) error {
	const rest = 6 * time.Second
	var version uint64
	var since time.Time
	return c.await(ctx, "the map to stay as it is", func(m *shard.Map) error {
		if m.Version != version {
			version, since = m.Version, time.Now()
		}
		if still := time.Since(since); still < rest {
			return fmt.Errorf("version %d is %v old", version, still)
		}
		return nil
	})
}

// fullMap returns the shard map of the first node that answers.
func (c *Cluster) fullMap(ctx context.Context) (*shard.Map, error) {
	var errs []error
	for _, n := range c.Nodes {
		m, err := n.fullMap(ctx)
		if err == nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("read the shard map: %w", errors.Join(errs...))
}

func (n *Node) fullMap(ctx context.Context) (*shard.Map, error) {
	conn, err := dial(n.peer)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := peerpb.NewPeerServiceClient(conn).FollowMap(ctx, &peerpb.FollowMapRequest{})
	if err != nil {
		return nil, err
	}
	r, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	return shard.DecodeMap(r.GetMap())
}

// loaded returns the loaded shards of the nodes.
func (c *Cluster) loaded(ctx context.Context) (copies, error) {
	out := copies{}
	for _, n := range c.Nodes {
		replicas, err := n.replicas(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its loaded shards: %w", n.Name, err)
		}
		has := map[shard.ID]bool{}
		for _, r := range replicas {
			if r.GetReady() && !r.GetRelay() {
				has[shard.ID(r.GetShardId())] = true
			}
		}
		out[shard.NodeID(n.Name)] = has
	}
	return out, nil
}

// propose proposes a change to each voter until one accepts it.
func (c *Cluster) propose(ctx context.Context, command shard.Command) error {
	b, err := shard.EncodeCommand(command)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range c.Nodes {
		conn, err := dial(n.peer)
		if err != nil {
			return err
		}
		_, err = peerpb.NewPeerServiceClient(conn).Propose(ctx, &peerpb.ProposeRequest{Command: b})
		_ = conn.Close()
		if err == nil {
			return nil
		}
		errs = append(errs, err) // all but the leader refuse
	}
	return errors.Join(errs...)
}
