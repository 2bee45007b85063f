package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

const (
	// agreeTimeout is how long the voters are asked to agree on an operator's
	// change.
	agreeTimeout = 10 * time.Second
	// surveyTimeout is how long a node may take to tell what it has, and
	// surveyFanOut how many are asked at a time.
	surveyTimeout = 2 * time.Second
	surveyFanOut  = 32
	// lookEvery is how often it is looked how far a change has come, less often
	// when a look takes long: it takes a tenth of the time at most.
	lookEvery = 250 * time.Millisecond
	// mapPause is the time until the next attempt while no node gives the map that the
	// leader has.
	mapPause = 50 * time.Millisecond
)

// Operate implements server.Operator.
func (n *Node) Operate(ctx context.Context, o mapchange.Order, planned func(*mapchange.Plan) error, progress func(*mapchange.Progress) error) error {
	plan, err := n.agree(ctx, o)
	if err != nil {
		return err
	}
	if err := planned(plan); err != nil || o.DryRun {
		return err
	}
	return n.followPlan(ctx, plan, progress)
}

// agree judges the order and has the voters agree on it. Where the map changes
// meanwhile the order is judged anew.
func (n *Node) agree(ctx context.Context, o mapchange.Order) (*mapchange.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	for {
		m, moved := n.placement.Watch()
		if m == nil {
			return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "this node knows no shard map yet"}
		}
		before, made, err := n.madeBefore(ctx, m, o)
		if err != nil {
			return nil, err
		}
		plan, err := n.judge(ctx, m, o)
		switch {
		case made && err != nil: // it names what is gone since
			return &mapchange.Plan{Version: before}, nil
		case err != nil:
			return nil, err
		case made, o.DryRun, plan.Change == nil:
			return plan, nil
		}
		version, err := n.propose(ctx, shard.Command{RequestID: o.ID, IfVersion: m.Version, Change: plan.Change})
		stale := new(shard.StaleError)
		switch {
		case err == nil:
			plan.Version = version
			return plan, nil
		case errors.As(err, &stale) && o.IfVersion == 0:
		default:
			return nil, err
		}
		if got, _ := n.mapFollower.Fetch(ctx, stale.Current); got { // Run of the follower meets the same error
			continue
		}
		select {
		case <-moved:
		case <-time.After(mapPause):
		case <-ctx.Done():
			return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "the shard map changes all the time: " + err.Error()}
		}
	}
}

// madeBefore reports whether an order that is repeated was agreed on before, and
// the version of the map that it made. The voters know: they answer what they have
// done, and refuse a change of a map that there is not.
func (n *Node) madeBefore(ctx context.Context, m *shard.Map, o mapchange.Order) (version uint64, made bool, err error) {
	if !o.Repeated || o.ID == "" {
		return 0, false, nil
	}
	version, err = n.propose(ctx, shard.Command{
		RequestID: o.ID, IfVersion: math.MaxUint64, Change: shard.Assign{Moves: []shard.Move{{Shard: m.Shards[0].ID, Replicas: m.Shards[0].Replicas}}},
	})
	if errors.Is(err, shard.ErrRefused) {
		return 0, false, nil
	}
	return version, err == nil, err
}

// propose is placement's, with errors that the API knows.
func (n *Node) propose(ctx context.Context, c shard.Command) (uint64, error) {
	version, err := n.placement.Propose(ctx, c)
	if err == nil || errors.Is(err, shard.ErrRefused) {
		return version, err
	}
	return 0, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "change the shard map: " + err.Error()}
}

func (n *Node) judge(ctx context.Context, m *shard.Map, o mapchange.Order) (*mapchange.Plan, error) {
	c := &mapchange.Cluster{Map: m, Members: n.members.Members()}
	switch r := o.Request.(type) {
	case mapchange.Split:
		if s, ok := m.Shard(r.Shard); ok && len(r.At) == 0 {
			at, keys, err := n.middle(ctx, s.Range)
			if err != nil {
				return nil, err
			}
			if at == "" {
				return nil, &mapchange.RefusedError{Field: "at", Reason: fmt.Sprintf("shard %d has too few keys (%d) to tell where its middle is: say where to cut it", s.ID, keys)}
			}
			r.At = []string{at}
			o.Request = r
		}
	case mapchange.Drain, mapchange.Finalize:
		c.Voters = n.voters(ctx)
	}
	c.Copies = n.survey(ctx, mapchange.Ask(m, o.Request))
	if ask := mapchange.AskEnding(m, c.Members, o.Request); len(ask) > 0 {
		c.Ending = n.ending(ctx, ask, o.Request.(mapchange.Settings)) //nolint:forcetypeassert // only a Settings asks
	}
	return mapchange.NewPlan(c, o)
}

// middle returns where a range is to be cut so that both parts have about as many
// keys, "" when there are too few to tell, and how many there are. It asks the
// copies of the range, not etcd.
func (n *Node) middle(ctx context.Context, r kv.Range) (at string, keys int, err error) {
	reading, err := n.router.Read(ctx, router.ReadRequest{Range: r, Serializable: true, MaxStaleness: router.AnyAge})
	if err != nil {
		return "", 0, err
	}
	cutter := planner.NewCutter([]kv.Range{r}, 2)
	err = reading.Each(ctx, router.Options{KeysOnly: true, ChunkBytes: 64 << 10}, func(chunk []*kv.KeyValue) error {
		for _, item := range chunk {
			cutter.Add(string(item.Key()))
		}
		keys += len(chunk)
		return nil
	})
	if err != nil {
		return "", 0, err
	}
	if cuts := cutter.Cuts(); len(cuts) > 0 {
		at = cuts[0]
	}
	return at, keys, nil
}

// voters returns who votes; nil when nobody who knows answers. Who does not vote
// does not know.
func (n *Node) voters(ctx context.Context) []shard.NodeID {
	if voters := n.placement.Voters(); len(voters) > 0 {
		return voters
	}
	var ask, voters []shard.NodeID
	for _, m := range n.members.Members() {
		if m.BootstrapExpect > 0 && m.State != shard.Left {
			ask = append(ask, m.Name)
		}
	}
	var mu sync.Mutex
	n.ask(ctx, ask, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
		mu.Lock()
		defer mu.Unlock()
		if s.GetSelf().GetVoter() {
			voters = append(voters, node)
		}
	})
	slices.Sort(voters)
	return voters
}

// survey returns what nodes have of shards.
func (n *Node) survey(ctx context.Context, nodes []shard.NodeID) map[shard.NodeID]map[shard.ID]mapchange.Copy {
	out := make(map[shard.NodeID]map[shard.ID]mapchange.Copy, len(nodes))
	var mu sync.Mutex
	n.ask(ctx, nodes, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
		copies := make(map[shard.ID]mapchange.Copy, len(s.GetReplicas()))
		for _, r := range s.GetReplicas() {
			if !r.GetRelay() {
				copies[shard.ID(r.GetShardId())] = mapchange.Copy{
					Ready: r.GetReady(), Keys: r.GetKeys(), Bytes: r.GetStateBytes() + r.GetWindowBytes() + r.GetTombstoneBytes(),
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		out[node] = copies
	})
	return out
}

// ending returns how many watches of clients at nodes would end with the settings.
func (n *Node) ending(ctx context.Context, nodes []shard.NodeID, s mapchange.Settings) map[shard.NodeID]mapchange.Ending {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	served := slices.SortedFunc(slices.Values(s.Ranges), func(a, b kv.Range) int { return strings.Compare(a.Start, b.Start) })
	request := new(peerv1.CountEndingRequest)
	for _, r := range served {
		key, end := r.Etcd()
		request.Served = append(request.Served, &shardwatchv1.KeyRange{Key: key, RangeEnd: end})
	}
	out := make(map[shard.NodeID]mapchange.Ending, len(nodes))
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(surveyFanOut)
	for _, node := range nodes {
		g.Go(func() error {
			var e mapchange.Ending
			if node == n.self {
				e = n.server.Ending(served)
			} else if conn, err := n.peers.conn(node); err != nil {
				return nil
			} else if r, err := peerv1.NewPeerServiceClient(conn).CountEnding(ctx, request); err != nil {
				return nil
			} else {
				e = mapchange.Ending{Native: r.GetNative(), Etcd: r.GetEtcd()}
			}
			mu.Lock()
			defer mu.Unlock()
			out[node] = e
			return nil
		})
	}
	_ = g.Wait() // a node that gives no answer is missing
	return out
}

// ask calls told, from any goroutine, for each of the nodes that tells its status
// in time.
func (n *Node) ask(ctx context.Context, nodes []shard.NodeID, told func(shard.NodeID, *shardwatchv1.StatusResponse)) {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(surveyFanOut)
	for _, node := range nodes {
		g.Go(func() error {
			if node == n.self {
				told(node, n.Status())
			} else if s, err := n.StatusOf(ctx, node); err == nil {
				told(node, s)
			}
			return nil
		})
	}
	_ = g.Wait() // who gives no answer is missing
}

// followPlan calls progress when something has changed, until all is done.
func (n *Node) followPlan(ctx context.Context, plan *mapchange.Plan, progress func(*mapchange.Progress) error) error {
	var plans planner.Planner
	told := mapchange.Progress{Left: -1}
	for {
		began := time.Now()
		if m := n.placement.Map(); m.Version >= plan.Version {
			now := plan.Progress(&mapchange.Cluster{Map: m, Members: n.members.Members(), Copies: n.survey(ctx, plan.Ask(m))}, &plans)
			if now.Done || now.Left != told.Left || !slices.Equal(now.Filling, told.Filling) {
				if err := progress(&now); err != nil {
					return err
				}
			}
			if told = now; now.Done {
				return nil
			}
		}
		select {
		case <-time.After(max(lookEvery, 10*time.Since(began))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
