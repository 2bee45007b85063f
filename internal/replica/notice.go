package replica

import (
	"errors"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Notice is an event of interest to operators. A node with many shards has many of them
// at once: the observer should aggregate them.
type Notice struct {
	What What
	// Source is the name of the candidate.
	Source string
	// Err is the reason why a source was left.
	Err error
	// Began is the start of the event: for Followed, the loss of the previous source.
	Began time.Time
	// Revision is the revision up to which this node had everything.
	Revision kv.Revision
}

// What is the kind of a notice.
type What string

// Whats returns all kinds of notices.
func Whats() []What {
	return []What{StateTaken, SourceLost, HandedOn, BetterSource, Followed, GapFilled, Leapt}
}

// Label returns the kind as one word, for metrics.
func (w What) Label() string {
	switch w {
	case StateTaken:
		return "state_taken"
	case SourceLost:
		return "source_lost"
	case HandedOn:
		return "handed_on"
	case BetterSource:
		return "better_source"
	case Followed:
		return "followed"
	case GapFilled:
		return "gap_filled"
	case Leapt:
		return "leapt"
	}
	return "unknown"
}

// The kinds of notices.
const (
	StateTaken   What = "took state and window from another node"
	SourceLost   What = "source lost, changing over"
	HandedOn     What = "source handed the shard over, changing over"
	BetterSource What = "a better source is ready, changing over"
	Followed     What = "changed over to another source"
	GapFilled    What = "took missing history from another node's window"
	Leapt        What = "took the difference from another node"
)

// leftWith returns the kind of notice for a source that was left with err. A node that
// answers that it no longer serves the shard has handed it over.
func leftWith(err error) What {
	if errors.As(err, new(*kv.UnavailableError)) || errors.As(err, new(*kv.NotHereError)) {
		return HandedOn
	}
	return SourceLost
}

func (f *Failover) notice(n Notice, r kv.Range) {
	f.Logger.Debug(string(n.What), "source", n.Source, "range", r, "error", n.Err)
	if f.Noticed != nil {
		f.Noticed(n)
	}
}
