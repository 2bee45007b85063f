package mapchange

import (
	"fmt"
	"strings"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Order is a request and how it is meant.
type Order struct {
	Request Request
	// ID names the order: it is done once however often it comes. Repeated says
	// that it came before, and that its result is unknown.
	ID       string
	Repeated bool
	// IfVersion is the version that the map must have; 0: any.
	IfVersion uint64
	// DryRun wants the plan alone.
	DryRun bool
	// Force overrides refusals that are safety checks.
	Force bool
}

// Request is a requested shard map change: [Split], [Merge], [Move], [Drain], [Undrain],
// [Rebalance], [Finalize] or [Settings]. Its String is for logs.
type Request interface {
	fmt.Stringer
	// change returns the change to propose, nil when it is already made, and the
	// doubts about it, which can be overridden. An error cannot.
	change(c *Cluster) (change shard.Change, doubts []*RefusedError, err error)
	// about reports whether the request may change the shard, and touches whether
	// it is the reason why a shard that is from is to be to.
	about(s *shard.Shard) bool
	touches(from, to *shard.Shard) bool
}

// Split cuts a shard in parts.
type Split struct {
	Shard shard.ID
	// At are the first keys of the parts behind the first, in any order. At least
	// one: a request without a cut gets one that halves the keys.
	At []string
}

// Merge makes one shard of two that touch.
type Merge struct{ Shard, With shard.ID }

// Move says which nodes have a shard.
type Move struct {
	Shard shard.ID
	// To are the nodes, in order of preference; or Owner is the one that is to
	// own it.
	To    []shard.NodeID
	Owner shard.NodeID
}

// Drain takes all shards from nodes, Undrain ends that.
type (
	Drain   struct{ Nodes []shard.NodeID }
	Undrain struct{ Nodes []shard.NodeID }
)

// Rebalance drops the placements that operators made by hand.
type Rebalance struct{}

// Finalize makes a feature level the cluster's own.
type Finalize struct {
	// Level; 0: the newest that a member understands.
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

// names is a list of nodes for people.
func names[T ~string](nodes []T) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

// RefusedError reports why an order is not carried out.
type RefusedError struct {
	// Field is the part of the request that it is about, as the API names it.
	Field  string
	Reason string
	// Force: it is done all the same when the order says so.
	Force bool
}

func (e *RefusedError) Error() string { return e.Field + ": " + e.Reason }

// Unwrap returns shard.ErrRefused.
func (e *RefusedError) Unwrap() error { return shard.ErrRefused }

func refused(field, format string, args ...any) *RefusedError {
	return &RefusedError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// doubt is a refusal that can be overridden.
func doubt(field, format string, args ...any) *RefusedError {
	return &RefusedError{Field: field, Reason: fmt.Sprintf(format, args...), Force: true}
}
