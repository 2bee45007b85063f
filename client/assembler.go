package client

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// assembler turns the responses of one watch, from all the nodes that serve it in turn,
// into updates: whole revisions and whole units, each once, in order. It is a value
// without a clock or a lock.
//
// Invariant: step has returned everything up to position and nothing after it (when
// positioned), or it was not requested. Position, lineage and cluster change together,
// and in a unit only with its last part: an attempt that fails leaves them unchanged.
type assembler struct {
	rng          Range
	prevKV       bool
	noResync     bool // the server may not send units
	conflate     time.Duration
	maxStaleness time.Duration
	maxUnit      int // bytes; 0: any

	wantState  bool   // the state is requested and not yet complete
	over       bool   // the state replaces everything returned before
	token      []byte // the start; until it is nil, position only repeats it
	positioned bool   // position is valid
	position   int64
	history            // of position; lineage 0: not known
	newest     history // the highest lineage that a node of the last cluster reported

	// The current attempt at a node; begin resets it.
	created bool
	there   history // the node's; becomes ours with the first update
	behind  bool    // only a unit can bridge the gap to the node's start
	partial Update  // the parts of an incomplete update so far; Kind 0: none
	size    int     // bytes of partial
}

// begin starts an attempt at a node, and returns the request for the remaining updates.
func (a *assembler) begin() *pb.CreateWatch {
	a.created, a.behind = false, false
	a.partial, a.size = Update{}, 0
	key, end := a.rng.wire()
	r := &pb.CreateWatch{Key: key, RangeEnd: end, PrevKv: a.prevKV, AllowSync: !a.noResync}
	if a.conflate > 0 {
		r.Conflate = durationpb.New(a.conflate)
	}
	if a.maxStaleness > 0 {
		r.MaxStaleness = durationpb.New(a.maxStaleness)
	}
	switch {
	case a.wantState:
		r.Start = &pb.CreateWatch_StateFirst{StateFirst: true}
	case a.token != nil:
		r.Start = &pb.CreateWatch_ResumeToken{ResumeToken: a.token}
	case a.positioned:
		r.Start = &pb.CreateWatch_StartRevision{StartRevision: a.position + 1}
		r.ClusterId, r.Lineage = a.cluster, a.lineage
	}
	return r
}

// startOver requests the state: the position is no longer usable.
func (a *assembler) startOver() { a.wantState, a.over, a.token = true, true, nil }

// next returns the next revision; 0: only the nodes know it, from a token.
func (a *assembler) next() int64 {
	if !a.positioned {
		return 0
	}
	return a.position + 1
}

// start handles the answer to begin's request. It returns ErrLineage or ErrCluster when the
// node follows another history and may not report that by a unit, outcome.ErrBehind when the
// node does not know our lineage yet, and an outcome.ErrProtocol when it skips revisions.
func (a *assembler) start(c *pb.Created) error {
	a.there = history{c.GetClusterId(), c.GetLineage()}
	if a.newest.cluster != a.there.cluster { // each cluster counts its own lineages
		a.newest = a.there
	}
	a.newest.lineage = max(a.newest.lineage, a.there.lineage)
	switch {
	case a.there != a.newest:
		return outcome.ErrBehind
	case a.wantState:
		a.behind = true
	case !a.positioned, a.token != nil:
		// The server compares a token's history: when it is another one, a unit
		// follows. Until it arrives, requests use the token.
		a.positioned, a.position, a.history = true, c.GetRevision(), a.there
	case a.lineage == 0 && (a.cluster == "" || a.cluster == a.there.cluster):
		a.history = a.there
	case a.there != a.history && a.noResync:
		return a.wrong(a.there)
	case a.there != a.history:
		a.behind = true
	}
	if !a.behind && c.GetRevision() > a.position {
		if a.noResync {
			return fmt.Errorf("%w: requested to start at revision %d, it starts after %d", outcome.ErrProtocol, a.position+1, c.GetRevision())
		}
		a.behind = true
	}
	a.created = true
	return nil
}

// step handles the next response (events, a sync or progress) and returns the update
// that it completes, if any.
func (a *assembler) step(r *nodes.Response) (Update, bool, error) {
	if !a.created {
		return Update{}, false, fmt.Errorf("%w: data before the start of the watch", outcome.ErrProtocol)
	}
	switch {
	case r.GetSync() != nil:
		return a.sync(r.GetSync())
	case r.GetProgress() != nil:
		return a.progress(r.GetProgress().GetRevision())
	case len(r.GetEvents()) > 0:
		return a.events(r)
	}
	return Update{}, false, nil // a newer server's kind: it does not move the position
}

func (a *assembler) events(r *nodes.Response) (Update, bool, error) {
	switch {
	case a.behind:
		return Update{}, false, fmt.Errorf("%w: events before the unit that they continue", outcome.ErrProtocol)
	case a.partial.Kind != 0 && (a.partial.Kind != KindBatch || a.partial.Revision != r.GetRevision()):
		return Update{}, false, fmt.Errorf("%w: revision %d before %v at revision %d was complete", outcome.ErrProtocol, r.GetRevision(), a.partial.Kind, a.partial.Revision)
	case r.GetRevision() <= a.position: // already received from another node, from the same log
		return Update{}, false, nil
	}
	a.partial.Kind, a.partial.Revision = KindBatch, r.GetRevision()
	events := eventsOf(r)
	for i := range events {
		if err := a.check(events[i].KV.Key); err != nil {
			return Update{}, false, err
		}
		a.size += events[i].size()
	}
	if a.partial.Events == nil {
		a.partial.Events = events
	} else {
		a.partial.Events = append(a.partial.Events, events...)
	}
	if r.GetFragment() {
		return Update{}, false, nil
	}
	return a.complete(), true, nil
}

// check rejects a key outside the requested range.
func (a *assembler) check(key []byte) error {
	if len(key) == 0 || !a.rng.has(key) {
		return fmt.Errorf("%w: key %q is not in %v", outcome.ErrProtocol, key, a.rng)
	}
	return nil
}

func (a *assembler) sync(s *pb.Sync) (Update, bool, error) {
	if s.GetBegin() {
		if err := a.beginUnit(s); err != nil {
			return Update{}, false, err
		}
	}
	p := &a.partial
	if p.Kind == 0 || p.Kind != a.unitKind(s.GetKind()) || p.Revision != s.GetRevision() {
		return Update{}, false, fmt.Errorf("%w: a part of %v at revision %d within %v at revision %d",
			outcome.ErrProtocol, a.unitKind(s.GetKind()), s.GetRevision(), p.Kind, p.Revision)
	}
	for _, m := range s.GetKvs() {
		kv := keyValueFrom(m)
		if err := a.check(kv.Key); err != nil {
			return Update{}, false, err
		}
		a.size += kv.size()
		p.KVs = append(p.KVs, kv)
	}
	for _, key := range s.GetDeleted() {
		if err := a.check(key); err != nil {
			return Update{}, false, err
		}
		a.size += overhead + len(key)
		p.Deleted = append(p.Deleted, key)
	}
	if a.maxUnit > 0 && a.size > a.maxUnit {
		return Update{}, false, fmt.Errorf("%v at revision %d, after revision %d: %w (%d bytes)", p.Kind, p.Revision, a.position, ErrTooBig, a.maxUnit)
	}
	if !s.GetEnd() {
		return Update{}, false, nil
	}
	if err := p.sort(); err != nil {
		return Update{}, false, err
	}
	old := a.comparable() && p.Revision == a.position // nothing has happened since
	return a.complete(), !old, nil
}

// comparable reports whether the node's revisions can be compared with ours.
func (a *assembler) comparable() bool {
	return a.positioned && a.token == nil && a.there == a.history
}

// unitKind returns what a unit means to the consumer: the state that a watch starts
// with, or one that replaces everything returned before.
func (a *assembler) unitKind(k pb.SyncKind) UpdateKind {
	switch k {
	case pb.SyncKind_SYNC_KIND_STATE:
		if a.over {
			return KindResync
		}
		return KindState
	case pb.SyncKind_SYNC_KIND_RESYNC:
		return KindResync
	case pb.SyncKind_SYNC_KIND_DELTA:
		return KindDelta
	case pb.SyncKind_SYNC_KIND_CONFLATED:
		return KindConflated
	}
	return 0
}

// beginUnit checks that a unit fits the position.
func (a *assembler) beginUnit(s *pb.Sync) error {
	kind := a.unitKind(s.GetKind())
	isState := s.GetKind() == pb.SyncKind_SYNC_KIND_STATE
	switch {
	case a.partial.Kind == KindBatch:
		return fmt.Errorf("%w: %v before revision %d was complete", outcome.ErrProtocol, kind, a.partial.Revision)
	case kind == 0, a.wantState != isState, a.noResync && !isState, kind == KindConflated && a.conflate == 0:
		return fmt.Errorf("%w: a unit (%v) that was not requested", outcome.ErrProtocol, s.GetKind())
	case s.GetRevision() <= 0:
		return fmt.Errorf("%w: %v at revision %d", outcome.ErrProtocol, kind, s.GetRevision())
	case a.there != a.history && kind != KindResync && kind != KindState:
		return fmt.Errorf("%w: %v from one history to another", outcome.ErrProtocol, kind)
	case a.comparable() && s.GetRevision() < a.position:
		return fmt.Errorf("%w: %v at revision %d, we are at %d", outcome.ErrBehind, kind, s.GetRevision(), a.position)
	case s.GetFromRevision() > a.position && (kind == KindDelta || kind == KindConflated):
		return fmt.Errorf("%w: %v from revision %d, we are at %d", outcome.ErrProtocol, kind, s.GetFromRevision(), a.position)
	}
	// An incomplete unit is discarded: the node begins again.
	a.partial, a.size = Update{Kind: kind, Revision: s.GetRevision()}, 0
	if kind == KindDelta || kind == KindConflated {
		a.partial.From = a.position
	}
	return nil
}

// sort puts the keys of a unit in order. A duplicate key is an error: it is unknown
// which value holds.
func (u *Update) sort() error {
	byKey := func(a, b KeyValue) int { return bytes.Compare(a.Key, b.Key) }
	if u.Kind == KindDelta || u.Kind == KindConflated {
		if !slices.IsSortedFunc(u.KVs, byKey) {
			slices.SortFunc(u.KVs, byKey)
		}
		slices.SortFunc(u.Deleted, bytes.Compare)
	} else if len(u.Deleted) > 0 {
		return fmt.Errorf("%w: %v with deleted keys", outcome.ErrProtocol, u.Kind)
	}
	deleted := u.Deleted
	for i := range u.KVs {
		key := u.KVs[i].Key
		for len(deleted) > 0 && bytes.Compare(deleted[0], key) < 0 {
			deleted = deleted[1:]
		}
		if i > 0 && bytes.Compare(u.KVs[i-1].Key, key) >= 0 || len(deleted) > 0 && bytes.Equal(deleted[0], key) {
			return fmt.Errorf("%w: key %q twice or out of order in %v", outcome.ErrProtocol, key, u.Kind)
		}
	}
	for i := 1; i < len(u.Deleted); i++ {
		if bytes.Equal(u.Deleted[i-1], u.Deleted[i]) {
			return fmt.Errorf("%w: key %q twice in %v", outcome.ErrProtocol, u.Deleted[i], u.Kind)
		}
	}
	return nil
}

// steady reports that no unit and no part of a revision is pending.
func (a *assembler) steady() bool { return a.created && !a.behind && a.partial.Kind == 0 }

// progress handles progress, which may arrive in the middle of a unit: then it does not
// apply to the incomplete update.
func (a *assembler) progress(revision int64) (Update, bool, error) {
	if !a.steady() || revision <= a.position {
		return Update{}, false, nil
	}
	a.position, a.token = revision, nil
	return a.at(), true, nil
}

// at returns a progress update for the position.
func (a *assembler) at() Update {
	return Update{Kind: KindProgress, Revision: a.position, Lineage: a.lineage, Cluster: a.cluster}
}

func (a *assembler) complete() Update {
	u := a.partial
	a.partial, a.size = Update{}, 0
	a.wantState, a.over, a.token, a.behind = false, false, nil, false
	a.positioned, a.position, a.history = true, u.Revision, a.there
	u.Lineage, u.Cluster = a.lineage, a.cluster
	return u
}
