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

// PlacementChange is a shard map change that an operator requests: [SplitShard],
// [MergeShards], [MoveShard], [DrainNodes], [UndrainNodes], [Rebalance],
// [FinalizeUpgrade] or [ChangeSettings].
type PlacementChange interface {
	put(r *pb.ChangePlacementRequest)
}

// SplitShard splits a shard into new shards on the same nodes.
type SplitShard struct {
	Shard uint64
	// At has the first keys of the second and later parts. Empty: the shard is split
	// into two parts with about as many keys.
	At []string
}

// MergeShards merges two adjacent shards into one.
type MergeShards struct{ Shard, With uint64 }

// MoveShard assigns nodes to a shard, until it is moved again, or [Rebalance].
type MoveShard struct {
	Shard uint64
	// To has names of nodes, in order of preference: the first watches etcd. Owner only
	// names the node that watches etcd. One of them is set.
	To    []string
	Owner string
}

// DrainNodes moves all shards off nodes, and gives them none until [UndrainNodes].
type DrainNodes struct{ Nodes []string }

// UndrainNodes ends the effect of [DrainNodes].
type UndrainNodes struct{ Nodes []string }

// Rebalance moves all shards to the nodes that the planner chooses, also those moved by hand.
type Rebalance struct{}

// FinalizeUpgrade finalizes a feature level: its features can be used, and nodes whose
// software does not support it cannot rejoin. It is rejected while a member that has
// not left does not support the level.
type FinalizeUpgrade struct {
	// Level; 0: the newest that a member supports.
	Level int
}

// ChangeSettings changes the settings of the cluster, which are part of the shard map:
// the flags --replicas and --prefix of nodes apply only when a cluster is founded.
type ChangeSettings struct {
	// Replicas is the number of replicas of each shard; 0: unchanged.
	Replicas int
	// Served has the ranges of keys to serve, in any order; none: unchanged. The zero
	// Range is all keys. Watches of keys that are no longer served end with
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

// ChangeOptions are options of a shard map change. The zero value is valid.
type ChangeOptions struct {
	// RequestID identifies the request, in 128 bytes at most: it is executed once
	// however often it is sent. Empty: the client generates one. Repeated means that
	// the request was sent before, by any client, and that its result is unknown.
	RequestID string
	Repeated  bool
	// IfVersion is the required version of the shard map; 0: any.
	IfVersion uint64
	// DryRun requests only the plan.
	DryRun bool
	// Force overrides the safety checks: see [RefusedError].
	Force bool
}

// PlacementPlan has the effects of a change.
type PlacementPlan struct {
	// MapVersion is the version of the map with the change; for a dry run, without it.
	MapVersion uint64
	// Steps has the changes of shards. Shards that are not in it stay unchanged.
	Steps []PlacementStep
	// Warnings has the checks that force overrode, and other warnings for the operator.
	Warnings []string
}

// PlacementStep is the change of one shard, or of several that are split or merged together.
type PlacementStep struct {
	// From has the shards before the step: one, or those that are merged. To has the
	// shards after it: one, or the parts of a split. The IDs of parts are those that they
	// get if no other change comes first; that of a merged shard is 0. Keys that become
	// served have no shard in From, and keys that are no longer served none in To.
	From, To []Shard
	// Filling has the nodes that must copy the shard from others, Bytes about the total
	// size of these copies; -1: not known.
	Filling []string
	Bytes   int64
	// Freed is about how many bytes the nodes that lose the shard release; -1: not known.
	Freed int64
}

// PlacementProgress is the progress of a change.
type PlacementProgress struct {
	MapVersion uint64
	// ShardsLeft is the number of steps of the plan whose shards are not changed yet, or
	// not loaded yet on their new nodes.
	ShardsLeft int
	// Filling has replicas that are being loaded, 100 at most.
	Filling []ReplicaFilling
}

// ReplicaFilling is a replica that is being loaded.
type ReplicaFilling struct {
	Shard uint64
	Node  string
	// Bytes is about how many bytes the replica has loaded, of OfBytes at the owner; 0: not known.
	Bytes, OfBytes int64
}

// PlacementRun is a change that the voters have accepted, or a dry run. It serves one goroutine.
type PlacementRun struct {
	// Plan has the effects of the change.
	Plan PlacementPlan

	c      *client.Client
	ctx    context.Context //nolint:containedctx // of the call that Wait continues
	req    *pb.ChangePlacementRequest
	stream pb.AdminService_ChangePlacementClient
	stop   context.CancelFunc
	next   *pb.PlacementProgress // received and not yet returned
}

// agreeTimeout is how long a node may wait for the agreement of the voters, beyond
// [client.Config].AttemptTimeout.
const agreeTimeout = 12 * time.Second

// ChangePlacement requests a shard map change from any node, and returns once the
// voters have accepted it: the change then continues whether or not a caller waits for
// it. If the node fails meanwhile, the request is repeated at another node; the request
// ID ensures that it is executed once.
//
// It fails with a [*RefusedError] if the change makes no sense or needs force, with a
// [*client.InvalidError] if it names a shard or node that does not exist, and with
// [client.ErrUnavailable] if no node answered; then the change may have been made, and a
// repetition with ChangeOptions.Repeated reports it. ctx also applies to
// [PlacementRun.Wait]; its end, or [PlacementRun.Close], ends the run but not the change.
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

// RequestID returns the ID of the request, for a repetition.
func (r *PlacementRun) RequestID() string { return r.req.GetRequestId() }

// open tries one node after another until one answers with a plan.
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

// begin sends the request to one node, and receives the plan until ctx ends. The stream
// then stays open until r is closed.
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

// Wait waits until the whole plan is done, and calls report, which may be nil, after each
// change of the progress. It returns at once for a dry run. It fails when the context of
// [Client.ChangePlacement] ends, and with [client.ErrUnavailable]; the change continues.
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

// receive returns the next progress, from another node if this one fails.
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

// Close ends the run, but not the change. It may be called twice.
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
