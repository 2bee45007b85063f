package shard

import (
	"fmt"
	"slices"
)

// Level returns the lowest feature level that can express the map, at least the finalized level.
// A node must support it to use the map.
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

// FinalLevel returns the finalized feature level: an operator has decided that nodes
// with older software need not return. Commands of a newer level are refused, and
// the planner does not use its features. Maps from before LevelSettings have no
// finalized level: their level was used as soon as all members understood it.
func (m *Map) FinalLevel() int { return max(m.Level(), LevelWatches) }

// Adds describes the features of a level for operators; "" for levels that need no finalizing
// and for unknown levels.
func Adds(level int) string {
	if level == LevelSettings {
		return "changes of --replicas and --prefix, and placement by the weights of nodes (--weight)"
	}
	return ""
}

// CommandLevel returns the feature level of an encoded command, which a node must support to apply
// it; 0: the command is empty.
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
	// Members are the members with older software, ordered by name.
	Members []NodeID
}

func (e *OldMembersError) Error() string {
	return fmt.Sprintf("%v: it needs feature level %d, and members %v run older software: upgrade them first", ErrRefused, e.Level, e.Members)
}

// Unwrap returns ErrRefused.
func (e *OldMembersError) Unwrap() error { return ErrRefused }

// Allows returns an error if a change of a feature level cannot be made to m, which
// is nil before the cluster is founded: a [NotFinalError], or an [OldMembersError] if
// a member could not apply the command or read the resulting map. All members
// understand the present level of the map.
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
// that have left do not count, because they may return with newer software.
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

// Common returns the newest feature level that all members understand and that
// this software knows. Members that have left do not count.
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
		return levelLineage // newer software announces its level
	}
	return m.Level
}
