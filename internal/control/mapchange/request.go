package mapchange

import (
	"fmt"
	"strings"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Order is a [Request] with its options.
type Order struct {
	Request Request
	// ID identifies the order, which is carried out once even if it is sent again.
	// Repeated marks an order that was sent before, with an unknown result.
	ID       string
	Repeated bool
	// IfVersion is the version that the map must have; 0: any.
	IfVersion uint64
	// DryRun asks for the plan only.
	DryRun bool
	// Force overrides the safety checks.
	Force bool
}

// Request is a requested shard map change: [Split], [Merge], [Move], [Drain], [Undrain],
// [Rebalance], [Finalize] or [Settings]. Its String is for logs.
type Request interface {
	fmt.Stringer
	// change returns the change to propose, nil when it is already made, and the
	// doubts about it, which Force overrides. Force does not override an error.
	change(c *Cluster) (change shard.Change, doubts []*RefusedError, err error)
	// about reports whether the request may change the shard, and touches whether
	// the request is the reason for the change of a shard from from to to.
	about(s *shard.Shard) bool
	touches(from, to *shard.Shard) bool
}

// Split cuts a shard into parts.
type Split struct {
	Shard shard.ID
	// At are the first keys of all parts but the first, in any order. At least one:
	// to a request without a cut, the node that receives it adds one that halves the keys.
	At []string
}

// Merge merges two adjacent shards.
type Merge struct{ Shard, With shard.ID }

// Move sets the nodes of a shard.
type Move struct {
	Shard shard.ID
	// To are the nodes, in order of preference. Owner is an alternative: the
	// node that should own the shard.
	To    []shard.NodeID
	Owner shard.NodeID
}

// Drain moves all shards away from nodes, Undrain ends that.
type (
	Drain   struct{ Nodes []shard.NodeID }
	Undrain struct{ Nodes []shard.NodeID }
)

// Rebalance drops the placements that operators have set by moves.
type Rebalance struct{}

// Finalize sets the feature level of the cluster.
type Finalize struct {
	// Level is the feature level; 0: the newest that a member understands.
	Level int
}

func (r Split) String() string {
	if len(r.At) == 0 {
		return fmt.Sprintf("split shard %d", r.Shard)
	}
	return fmt.Sprintf("split shard %d at %q", r.Shard, r.At)
}

func (r Merge) String() string { return fmt.Sprintf("merge shards %d and %d", r.Shard, r.With) }

func (r Move) String() string {
	if r.Owner != "" {
		return fmt.Sprintf("move shard %d to owner %s", r.Shard, r.Owner)
	}
	return fmt.Sprintf("move shard %d to %s", r.Shard, names(r.To))
}

func (r Drain) String() string   { return "drain " + names(r.Nodes) }
func (r Undrain) String() string { return "undrain " + names(r.Nodes) }
func (Rebalance) String() string { return "rebalance" }

func (r Finalize) String() string { return fmt.Sprintf("finalize feature level %d", r.Level) }

// names formats a list of nodes for messages.
func names[T ~string](nodes []T) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

// RefusedError reports why an order is refused.
type RefusedError struct {
	// Field is the part of the request that is refused, as the API names it.
	Field  string
	Reason string
	// Force: the order is carried out all the same if its Force is set.
	Force bool
}

func (e *RefusedError) Error() string { return e.Field + ": " + e.Reason }

// Unwrap returns shard.ErrRefused.
func (e *RefusedError) Unwrap() error { return shard.ErrRefused }

func refused(field, format string, args ...any) *RefusedError {
	return &RefusedError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// doubt returns a refusal that Force overrides.
func doubt(field, format string, args ...any) *RefusedError {
	return &RefusedError{Field: field, Reason: fmt.Sprintf(format, args...), Force: true}
}
