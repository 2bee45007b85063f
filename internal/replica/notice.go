package replica

import "github.com/shardwatch/shardwatch/internal/kv"

// Notice is something that an operator may ask about tomorrow. A node with
// many shards has many of them at once: whoever is told should sum them up.
type Notice struct {
	What What
	// Source is the name of the candidate it is about.
	Source string
	// Err is why a source was lost.
	Err error
}

// What says what has happened.
type What string

// What can happen.
const (
	StateTaken   What = "took state and window from another node"
	SourceLost   What = "source lost, changing over"
	BetterSource What = "a better source is back, changing over"
	GapFilled    What = "took missing history from another node's window"
	Leapt        What = "took what has changed from another node"
)

func (f *Failover) notice(n Notice, r kv.Range) {
	f.Logger.Debug(string(n.What), "source", n.Source, "range", r, "error", n.Err)
	if f.Noticed != nil {
		f.Noticed(n)
	}
}
