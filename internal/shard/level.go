package shard

import (
	"fmt"
	"slices"
)

// Level returns the lowest feature level that can express the map. A node must support it to use
// the map. It is at least the finalized level.
func (m *Map) Level() int {
	switch {
	case m.Finalized != 0:
		return m.Finalized
	case m.Generation != 0 || m.Spec.Owners != 0:
		return LevelSettings
	case slices.ContainsFunc(m.Shards, func(s Shard) bool { return s.Home.marked() }):
		return LevelWatches
	case len(m.Drained) > 0 || slices.ContainsFunc(m.Shards, func(s Shard) bool { return !s.Home.IsZero() }):
		return LevelHomes
	case m.Origin != nil:
		return levelLineage
	}
	return levelFirst
}

// FinalLevel returns the feature level that is finalized: an operator has decided
// that nodes of older software need not come back. Commands of a newer level are
// refused, and the planner does without. Maps from before LevelSettings say nothing;
// their level was used as soon as all members understood it.
func (m *Map) FinalLevel() int { return max(m.Level(), LevelWatches) }

// Adds describes the features of a level, for people; "" for levels that need no finalizing and
// for those that this software does not know.
func Adds(level int) string {
	if level == LevelSettings {
		return "changes of --replicas and --prefix, and placement by the weights of nodes (--weight)"
	}
	return ""
}

// CommandLevel returns the feature level of an encoded command, which a node must support to apply
// it; 0: none.
func CommandLevel(command []byte) int {
	if len(command) == 0 {
		return 0
	}
	return int(command[0])
}

// NotFinalError reports that a command needs a feature level that is not finalized. It
// wraps [ErrRefused].
type NotFinalError struct {
	Level, Final int
}

func (e *NotFinalError) Error() string {
	return fmt.Sprintf("%v: it needs feature level %d, and level %d is finalized: upgrade all nodes, then run cachectl upgrade finalize", ErrRefused, e.Level, e.Final)
}

// Unwrap returns ErrRefused.
func (e *NotFinalError) Unwrap() error { return ErrRefused }

// OldMembersError reports that a command needs a feature level that not every member
// has. It wraps [ErrRefused].
type OldMembersError struct {
	Level int
	// Members are those that are too old, in the order of their names.
	Members []NodeID
}

func (e *OldMembersError) Error() string {
	return fmt.Sprintf("%v: it needs feature level %d, and members %v run older software: upgrade them first", ErrRefused, e.Level, e.Members)
}

// Unwrap returns ErrRefused.
func (e *OldMembersError) Unwrap() error { return ErrRefused }

// Allows reports why a change of a feature level cannot be made of m, which is nil
// before the cluster is founded: with a [NotFinalError], or an [OldMembersError] when
// a member could not apply the command or read the map that it makes. All members
// understand the level that the map has already.
func Allows(m *Map, change Change, level int, members []Member) error {
	switch _, finalizes := change.(Finalize); {
	case m == nil || finalizes:
		return Understood(level, members)
	case level > m.FinalLevel():
		return &NotFinalError{Level: level, Final: m.FinalLevel()}
	case level <= m.Level():
		return nil
	}
	return Understood(level, members)
}

// Understood returns an [OldMembersError] when not all members have the feature level. Members
// that have left do not count: they may return with newer software.
func Understood(level int, members []Member) error {
	var old []NodeID
	for i := range members {
		if m := &members[i]; m.State != Left && m.understands() < level {
			old = append(old, m.Name)
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.Sort(old)
	return &OldMembersError{Level: level, Members: old}
}

// Common returns the newest feature level that all members understand, as far as
// this software knows it. Those that have left do not count.
func Common(members []Member) int {
	level := Level
	for i := range members {
		if members[i].State != Left {
			level = min(level, members[i].understands())
		}
	}
	return level
}

// understands returns the member's feature level.
func (m *Member) understands() int {
	if m.Level == 0 {
		return levelLineage // the last that was not told
	}
	return m.Level
}
