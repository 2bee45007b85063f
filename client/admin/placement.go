package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// PlacementChange is what an operator wants of the shard map: [SplitShard],
// [MergeShards], [MoveShard], [DrainNodes], [UndrainNodes], [Rebalance],
// [FinalizeUpgrade] or [ChangeSettings].
type PlacementChange interface {
	put(r *pb.ChangePlacementRequest)
}

// SplitShard cuts a shard in parts: new shards on the same nodes.
type SplitShard struct {
	Shard uint64
	// At are the first keys of the parts behind the first. None: one, so that both
	// parts have about as many keys.
	At []string
}

// MergeShards makes one shard of two that touch.
type MergeShards struct{ Shard, With uint64 }

// MoveShard says which nodes have a shard, until it is moved again, or
// [Rebalance].
type MoveShard struct {
	Shard uint64
	// To are names of nodes, in order of preference: the first watches etcd. Owner
	// says only who does. One of them is set.
	To    []string
	Owner string
}

// DrainNodes takes all shards from nodes, and gives them none until
// [UndrainNodes].
type DrainNodes struct{ Nodes []string }

// UndrainNodes ends what [DrainNodes] began.
type UndrainNodes struct{ Nodes []string }

// Rebalance brings all shards where the planner wants them, also those that were
// moved by hand.
type Rebalance struct{}

// FinalizeUpgrade makes a feature level the cluster's own: its features can be used,
// and nodes of software that does not know it cannot come back. It is refused while a
// member that has not left does not understand the level.
type FinalizeUpgrade struct {
	// Level; 0: the newest that a member understands.
	Level int
}

// ChangeSettings changes the settings of the cluster, which are part of the shard map:
// the flags --replicas and --prefix of nodes count only when a cluster is founded.
type ChangeSettings struct {
	// Replicas is how many nodes have each shard; 0: as many as now.
	Replicas int
	// Served are the keys that are served, in any order; none: the same as now. The
	// zero Range is all keys. Watches of keys that are no longer served end with
	// [client.ErrInvalid].
	Served []client.Range
}

func (c SplitShard) put(r *pb.ChangePlacementRequest) {
	split := &pb.SplitShard{Shard: c.Shard}
	for _, key := range c.At {
		split.At = append(split.At, []byte(key))
	}
	r.Change = &pb.ChangePlacementRequest_Split{Split: split}
}

func (c MergeShards) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Merge{Merge: &pb.MergeShards{Shard: c.Shard, With: c.With}}
}

func (c MoveShard) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Move{Move: &pb.MoveShard{Shard: c.Shard, To: c.To, Owner: c.Owner}}
}

func (c DrainNodes) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Drain{Drain: &pb.DrainNodes{Nodes: c.Nodes}}
}

func (c UndrainNodes) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Undrain{Undrain: &pb.UndrainNodes{Nodes: c.Nodes}}
}

func (Rebalance) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Rebalance{Rebalance: &pb.Rebalance{}}
}

func (c FinalizeUpgrade) put(r *pb.ChangePlacementRequest) {
	r.Change = &pb.ChangePlacementRequest_Finalize{Finalize: &pb.FinalizeUpgrade{Level: int32(c.Level)}} //nolint:gosec // few
}

func (c ChangeSettings) put(r *pb.ChangePlacementRequest) {
	settings := &pb.ChangeSettings{Replicas: int32(min(max(c.Replicas, math.MinInt32), math.MaxInt32))}
	for _, s := range c.Served {
		key, end := keyrange.Encode(s.Start, s.End)
		settings.Served = append(settings.Served, &pb.KeyRange{Key: key, RangeEnd: end})
	}
	r.Change = &pb.ChangePlacementRequest_Settings{Settings: settings}
}

// ChangeOptions say how a change is meant. The zero ChangeOptions is fine.
type ChangeOptions struct {
	// RequestID names the request, in 128 bytes at most: it is carried out once
	// however often it is sent. Empty: the client makes one. Repeated says that it
	// was sent before, by any client, and that its result is unknown.
	RequestID string
	Repeated  bool
	// IfVersion is the version that the shard map must have; 0: any.
	IfVersion uint64
	// DryRun wants the plan alone.
	DryRun bool
	// Force does what is refused for the operator's own good: see
	// [RefusedError].
	Force bool
}

// PlacementPlan is what a change comes to.
type PlacementPlan struct {
	// MapVersion is that of the map with the change; of a dry run, without it.
	MapVersion uint64
	// Steps are what becomes of which shards. Those that are not named stay as
	// they are.
	Steps []PlacementStep
	// Warnings are what force has overridden, and what else the operator should know.
	Warnings []string
}

// PlacementStep is what becomes of a shard, or of two that are merged.
type PlacementStep struct {
	// From is the shard as it is, or the two; To as it will be, or the parts. The
	// IDs of parts are those that they get if nothing else happens before; that of
	// a merged shard is 0. Keys that are not served yet have none in From, those that
	// are no longer served none in To.
	From, To []Shard
	// Filling are the nodes that have to fetch it from others, Bytes about how much
	// that is for all of them; -1: not known.
	Filling []string
	Bytes   int64
	// Freed is about how many bytes the nodes hold that lose it; -1: not known.
	Freed int64
}

// PlacementProgress is how far a change has come.
type PlacementProgress struct {
	MapVersion uint64
	// ShardsLeft are those of the plan that are not yet what they will be, or not
	// loaded where they will be.
	ShardsLeft int
	// Filling are replicas that are being loaded, 100 at most.
	Filling []ReplicaFilling
}

// ReplicaFilling is a replica that is being loaded.
type ReplicaFilling struct {
	Shard uint64
	Node  string
	// Bytes it has of OfBytes that the owner has, about; 0: not known.
	Bytes, OfBytes int64
}

// PlacementRun is a change that the voters have agreed on, or that was planned
// only. It serves one goroutine.
type PlacementRun struct {
	// Plan is what it comes to.
	Plan PlacementPlan

	c      *client.Client
	ctx    context.Context //nolint:containedctx // of the call that Wait continues
	req    *pb.ChangePlacementRequest
	stream pb.AdminService_ChangePlacementClient
	stop   context.CancelFunc
	next   *pb.PlacementProgress // received and not yet told
}

// agreeTimeout is how long a node may take until the voters agree, beyond
// [client.Config].AttemptTimeout.
const agreeTimeout = 12 * time.Second

// ChangePlacement asks any node for a change of the shard map, and returns once
// the voters have agreed: the change continues whether or not a caller waits for it.
// A node that goes away meanwhile costs a repetition at another one: with the
// request's ID it is done once.
//
// It fails with a [*RefusedError] when the change makes no sense or needs force,
// with a [*client.InvalidError] when it names what is not there, and with
// [client.ErrUnavailable] when no node could answer; then it may have been made, and
// ChangeOptions.Repeated tells. ctx is also that of [PlacementRun.Wait]; when it
// ends, or with [PlacementRun.Close], the run is given up, and not the change.
func (c *Client) ChangePlacement(ctx context.Context, change PlacementChange, o ChangeOptions) (*PlacementRun, error) {
	r := &PlacementRun{c: c.c, ctx: ctx, req: &pb.ChangePlacementRequest{
		RequestId: o.RequestID, Repeated: o.Repeated, IfVersion: o.IfVersion, DryRun: o.DryRun, Force: o.Force,
	}}
	if r.req.GetRequestId() == "" {
		r.req.RequestId = rand.Text()
	}
	change.put(r.req)
	if err := r.open(true); err != nil {
		return nil, err
	}
	return r, nil
}

// RequestID returns the name of the request, for a repetition.
func (r *PlacementRun) RequestID() string { return r.req.GetRequestId() }

// open asks node after node until one answers with a plan.
func (r *PlacementRun) open(first bool) error {
	err := r.c.Call(r.ctx, agreeTimeout, func(ctx context.Context, node grpc.ClientConnInterface) error {
		plan, err := r.begin(ctx, node)
		switch {
		case err != nil:
			r.Close()
			r.req.Repeated = true // its outcome is not known
		case first:
			r.Plan = plan
		}
		return err
	})
	return refused(err)
}

// begin asks one node, and receives the plan until ctx ends. The stream stays open after
// that, until r is closed.
func (r *PlacementRun) begin(ctx context.Context, node grpc.ClientConnInterface) (plan PlacementPlan, err error) {
	run, stop := context.WithCancel(r.ctx)
	r.stop = stop
	late := context.AfterFunc(ctx, stop)
	defer late()
	if r.stream, err = pb.NewAdminServiceClient(node).ChangePlacement(run, r.req); err != nil {
		return plan, err //nolint:wrapcheck // judged by Call
	}
	for some := false; ; some = true {
		m, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && some && r.req.GetDryRun():
			return plan, nil
		case errors.Is(err, io.EOF):
			return plan, errProtocol
		case err != nil:
			return plan, err //nolint:wrapcheck // judged by Call
		case m.GetProgress() != nil:
			r.next = m.GetProgress()
			return plan, nil
		}
		plan.MapVersion = m.GetPlan().GetMapVersion()
		plan.Warnings = append(plan.Warnings, m.GetPlan().GetWarnings()...)
		for _, s := range m.GetPlan().GetSteps() {
			plan.Steps = append(plan.Steps, PlacementStep{
				From: shardsFrom(s.GetFrom()), To: shardsFrom(s.GetTo()), Filling: s.GetFilling(), Bytes: s.GetBytesToCopy(), Freed: s.GetBytesToFree(),
			})
		}
	}
}

// Wait waits until all of the plan is done, and calls report, which may be nil,
// whenever something has changed. It returns at once for a dry run. It fails when
// the context of [Client.ChangePlacement] ends, and with [client.ErrUnavailable]; the
// change continues.
func (r *PlacementRun) Wait(report func(PlacementProgress)) error {
	if r.req.GetDryRun() {
		return nil
	}
	defer r.Close()
	for {
		m, err := r.receive()
		if err != nil {
			return fmt.Errorf("follow the change of the shard map: %w", err)
		}
		if report != nil {
			report(progressFrom(m))
		}
		if m.GetDone() {
			return nil
		}
	}
}

// receive returns what comes next, from another node when this one goes away.
func (r *PlacementRun) receive() (*pb.PlacementProgress, error) {
	for r.next == nil {
		part, err := r.stream.Recv()
		if r.next = part.GetProgress(); err == nil {
			continue
		}
		r.Close()
		fault, retry := client.ErrorFrom(err)
		switch {
		case r.ctx.Err() != nil:
			return nil, context.Cause(r.ctx)
		case !retry && !errors.Is(err, io.EOF):
			return nil, refused(fault)
		}
		r.req.Repeated = true
		if err := r.open(false); err != nil {
			return nil, err
		}
	}
	m := r.next
	r.next = nil
	return m, nil
}

// Close ends the run, and not the change. It may be called twice.
func (r *PlacementRun) Close() {
	if r.stop != nil {
		r.stop()
	}
}

func progressFrom(m *pb.PlacementProgress) PlacementProgress {
	out := PlacementProgress{MapVersion: m.GetMapVersion(), ShardsLeft: int(m.GetShardsLeft())}
	for _, f := range m.GetFilling() {
		out.Filling = append(out.Filling, ReplicaFilling{Shard: f.GetShard(), Node: f.GetNode(), Bytes: f.GetBytes(), OfBytes: f.GetOfBytes()})
	}
	return out
}
