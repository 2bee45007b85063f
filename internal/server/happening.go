package server

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Happening is something that has happened to watches of clients, and is over.
type Happening struct {
	// What is a word: resume, or the rung that a watch was helped up by.
	What  string
	Began time.Time
	// From is the revision that the client had, Revision the one that it was
	// brought to, or can be.
	From, Revision kv.Revision
	// Often: it may happen to all watches at once.
	Often bool
	Err   error
}
