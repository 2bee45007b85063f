package clienttest

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// watch is one watch of a stream.
type watch struct {
	id         int64
	start, end string
	next       int64 // the first revision not delivered
	prev       bool
	lineage    uint64
	sync       bool          // units may be sent
	conflate   time.Duration // 0: every event is sent
	unitAt     time.Time     // of the last conflated unit
	staleness  time.Duration // the oldest data to send; 0: any
}

// watchStream serves one Watch stream, from one goroutine.
type watchStream struct {
	n         *Node
	c         *Cluster
	rpc       pb.CacheService_WatchServer
	watches   []*watch
	later     <-chan time.Time // the next delivery that is due
	lists     bool             // the client supports lists of watches
	cancelled int64            // the watch that was cancelled last; 0: none
	left      int              // revisions that may be sent before requests are read
	from      int64            // where deliverTogether continues, so that no watch waits for one that lags more
	behind    bool             // deliver has more to send
}

// turn is how many revisions are sent before requests are read: otherwise a cancelled
// watch would be sent all revisions again and again.
const turn = 16

func (s *cacheServer) Watch(rpc pb.CacheService_WatchServer) error {
	w := &watchStream{n: s.n, c: s.n.c, rpc: rpc}
	defer func() { s.n.waiting.Add(-int64(len(w.watches))) }()
	requests := make(chan *pb.WatchRequest)
	go func() {
		defer close(requests)
		for {
			r, err := rpc.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-rpc.Context().Done():
				return
			}
		}
	}()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		changed, err := w.deliver()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-w.later:
		case <-tick.C:
			err = w.progress()
		case r, ok := <-requests:
			if !ok {
				return status.Error(codes.Canceled, "client left")
			}
			if o := r.GetOptions(); o != nil {
				tick.Reset(o.GetProgressInterval().AsDuration())
				w.lists = o.GetAllowWatchIds()
			}
			err = w.request(r)
		case <-rpc.Context().Done():
			return status.FromContextError(rpc.Context().Err()).Err()
		}
		if err != nil {
			return err
		}
	}
}

// send sends one response, or breaks the stream.
func (w *watchStream) send(r *pb.WatchResponse) error {
	if len(r.GetEvents()) > 0 || r.GetSync() != nil {
		if due(&w.n.cut) {
			return status.Error(codes.Unavailable, "cut")
		}
		if due(&w.n.garble) {
			return w.garbled(r)
		}
	}
	return w.rpc.Send(r) //nolint:wrapcheck // gRPC's own
}

// garbled sends a response twice, or spoils it. A watch that accepted it would deliver
// duplicates, or data outside its request.
func (w *watchStream) garbled(r *pb.WatchResponse) error {
	switch sync := r.GetSync(); rand.IntN(4) {
	case 0:
		if err := w.rpc.Send(r); err != nil {
			return err //nolint:wrapcheck // gRPC's own
		}
	case 1:
		foreign := &pb.KeyValue{Key: []byte("\xff\xffforeign"), ModRevision: 1}
		if r = proto.CloneOf(r); sync != nil {
			r.GetSync().Kvs = append(r.GetSync().Kvs, foreign, foreign)
		} else {
			r.Events = append(r.Events, &pb.Event{}, &pb.Event{Kv: foreign})
		}
	case 2:
		if r = proto.CloneOf(r); sync != nil {
			r.GetSync().Begin = false // an extra begin would discard the parts sent before
			r.GetSync().Revision++
		} else {
			r.Events[0].Kv = nil
		}
	case 3:
		if sync == nil {
			return w.rpc.Send(&pb.WatchResponse{WatchId: r.GetWatchId(), WatchIds: r.GetWatchIds(), Detail: &pb.WatchResponse_Sync{Sync: &pb.Sync{
				Kind: pb.SyncKind_SYNC_KIND_DELTA, Begin: true, End: true, FromRevision: r.GetRevision() + 5, Revision: r.GetRevision() + 10,
			}}}) //nolint:wrapcheck // gRPC's own
		}
		r = proto.CloneOf(r)
		r.GetSync().Kind = 99
	}
	return w.rpc.Send(r) //nolint:wrapcheck // gRPC's own
}

func (w *watchStream) ended(id int64, e *pb.Ended) error {
	return w.send(&pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Ended{Ended: e}})
}

// head returns the node's data bounds, and a channel that reports the next change.
func (w *watchStream) head() (visible int64, lineage uint64, floor int64, changed <-chan struct{}) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.n.visible(w.c.hist.revision()), w.c.lineage, w.c.hist.floor, w.c.changed
}

func (w *watchStream) progress() error {
	visible, _, _, _ := w.head()
	for _, x := range w.watches {
		if x.next-1 < visible { // not delivered yet
			visible = x.next - 1
		}
	}
	return w.send(&pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{
		Revision: visible, Age: durationpb.New(w.n.ageNow()),
	}}})
}

func (w *watchStream) request(r *pb.WatchRequest) error {
	switch {
	case r.GetProgress() != nil:
		for {
			if _, err := w.deliver(); err != nil {
				return err
			}
			if !w.behind {
				return w.progress()
			}
		}
	case r.GetCancel() != nil:
		for i, x := range w.watches {
			if x.id == r.GetCancel().GetWatchId() {
				w.remove(i)
				w.cancelled = x.id
				return w.ended(x.id, &pb.Ended{Reason: pb.EndReason_END_REASON_CANCELED})
			}
		}
	case r.GetCreate() != nil:
		return w.create(r.GetCreate())
	}
	return nil
}

func (w *watchStream) remove(i int) {
	w.watches = append(w.watches[:i:i], w.watches[i+1:]...)
	w.n.waiting.Add(-1)
}

func (w *watchStream) create(r *pb.CreateWatch) error {
	id := r.GetWatchId()
	start, end, ok := span(r.GetKey(), r.GetRangeEnd())
	if !ok || id <= 0 {
		return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_INVALID, Message: "the range is wrong"})
	}
	if err := w.c.accounts.permit(w.rpc.Context()); err != nil {
		reason := pb.EndReason_END_REASON_DENIED
		if status.Code(err) == codes.Unauthenticated {
			reason = pb.EndReason_END_REASON_UNAUTHENTICATED
		}
		return w.ended(id, &pb.Ended{Reason: reason, Message: status.Convert(err).Message()})
	}
	w.n.mu.Lock()
	refusal := w.n.refusal
	w.n.mu.Unlock()
	if refusal != nil {
		return w.ended(id, refusal)
	}
	if w.n.isDraining() {
		return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_DRAINING, Message: "draining"})
	}
	visible, lineage, floor, _ := w.head()
	x := &watch{
		id: id, start: start, end: end, prev: r.GetPrevKv(), lineage: lineage, next: visible + 1,
		sync: r.GetAllowSync() && !w.c.cfg.NoUnits, conflate: r.GetConflate().AsDuration(), staleness: r.GetMaxStaleness().AsDuration(),
	}
	asked, ours := r.GetLineage(), r.GetClusterId() == "" || r.GetClusterId() == w.c.cfg.ID
	switch at := r.GetStart().(type) {
	case *pb.CreateWatch_StartRevision:
		x.next = at.StartRevision
	case *pb.CreateWatch_ResumeToken:
		p, err := parseToken(at.ResumeToken, w.c.cfg.ID, start, end)
		if err != nil {
			return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_INVALID, Message: err.Error()})
		}
		asked, ours, x.next = p.lineage, p.ours, p.revision+1
	}
	foreign := !ours || asked != 0 && asked != lineage
	behind := !foreign && x.next < floor && !r.GetStateFirst()
	switch {
	case x.staleness > 0 && w.n.ageNow() > x.staleness:
		return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_STALE, Message: "stale"})
	case foreign && !x.sync:
		end := &pb.Ended{Reason: pb.EndReason_END_REASON_LINEAGE, Message: "the position is of another history"}
		if !ours {
			end.Foreign = "position"
		}
		return w.ended(id, end)
	case behind && !x.sync:
		return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_COMPACTED, Message: "compacted", Floor: floor})
	}
	w.c.watches.Add(1)
	w.n.waiting.Add(1) // before the client gets Created and may read the count
	w.watches = append(w.watches, x)
	created := &pb.Created{Revision: x.next - 1, ClusterId: w.c.cfg.ID, Lineage: lineage, Node: w.n.Name}
	if foreign {
		created.Revision = 0
	}
	err := w.send(&pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Created{Created: created}})
	switch {
	case err != nil:
	case r.GetStateFirst():
		err = w.state(x, pb.SyncKind_SYNC_KIND_STATE, visible)
	case foreign:
		err = w.state(x, pb.SyncKind_SYNC_KIND_RESYNC, visible)
	}
	return err
}

// state sends the state of a watch's range at a revision.
func (w *watchStream) state(x *watch, kind pb.SyncKind, revision int64) error {
	w.c.mu.Lock()
	kvs := w.c.historyLocked(x.lineage).state(revision, x.start, x.end)
	w.c.mu.Unlock()
	if kind == pb.SyncKind_SYNC_KIND_STATE {
		w.c.lists.Add(1)
	} else {
		w.c.resyncs.Add(1)
	}
	x.next = revision + 1
	return w.unit(x, &pb.Sync{Kind: kind, Revision: revision}, kvs, nil)
}

// changes sends the changes after a watch's position.
func (w *watchStream) changes(x *watch, kind pb.SyncKind, revision int64) error {
	w.c.mu.Lock()
	kvs, deleted := w.c.historyLocked(x.lineage).changes(x.next-1, revision, x.start, x.end)
	w.c.mu.Unlock()
	from := x.next - 1
	x.next = revision + 1
	if kind == pb.SyncKind_SYNC_KIND_DELTA {
		w.c.deltas.Add(1)
	}
	// Revisions without an event for the watch must be reported before a unit starts there.
	err := w.send(&pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{Revision: from, WatchIds: []int64{x.id}}}})
	if err != nil || kind == pb.SyncKind_SYNC_KIND_CONFLATED && len(kvs) == 0 && len(deleted) == 0 {
		return err
	}
	return w.unit(x, &pb.Sync{Kind: kind, Revision: revision, FromRevision: from}, kvs, deleted)
}

// unit sends a unit in parts, each with keys and deleted keys.
func (w *watchStream) unit(x *watch, head *pb.Sync, kvs []*pb.KeyValue, deleted [][]byte) error {
	for c := range chunks(kvs, w.c.cfg.ChunkKeys) {
		part := proto.CloneOf(head)
		part.Begin, part.End, part.Kvs = c.first, c.last, c.part
		if !c.first {
			part.FromRevision = 0
		}
		if n := len(c.part); c.last || n > len(deleted) {
			part.Deleted, deleted = deleted, nil
		} else {
			part.Deleted, deleted = deleted[:n], deleted[n:]
		}
		if err := w.send(&pb.WatchResponse{WatchId: x.id, Detail: &pb.WatchResponse_Sync{Sync: part}}); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends every watch its new events, and returns a channel that reports the next change.
func (w *watchStream) deliver() (<-chan struct{}, error) {
	visible, lineage, floor, changed := w.head()
	draining, age := w.n.isDraining(), w.n.ageNow()
	for i := len(w.watches) - 1; i >= 0; i-- {
		x := w.watches[i]
		var end *pb.Ended
		switch {
		case x.lineage != lineage:
			end = &pb.Ended{Reason: pb.EndReason_END_REASON_LINEAGE, Message: "another history"}
		case x.staleness > 0 && age > x.staleness:
			end = &pb.Ended{Reason: pb.EndReason_END_REASON_STALE, Message: "stale", ResumeRevision: x.next}
		case draining:
			end = &pb.Ended{Reason: pb.EndReason_END_REASON_DRAINING, Message: "draining", ResumeRevision: x.next}
		}
		if end != nil {
			w.remove(i)
			if err := w.ended(x.id, end); err != nil {
				return nil, err
			}
		}
	}
	w.later, w.left, w.behind = nil, turn, false
	var together []*watch
	for _, x := range w.watches {
		if w.lists && x.conflate == 0 && (!x.sync || x.next >= floor) {
			together = append(together, x)
		} else if err := w.deliverTo(x, visible, floor); err != nil {
			return nil, err
		}
	}
	err := w.deliverTogether(together, visible)
	if w.behind {
		return closedChannel(), err
	}
	return changed, err
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// deliverTogether sends the events of several watches once, with the list of the
// watches. The list includes the last cancelled watch, as from a node that has not
// received the cancel yet.
func (w *watchStream) deliverTogether(watches []*watch, visible int64) error {
	next := visible + 1
	for _, x := range watches {
		next = min(next, x.next)
	}
	if next <= w.from && w.from <= visible {
		next = w.from
	}
	defer func() {
		w.from = next
		w.behind = w.behind || slices.ContainsFunc(watches, func(x *watch) bool { return x.next <= visible })
	}()
	for ; next <= visible && w.left > 0; next++ {
		w.left--
		for _, r := range w.responses(watches, next) {
			switch {
			case w.cancelled > 0:
				r.WatchIds = append(r.GetWatchIds(), w.cancelled)
			case len(r.GetWatchIds()) == 1:
				r.WatchId, r.WatchIds = r.GetWatchIds()[0], nil
			}
			for c := range chunks(r.GetEvents(), w.c.cfg.FragmentEvents) {
				part := &pb.WatchResponse{WatchId: r.GetWatchId(), WatchIds: r.GetWatchIds(), Revision: next, Fragment: !c.last, Events: c.part}
				if err := w.send(part); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// responses advances the watches that are at a revision, and returns the responses for it.
func (w *watchStream) responses(watches []*watch, revision int64) (out []*pb.WatchResponse) {
	for _, x := range watches {
		if x.next != revision {
			continue
		}
		x.next++
		w.c.mu.Lock()
		events := w.c.historyLocked(x.lineage).events(revision, x.start, x.end, x.prev)
		w.c.mu.Unlock()
		if len(events) == 0 {
			continue
		}
		same := slices.IndexFunc(out, func(r *pb.WatchResponse) bool {
			return slices.EqualFunc(r.GetEvents(), events, func(a, b *pb.Event) bool { return a.GetKv() == b.GetKv() && a.GetPrevKv() == b.GetPrevKv() })
		})
		if same < 0 {
			same = len(out)
			out = append(out, &pb.WatchResponse{Events: events})
		}
		out[same].WatchIds = append(out[same].WatchIds, x.id)
	}
	return out
}

func (w *watchStream) deliverTo(x *watch, visible, floor int64) error {
	switch {
	case x.next > visible:
		return nil
	case x.sync && x.next < floor:
		w.c.mu.Lock()
		known := x.next >= w.c.historyLocked(x.lineage).deletes
		w.c.mu.Unlock()
		if known {
			return w.changes(x, pb.SyncKind_SYNC_KIND_DELTA, visible)
		}
		return w.state(x, pb.SyncKind_SYNC_KIND_RESYNC, visible)
	case x.conflate > 0:
		if wait := x.conflate - time.Since(x.unitAt); wait > 0 {
			w.later = time.After(wait) // one watch is due: the others are checked at the same time
			return nil
		}
		x.unitAt = time.Now()
		return w.changes(x, pb.SyncKind_SYNC_KIND_CONFLATED, visible)
	}
	for ; x.next <= visible; x.next++ {
		if w.left--; w.left < 0 {
			w.left, w.behind = 0, true
			break
		}
		w.c.mu.Lock()
		events := w.c.historyLocked(x.lineage).events(x.next, x.start, x.end, x.prev)
		w.c.mu.Unlock()
		if len(events) == 0 {
			continue
		}
		for c := range chunks(events, w.c.cfg.FragmentEvents) {
			if err := w.send(&pb.WatchResponse{WatchId: x.id, Revision: x.next, Fragment: !c.last, Events: c.part}); err != nil {
				return err
			}
		}
	}
	return nil
}
