package placement

import (
	"errors"
	"fmt"

	"github.com/shardwatch/shardwatch/internal/shard"
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
