package clienttest

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// watch is one watch of a stream.
type watch struct {
	id         int64
	start, end string
	next       int64 // the first revision not delivered
	prev       bool
	lineage    uint64
}

// watchStream serves one Watch stream, from one goroutine.
type watchStream struct {
	n       *Node
	c       *Cluster
	rpc     pb.CacheService_WatchServer
	watches []*watch
}

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
		case <-tick.C:
			err = w.progress()
		case r, ok := <-requests:
			if !ok {
				return status.Error(codes.Canceled, "client left")
			}
			if o := r.GetOptions(); o != nil {
				tick.Reset(o.GetProgressInterval().AsDuration())
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
	if (len(r.GetEvents()) > 0 || r.GetSync() != nil) && w.n.cutNow() {
		return status.Error(codes.Unavailable, "cut")
	}
	return w.rpc.Send(r) //nolint:wrapcheck // gRPC's own
}

func (w *watchStream) ended(id int64, e *pb.Ended) error {
	return w.send(&pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Ended{Ended: e}})
}

// head returns what the node has, and what tells of the next change.
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
	return w.send(&pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{Revision: visible}}})
}

func (w *watchStream) request(r *pb.WatchRequest) error {
	switch {
	case r.GetProgress() != nil:
		if _, err := w.deliver(); err != nil {
			return err
		}
		return w.progress()
	case r.GetCancel() != nil:
		for i, x := range w.watches {
			if x.id == r.GetCancel().GetWatchId() {
				w.remove(i)
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
	if err := w.c.permit(w.rpc.Context()); err != nil {
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
	x := &watch{id: id, start: start, end: end, prev: r.GetPrevKv(), lineage: lineage, next: visible + 1}
	switch {
	case r.GetLineage() != 0 && r.GetLineage() != lineage:
		return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_LINEAGE, Message: "another history"})
	case r.GetStateFirst():
	case r.GetStartRevision() > 0:
		if x.next = r.GetStartRevision(); x.next < floor {
			return w.ended(id, &pb.Ended{Reason: pb.EndReason_END_REASON_COMPACTED, Message: "compacted", Floor: floor})
		}
	}
	w.c.watches.Add(1)
	err := w.send(&pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Created{Created: &pb.Created{
		Revision: x.next - 1, Lineage: lineage, Node: w.n.Name,
	}}})
	if err == nil && r.GetStateFirst() {
		err = w.state(x, visible)
	}
	w.watches = append(w.watches, x)
	w.n.waiting.Add(1)
	return err
}

// state sends the state of a watch's range at a revision.
func (w *watchStream) state(x *watch, revision int64) error {
	w.c.lists.Add(1)
	w.c.mu.Lock()
	kvs := w.c.hist.state(revision, x.start, x.end)
	w.c.mu.Unlock()
	for c := range chunks(kvs, w.c.cfg.ChunkKeys) {
		err := w.send(&pb.WatchResponse{WatchId: x.id, Detail: &pb.WatchResponse_Sync{Sync: &pb.Sync{
			Kind: pb.SyncKind_SYNC_KIND_STATE, Begin: c.first, End: c.last, Revision: revision, Kvs: c.part,
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// deliver sends every watch what it has not seen, and returns what tells of
// the next change.
func (w *watchStream) deliver() (<-chan struct{}, error) {
	visible, lineage, _, changed := w.head()
	draining := w.n.isDraining()
	for i := len(w.watches) - 1; i >= 0; i-- {
		x := w.watches[i]
		var end *pb.Ended
		switch {
		case x.lineage != lineage:
			end = &pb.Ended{Reason: pb.EndReason_END_REASON_LINEAGE, Message: "another history"}
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
	for _, x := range w.watches {
		for ; x.next <= visible; x.next++ {
			w.c.mu.Lock()
			events := w.c.hist.events(x.next, x.start, x.end, x.prev)
			w.c.mu.Unlock()
			if len(events) == 0 {
				continue
			}
			for c := range chunks(events, w.c.cfg.FragmentEvents) {
				if err := w.send(&pb.WatchResponse{WatchId: x.id, Revision: x.next, Fragment: !c.last, Events: c.part}); err != nil {
					return nil, err
				}
			}
		}
	}
	return changed, nil
}
