package placement

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// timedLog is a raft log that reports how long a write has been in progress.
type timedLog struct {
	raft.LogStore

	mu    sync.Mutex
	since time.Time // when the write in progress began, otherwise zero; guarded by mu
}

// StoreLog writes one entry.
func (l *timedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs writes entries. Only raft's main loop calls it, one at a time.
func (l *timedLog) StoreLogs(es []*raft.Log) error {
	l.mark(time.Now())
	defer l.mark(time.Time{})
	return l.LogStore.StoreLogs(es)
}

func (l *timedLog) mark(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = since
}

// writing returns when the write in progress began, and false when there is none.
func (l *timedLog) writing() (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, !l.since.IsZero()
}
