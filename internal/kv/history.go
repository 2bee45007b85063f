package kv

import (
	"fmt"
	"time"
)

// HistoryID names one history of etcd. Revisions can be compared only within one history.
// The zero HistoryID means that the history is unknown.
type HistoryID struct {
	// Cluster is the ID of the cluster of nodes. It is random, so a cluster that was
	// rebuilt at the same addresses has another ID, although etcd's cluster ID, a hash
	// of etcd's flags, may be the same.
	Cluster string
	// Lineage is counted by each cluster from 1; see package shard.
	Lineage uint64
}

// Mark is the furthest known point of a history of etcd. Within one history no number decreases
// between linearizable reads, and the cluster stays the same.
type Mark struct {
	// Cluster is the ID of etcd's cluster; 0: not known.
	Cluster uint64 `json:"cluster,omitempty"`
	// Term is raft's term, as of the last applied entry; 0: not known.
	Term uint64 `json:"term,omitempty"`
	// Index is the index of the last committed entry of raft's log; 0: not known.
	Index uint64 `json:"index,omitempty"`
	// Revision is the store's revision; 0: not known.
	Revision Revision `json:"revision,omitempty"`
}

// Join returns the furthest of two marks of one history.
func (m Mark) Join(o Mark) Mark {
	if m.Cluster == 0 {
		m.Cluster = o.Cluster
	}
	m.Term, m.Index, m.Revision = max(m.Term, o.Term), max(m.Index, o.Index), max(m.Revision, o.Revision)
	return m
}

// Judge returns the reason why is, read after m, cannot belong to m's history; nil if it can.
// Unknown fields are not compared.
func (m Mark) Judge(is Mark) *HistoryError {
	e := &HistoryError{Was: m, Is: is}
	switch {
	case m.Cluster != 0 && is.Cluster != 0 && m.Cluster != is.Cluster:
		e.Cause = CauseCluster
	case is.Revision != 0 && is.Revision < m.Revision:
		e.Cause = CauseRevision
	case is.Term != 0 && is.Term < m.Term:
		e.Cause = CauseTerm
	case is.Index != 0 && is.Index < m.Index:
		e.Cause = CauseIndex
	default:
		return nil
	}
	return e
}

// Cause is the evidence by which a node recognised another history.
type Cause string

// The causes. They are stored in raft's log, so their meaning must not change.
const (
	CauseCluster  Cause = "cluster"  // etcd's cluster has another ID
	CauseRevision Cause = "revision" // the store's revision went back
	CauseTerm     Cause = "term"     // raft's term went back
	CauseIndex    Cause = "index"    // the index of raft's log went back
	CauseContent  Cause = "content"  // keys differ from their contents at their revisions
	CauseOperator Cause = "operator" // an operator began a new lineage
)

// Causes returns all causes.
func Causes() []Cause {
	return []Cause{CauseCluster, CauseRevision, CauseTerm, CauseIndex, CauseContent, CauseOperator}
}

// HistoryError reports that etcd no longer has the history that the nodes follow. It is an
// [ErrOtherHistory], and an *UnavailableError: requests succeed again once the cluster has begun a
// new lineage.
type HistoryError struct {
	Cause Cause
	// Was is the furthest known mark of the history before, Is the mark that etcd
	// shows instead.
	Was, Is Mark
	// Detail describes the difference, with CauseContent.
	Detail string
}

// historyRetry is the retry delay of refused callers: a new lineage takes a
// moment.
const historyRetry = 500 * time.Millisecond

func (e *HistoryError) Error() string {
	return fmt.Sprintf("etcd has a different history (%s): its cached data is no longer served, and a new lineage begins once the nodes agree on it", e.Finding())
}

// Finding returns the evidence as text.
func (e *HistoryError) Finding() string {
	switch e.Cause {
	case CauseCluster:
		return fmt.Sprintf("its cluster ID is %x, and was %x", e.Is.Cluster, e.Was.Cluster)
	case CauseRevision:
		return fmt.Sprintf("it is at revision %d, and was at %d", e.Is.Revision, e.Was.Revision)
	case CauseTerm:
		return fmt.Sprintf("it is in raft term %d, and was in %d", e.Is.Term, e.Was.Term)
	case CauseIndex:
		return fmt.Sprintf("its raft log is at index %d, and was at %d", e.Is.Index, e.Was.Index)
	case CauseContent, CauseOperator:
	}
	return e.Detail
}

// Unwrap returns ErrOtherHistory and an *UnavailableError.
func (e *HistoryError) Unwrap() []error {
	return []error{ErrOtherHistory, &UnavailableError{Why: NotReady, RetryAfter: historyRetry, Detail: e.Error()}}
}
