package shard

import (
	"errors"
	"fmt"
)

// ErrRefused is wrapped by every error of [Apply] that is final: the command
// was understood and changes nothing, now or when repeated.
var ErrRefused = errors.New("change of the shard map refused")

// Reasons to refuse a command. All wrap [ErrRefused].
var (
	// ErrFounded: the cluster is founded already.
	ErrFounded = fmt.Errorf("%w: the cluster is founded already", ErrRefused)
	// ErrNotFounded: there is no map to change yet.
	ErrNotFounded = fmt.Errorf("%w: the cluster is not founded yet", ErrRefused)
	// ErrUnknownShard: the command names a shard the map does not have.
	ErrUnknownShard = fmt.Errorf("%w: no such shard", ErrRefused)
	// ErrInvalid: the command, or the resulting map, breaks a rule.
	ErrInvalid = fmt.Errorf("%w: invalid", ErrRefused)
)

// StaleError reports that a command was made for another version of the map. It
// wraps [ErrRefused]. Read the current map and decide again.
type StaleError struct {
	IfVersion, Current uint64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: made for map version %d, the current one is %d", ErrRefused, e.IfVersion, e.Current)
}

// Unwrap returns ErrRefused.
func (e *StaleError) Unwrap() error { return ErrRefused }

// LineageError reports that a [Renew] was made for a lineage that is not the
// current one. It wraps [ErrRefused].
type LineageError struct {
	Ended, Current uint64
}

func (e *LineageError) Error() string {
	return fmt.Sprintf("%v: made to end lineage %d, the current one is %d", ErrRefused, e.Ended, e.Current)
}

// Unwrap returns ErrRefused.
func (e *LineageError) Unwrap() error { return ErrRefused }

// Errors of decoding.
var (
	// ErrMalformed reports that bytes are not an encoded command or map.
	ErrMalformed = errors.New("malformed shard map or command")
	// ErrNewer reports that bytes were written by a newer version. A node that
	// finds them in the raft log must stop: if it skipped a command that others
	// apply, its map would differ from theirs.
	ErrNewer = errors.New("written by a newer version of this software: upgrade this node")
)

// LeaderError reports that a node does not lead the voters, and names the leader if
// known.
type LeaderError struct {
	// Leader is "" when none is known.
	Leader NodeID
}

func (e *LeaderError) Error() string {
	if e.Leader == "" {
		return "no leader of the voters is known"
	}
	return fmt.Sprintf("node %s leads the voters", e.Leader)
}
