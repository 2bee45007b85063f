package native

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Happening is something that has happened to watches of clients, and is over.
type Happening struct {
	// What is "resume", or the serve mode by which a watch caught up.
	What  string
	Began time.Time
	// From is the revision that the client had, Revision the one that it was
	// brought to, or can be.
	From, Revision kv.Revision
	// Often: it may happen to all watches at once.
	Often bool
	Err   error
}

// resynced reports that a watch was brought up to date by a unit.
func (a *API) resynced(key syncbatch.Key, began time.Time, revision kv.Revision) {
	if a.cfg.Happened != nil {
		a.cfg.Happened(Happening{What: key.Mode().String(), Began: began, From: key.Since, Revision: revision})
	}
}
