package check

import "github.com/shardwatch/shardwatch/internal/kv"

// position is the revision up to which a watcher has everything.
type position struct {
	rev   kv.Revision
	known bool
}

// start sets the position from the requested start, or else from the first
// OpCreated or OpState. It reports whether the position is known.
func (p *position) start(w *Watch, op *Op) bool {
	if p.known {
		return true
	}
	switch {
	case w.Start > 0:
		p.rev, p.known = w.Start-1, true
	case op.Kind == OpCreated, op.Kind == OpState:
		p.rev, p.known = op.Revision, true
	}
	return p.known
}

// moveTo moves forward, never back.
func (p *position) moveTo(rev kv.Revision) {
	if rev > p.rev {
		p.rev = rev
	}
}
