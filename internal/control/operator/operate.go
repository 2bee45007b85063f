package operator

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
	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

const (
	// agreeTimeout bounds the attempts to have the voters agree on an
	// operator's change.
	agreeTimeout = 10 * time.Second
	// surveyTimeout bounds the time in which a node reports its copies, and
	// surveyFanOut the number of nodes asked at a time.
	surveyTimeout = 2 * time.Second
	surveyFanOut  = 64
	// lookEvery is the interval at which the progress of a change is checked. The
	// pause is longer after a slow check: checks take a tenth of the time at most.
	lookEvery = 250 * time.Millisecond
	// mapPause is the time until the next attempt while no node returns the map
	// version of the leader.
	mapPause = 50 * time.Millisecond
)

// Config configures an Operator. Its functions may be called from any goroutine.
type Config struct {
	Self      shard.NodeID
	Placement *placement.Placement
	Members   *membership.Membership
	// Read reads keys from this node and from others.
	Read func(context.Context, router.ReadRequest) (*router.Reading, error)
	// Ending counts the watches of this node's clients that would end if only the given ranges were served.
	Ending func(served []kv.Range) mapchange.Ending
	// Status returns this node's status, StatusOf the status of another node.
	Status   func() *shardwatchv1.StatusResponse
	StatusOf func(ctx context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error)
	// Conn returns the connection to another node.
	Conn func(shard.NodeID) (grpc.ClientConnInterface, error)
	// FetchMap fetches the shard map from nodes that may have this version, and
	// reports whether this node has it afterwards.
	FetchMap func(ctx context.Context, version uint64) (bool, error)
}

// Operator carries out the shard map changes that operators request.
type Operator struct{ cfg Config }

// New returns an Operator.
func New(cfg Config) *Operator { return &Operator{cfg: cfg} }

// ChangeMap implements admin.Operator.
func (o *Operator) ChangeMap(ctx context.Context, order mapchange.Order, planned func(*mapchange.Plan) error, progress func(*mapchange.Progress) error) error {
	plan, err := o.agree(ctx, order)
	if err != nil {
		return err
	}
	if err := planned(plan); err != nil || order.DryRun {
		return err
	}
	return o.followPlan(ctx, plan, progress)
}

// agree checks the order and has the voters agree on it. If the map changes
// meanwhile, the order is checked again.
func (o *Operator) agree(ctx context.Context, order mapchange.Order) (*mapchange.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	for {
		m, moved := o.cfg.Placement.Watch()
		if m == nil {
			return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "this node has no shard map yet"}
		}
		before, made, err := o.madeBefore(ctx, m, order)
		if err != nil {
			return nil, err
		}
		plan, err := o.judge(ctx, m, order)
		switch {
		case made && err != nil: // a shard or node that the order names no longer exists
			return &mapchange.Plan{Version: before}, nil
		case err != nil:
			return nil, err
		case made:
			plan.Version = max(plan.Version, before) // this node may not have received the changed map yet
			return plan, nil
		case order.DryRun, plan.Change == nil:
			return plan, nil
		}
		version, err := o.propose(ctx, shard.Command{RequestID: order.ID, IfVersion: m.Version, Change: plan.Change})
		stale := new(shard.StaleError)
		switch {
		case err == nil:
			plan.Version = version
			return plan, nil
		case errors.As(err, &stale) && order.IfVersion == 0:
		default:
			return nil, err
		}
		if got, _ := o.cfg.FetchMap(ctx, stale.Current); got { // Run of the follower fails with the same error
			continue
		}
		select {
		case <-moved:
		case <-time.After(mapPause):
		case <-ctx.Done():
			return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "the shard map keeps changing: " + err.Error()}
		}
	}
}

// madeBefore reports whether the voters have already agreed on a repeated order, and the
// version of the resulting map. It proposes the order's ID for a map version that cannot
// exist: the voters confirm the ID of a change that they have made, and refuse any other.
func (o *Operator) madeBefore(ctx context.Context, m *shard.Map, order mapchange.Order) (version uint64, made bool, err error) {
	if !order.Repeated || order.ID == "" {
		return 0, false, nil
	}
	version, err = o.propose(ctx, shard.Command{
		RequestID: order.ID, IfVersion: math.MaxUint64, Change: shard.Assign{Moves: []shard.Move{{Shard: m.Shards[0].ID, Replicas: m.Shards[0].Replicas}}},
	})
	if errors.Is(err, shard.ErrRefused) {
		return 0, false, nil
	}
	return version, err == nil, err
}

// propose is Placement.Propose, with errors that the API can encode.
func (o *Operator) propose(ctx context.Context, c shard.Command) (uint64, error) {
	version, err := o.cfg.Placement.Propose(ctx, c)
	if err == nil || errors.Is(err, shard.ErrRefused) {
		return version, err
	}
	return 0, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "change the shard map: " + err.Error()}
}

func (o *Operator) judge(ctx context.Context, m *shard.Map, order mapchange.Order) (*mapchange.Plan, error) {
	c := &mapchange.Cluster{Map: m, Members: o.cfg.Members.Members()}
	switch r := order.Request.(type) {
	case mapchange.Split:
		if s, ok := m.Shard(r.Shard); ok && len(r.At) == 0 {
			at, keys, err := o.middle(ctx, s.Range)
			if err != nil {
				return nil, err
			}
			if at == "" {
				return nil, &mapchange.RefusedError{Field: "at", Reason: fmt.Sprintf("shard %d has too few keys (%d) to find its middle: name the key to split at", s.ID, keys)}
			}
			r.At = []string{at}
			order.Request = r
		}
	case mapchange.Drain, mapchange.Finalize:
		c.Voters = o.voters(ctx)
	}
	c.Copies = o.survey(ctx, mapchange.Ask(m, order.Request))
	if ask := mapchange.AskEnding(m, c.Members, order.Request); len(ask) > 0 {
		c.Ending = o.ending(ctx, ask, order.Request.(mapchange.Settings)) //nolint:forcetypeassert // only a Settings asks
	}
	return mapchange.NewPlan(c, order)
}

// middle returns the key that splits the keys of a range in half, "" when there are
// too few keys, and the number of keys. It asks the copies of the range, not etcd.
func (o *Operator) middle(ctx context.Context, r kv.Range) (at string, keys int, err error) {
	reading, err := o.cfg.Read(ctx, router.ReadRequest{Range: r, Serializable: true, MaxStaleness: router.AnyAge})
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

// voters returns the voters; nil when no voter answers, because only voters know the
// list.
func (o *Operator) voters(ctx context.Context) []shard.NodeID {
	if voters := o.cfg.Placement.Voters(); len(voters) > 0 {
		return voters
	}
	var ask, voters []shard.NodeID
	for _, m := range o.cfg.Members.Members() {
		if m.BootstrapExpect > 0 && m.State != shard.Left {
			ask = append(ask, m.Name)
		}
	}
	var mu sync.Mutex
	o.ask(ctx, ask, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
		mu.Lock()
		defer mu.Unlock()
		if s.GetSelf().GetVoter() {
			voters = append(voters, node)
		}
	})
	slices.Sort(voters)
	return voters
}

// survey returns the nodes' copies of shards. Nodes that do not answer are missing.
func (o *Operator) survey(ctx context.Context, nodes []shard.NodeID) map[shard.NodeID]map[shard.ID]mapchange.Copy {
	out := make(map[shard.NodeID]map[shard.ID]mapchange.Copy, len(nodes))
	var mu sync.Mutex
	o.ask(ctx, nodes, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
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

// ending returns how many watches of clients at the nodes would end with the settings.
func (o *Operator) ending(ctx context.Context, nodes []shard.NodeID, s mapchange.Settings) map[shard.NodeID]mapchange.Ending {
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
			if node == o.cfg.Self {
				e = o.cfg.Ending(served)
			} else if conn, err := o.cfg.Conn(node); err != nil {
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
	_ = g.Wait() // nodes that do not answer are missing
	return out
}

// ask calls told, from any goroutine, for each node that returns its status in
// time.
func (o *Operator) ask(ctx context.Context, nodes []shard.NodeID, told func(shard.NodeID, *shardwatchv1.StatusResponse)) {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(surveyFanOut)
	for _, node := range nodes {
		g.Go(func() error {
			if node == o.cfg.Self {
				told(node, o.cfg.Status())
			} else if s, err := o.cfg.StatusOf(ctx, node); err == nil {
				told(node, s)
			}
			return nil
		})
	}
	_ = g.Wait() // nodes that do not answer are missing
}

// followPlan calls progress after each change of the progress, until the plan is done.
func (o *Operator) followPlan(ctx context.Context, plan *mapchange.Plan, progress func(*mapchange.Progress) error) error {
	var plans planner.Planner
	told := mapchange.Progress{Left: -1}
	for {
		began := time.Now()
		if m := o.cfg.Placement.Map(); m.Version >= plan.Version {
			now := plan.Progress(&mapchange.Cluster{Map: m, Members: o.cfg.Members.Members(), Copies: o.survey(ctx, plan.Ask(m))}, &plans)
			if now.Done || now.Left != told.Left || !slices.Equal(now.Filling, told.Filling) {
				if err := progress(&now); err != nil {
					return err
				}
			}
			if told = now; now.Done {
				return nil
			}
		}
		if !wait.Sleep(ctx, max(lookEvery, 10*time.Since(began))) {
			return ctx.Err()
		}
	}
}
