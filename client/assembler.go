package client

import (
	"fmt"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// assembler turns the responses of one watch, over all the nodes it lives
// through, into updates: whole revisions, each once, in order. It is a value
// without a clock or a lock.
//
// Invariant: everything up to position, and nothing behind it, has been
// returned by step (when positioned), or was not asked for.
type assembler struct {
	rng    Range
	prevKV bool

	wantState  bool   // the state was asked for and is not complete
	token      []byte // where to start, until positioned
	positioned bool   // position means something
	position   int64
	lineage    uint64 // 0: not known

	// What has arrived of a unit that is not complete. It is dropped by begin.
	created bool
	partial Update // Kind 0: none
	size    int    // bytes of partial
}

// begin starts an attempt at a node, and returns how to ask for the rest.
func (a *assembler) begin() *pb.CreateWatch {
	a.created = false
	a.partial, a.size = Update{}, 0
	key, end := a.rng.wire()
	r := &pb.CreateWatch{Key: key, RangeEnd: end, PrevKv: a.prevKV}
	switch {
	case a.wantState:
		r.Start = &pb.CreateWatch_StateFirst{StateFirst: true}
	case a.positioned:
		r.Start = &pb.CreateWatch_StartRevision{StartRevision: a.position + 1}
		r.Lineage = a.lineage
	case a.token != nil:
		r.Start = &pb.CreateWatch_ResumeToken{ResumeToken: a.token}
	}
	return r
}

// start handles the answer to begin's request. It returns ErrLineage when
// the node follows another history, and an errProtocol when it skips
// revisions.
func (a *assembler) start(c *pb.Created) error {
	switch {
	case a.lineage != 0 && c.GetLineage() != a.lineage && !a.wantState:
		return ErrLineage
	case a.wantState:
		a.lineage = c.GetLineage() // no state has been seen: any history will do
	case !a.positioned:
		a.positioned, a.position = true, c.GetRevision()
		a.lineage = c.GetLineage()
	case c.GetRevision() > a.position:
		return fmt.Errorf("%w: asked to start at revision %d, it starts behind %d", errProtocol, a.position+1, c.GetRevision())
	default:
		a.lineage = c.GetLineage()
	}
	a.created = true
	return nil
}

// step takes the next response, one with events, a sync or progress, and
// returns the update it completes, if any.
func (a *assembler) step(r *pb.WatchResponse) (Update, bool, error) {
	if !a.created {
		return Update{}, false, fmt.Errorf("%w: data before the start of the watch", errProtocol)
	}
	switch {
	case r.GetSync() != nil:
		return a.sync(r.GetSync())
	case r.GetProgress() != nil:
		return a.progress(r.GetProgress().GetRevision())
	case len(r.GetEvents()) > 0:
		return a.events(r)
	}
	return Update{}, false, nil // a kind of a newer server: nothing that moves a position
}

func (a *assembler) events(r *pb.WatchResponse) (Update, bool, error) {
	switch {
	case a.wantState:
		return Update{}, false, fmt.Errorf("%w: events before the state is complete", errProtocol)
	case a.partial.Kind != 0 && a.partial.Revision != r.GetRevision():
		return Update{}, false, fmt.Errorf("%w: revision %d before revision %d was complete", errProtocol, r.GetRevision(), a.partial.Revision)
	case r.GetRevision() <= a.position: // seen elsewhere, from the same log
		return Update{}, false, nil
	}
	a.partial.Kind, a.partial.Revision = KindBatch, r.GetRevision()
	for _, p := range r.GetEvents() {
		e := eventFrom(p)
		a.size += e.size()
		a.partial.Events = append(a.partial.Events, e)
	}
	if r.GetFragment() {
		return Update{}, false, nil
	}
	return a.complete(), true, nil
}

func (a *assembler) sync(s *pb.Sync) (Update, bool, error) {
	switch {
	case s.GetKind() != pb.SyncKind_SYNC_KIND_STATE || !a.wantState:
		return Update{}, false, fmt.Errorf("%w: a unit (%v) that was not asked for", errProtocol, s.GetKind())
	case s.GetBegin() != (a.partial.Kind == 0):
		return Update{}, false, fmt.Errorf("%w: a state begins twice or in its middle", errProtocol)
	case !s.GetBegin() && s.GetRevision() != a.partial.Revision:
		return Update{}, false, fmt.Errorf("%w: a state at revisions %d and %d", errProtocol, a.partial.Revision, s.GetRevision())
	}
	a.partial.Kind, a.partial.Revision = KindState, s.GetRevision()
	for _, p := range s.GetKvs() {
		kv := keyValueFrom(p)
		a.size += kv.size()
		a.partial.KVs = append(a.partial.KVs, kv)
	}
	if !s.GetEnd() {
		return Update{}, false, nil
	}
	a.wantState = false
	return a.complete(), true, nil
}

// progress of a stream may arrive in the middle of a unit: it does not hold
// for what is not complete.
func (a *assembler) progress(revision int64) (Update, bool, error) {
	if a.wantState || a.partial.Kind != 0 || revision <= a.position {
		return Update{}, false, nil
	}
	a.position = revision
	return Update{Kind: KindProgress, Revision: revision, Lineage: a.lineage}, true, nil
}

func (a *assembler) complete() Update {
	u := a.partial
	u.Lineage = a.lineage
	a.partial, a.size = Update{}, 0
	a.positioned, a.position = true, u.Revision
	return u
}
