package kv

import "fmt"

// CompactedError says that a watch or read asked for history that is gone.
type CompactedError struct {
	// Requested is the revision asked for.
	Requested Revision
	// Floor is the oldest revision that a watch may start from, or that a
	// read may be taken at.
	Floor Revision
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("revision %d is gone: the oldest that can be asked for is %d; list, then watch from the list's revision plus one", e.Requested, e.Floor)
}

// FutureError says that a read asked for a revision that does not exist yet.
type FutureError struct {
	Requested Revision
	Current   Revision
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("revision %d does not exist yet: the newest is %d", e.Requested, e.Current)
}
