package native

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Happening is a completed event in the life of a client's watch.
type Happening struct {
	// What is "resume", or the serve mode by which the watch caught up.
	What  string
	Began time.Time
	// From is the client's revision before, Revision its revision after, or the
	// one that it can reach.
	From, Revision kv.Revision
	// Often reports that it may happen to all watches at once.
	Often bool
	Err   error
}

// resynced reports that a watch was brought up to date by a unit.
func (a *API) resynced(key syncbatch.Key, began time.Time, revision kv.Revision) {
	if a.cfg.Happened != nil {
		a.cfg.Happened(Happening{What: key.Mode().String(), Began: began, From: key.Since, Revision: revision})
	}
}
