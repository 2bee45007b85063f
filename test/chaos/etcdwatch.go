package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// etcdWatch is a watcher by etcd's API: its only state is revisions, which every node accepts. It
// belongs to one goroutine.
type etcdWatch struct {
	*watcher
	// next is the first missing revision; 0: it has not started.
	next int64
	// seen is the newest revision of its events.
	seen int64
	// lost: it has to start from the state, as its history is gone.
	lost bool
	// id is the watch's ID, if the client chooses it.
	id int64
}

func newEtcdWatch(w *watcher) *etcdWatch {
	return &etcdWatch{watcher: w, next: int64(w.wish.watch.Start)}
}

// needsState reports whether the watch still has to read its initial state.
func (w *etcdWatch) needsState() bool {
	return w.next == 0 && (w.lost || w.wish.start == stateFirst)
}

// request returns the request that resumes after the last event seen.
func (w *etcdWatch) request() *etcdserverpb.WatchCreateRequest {
	key, end := w.wish.watch.Range.Etcd()
	r := &etcdserverpb.WatchCreateRequest{
		Key: key, RangeEnd: end, StartRevision: w.next, PrevKv: w.wish.watch.Prev,
		ProgressNotify: w.wish.notify, Fragment: w.wish.fragment,
	}
	if w.wish.watch.NoPuts {
		r.Filters = append(r.Filters, etcdserverpb.WatchCreateRequest_NOPUT)
	}
	if w.wish.watch.NoDeletes {
		r.Filters = append(r.Filters, etcdserverpb.WatchCreateRequest_NODELETE)
	}
	return r
}

// created handles the answer to a request without a start: the watch gets the events after rev.
func (w *etcdWatch) created(rev int64) {
	if w.next == 0 {
		w.next = rev + 1
		w.saw(check.Op{Kind: check.OpCreated, Revision: kv.Revision(rev)}, time.Now())
	}
}

// progressed handles a report that all events up to rev have been sent. clientv3 resumes from rev
// after a break, even if it had more: progress that goes back causes duplicate events.
func (w *etcdWatch) progressed(rev int64) {
	if rev < w.seen {
		w.blame(check.PromiseBookmarkable, rev, fmt.Sprintf("progress that does not go back below %d", w.seen), "progress")
	}
	w.saw(check.Op{Kind: check.OpProgress, Revision: kv.Revision(rev)}, time.Now())
	w.next = max(w.next, rev+1)
}

// delivered handles the events of one response with all its fragments: whole revisions.
func (w *etcdWatch) delivered(events []*mvccpb.Event) {
	now := time.Now()
	for len(events) > 0 {
		rev, n := events[0].GetKv().GetModRevision(), 1
		for n < len(events) && events[n].GetKv().GetModRevision() == rev {
			n++
		}
		op := check.Op{Kind: check.OpBatch, Revision: kv.Revision(rev)}
		// etcd looks up previous values, and does not find compacted ones.
		op.Forgetful = rev <= w.truth.compacted.Load()
		for _, e := range events[:n] {
			op.Events = append(op.Events, eventFromEtcd(e))
		}
		w.saw(op, now)
		w.next, w.seen = max(w.next, rev+1), max(w.seen, rev)
		events = events[n:]
	}
}

// list starts (again) from the state, like a client that mirrors a range.
func (w *etcdWatch) list(ctx context.Context, c etcdserverpb.KVClient) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := rangeRequest(w.wish.watch.Range)
	req.Serializable = w.wish.fragment && !w.lost // an old state may belong to an earlier history
	r, err := c.Range(ctx, req)
	if err != nil {
		return fmt.Errorf("list for %s: %w", w.wish.watch.Name, err)
	}
	rev := r.GetHeader().GetRevision()
	w.saw(check.Op{Kind: check.OpState, Revision: kv.Revision(rev), Items: itemsFromEtcd(r.GetKvs())}, time.Now())
	w.next = rev + 1
	return nil
}

// cutOff reports whether the watch lost its stream while etcd was restored, and then restarts it
// from the state. etcd's API has only revisions: a watch with a revision of the previous history
// continues in the new one, at a node as at etcd itself, and only its user can detect that.
func (w *etcdWatch) cutOff() bool {
	if w.next == 0 || !w.behind() {
		return false
	}
	w.noticed()
	w.next, w.seen, w.lost = 0, 0, true
	w.relisted(errCutOff)
	return true
}

var errCutOff = errors.New("its stream broke while etcd was restored")

// canceled handles the end of a watch by the node. A node may only refuse revisions that etcd
// itself has compacted: the watch then starts again from the state, as for every client of etcd's
// API.
func (w *etcdWatch) canceled(compacted int64, reason error) (relist bool) {
	if compacted > 0 && w.behind() { // the history that it watched has ended
		w.noticed()
		w.next, w.seen, w.lost = 0, 0, true
		w.relisted(reason)
		return true
	}
	if compacted == 0 {
		w.blame(check.PromiseResumable, w.next, "to continue", fmt.Sprintf("canceled: %q", reason))
		return false
	}
	if w.next > compacted || compacted > w.truth.compacted.Load() {
		w.blame(check.PromiseResumable, w.next, "to continue", fmt.Sprintf("canceled: compacted up to %d", compacted))
	}
	w.relisted(reason)
	return true
}

func itemsFromEtcd(kvs []*mvccpb.KeyValue) []check.Item {
	out := make([]check.Item, len(kvs))
	for i, k := range kvs {
		out[i] = itemFromEtcd(k)
	}
	return out
}

func itemFromEtcd(k *mvccpb.KeyValue) check.Item {
	return check.Item{
		Key: string(k.GetKey()), Value: check.HashValue(k.GetValue()),
		Create: kv.Revision(k.GetCreateRevision()), Mod: kv.Revision(k.GetModRevision()), Version: k.GetVersion(), Lease: k.GetLease(),
	}
}

func eventFromEtcd(e *mvccpb.Event) check.Event {
	out := check.Put(itemFromEtcd(e.GetKv()))
	if e.GetType() == mvccpb.Event_DELETE {
		out = check.Delete(string(e.GetKv().GetKey()), kv.Revision(e.GetKv().GetModRevision()))
	}
	if e.GetPrevKv() != nil {
		p := itemFromEtcd(e.GetPrevKv())
		out.Prev = &p
	}
	return out
}
