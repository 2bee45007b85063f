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

// etcdWatch is a watcher by etcd's API: it lives on revisions alone, which any
// node understands. It belongs to one goroutine.
type etcdWatch struct {
	*watcher
	// next is the first revision it does not have; 0: it has not started.
	next int64
	// seen is the newest revision it has events of.
	seen int64
	// lost: it has to begin with the state, as its history is gone.
	lost bool
	// id is the watch's ID where the client chooses it.
	id int64
}

func newEtcdWatch(w *watcher) *etcdWatch {
	return &etcdWatch{watcher: w, next: int64(w.wish.watch.Start)}
}

// needsState reports whether the watch begins with the state, and has not.
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

// created takes the answer to a request without a start: the watch has the
// events after rev.
func (w *etcdWatch) created(rev int64) {
	if w.next == 0 {
		w.next = rev + 1
		w.saw(check.Op{Kind: check.OpCreated, Revision: kv.Revision(rev)}, time.Now())
	}
}

// progressed takes a report that everything up to rev has come. clientv3 resumes
// from there after a break, even when it had more: progress that goes back has
// events delivered twice.
func (w *etcdWatch) progressed(rev int64) {
	if rev < w.seen {
		w.blame(check.PromiseBookmarkable, rev, fmt.Sprintf("progress that does not go back below %d", w.seen), "progress")
	}
	w.saw(check.Op{Kind: check.OpProgress, Revision: kv.Revision(rev)}, time.Now())
	w.next = max(w.next, rev+1)
}

// delivered takes the events of one response, all its fragments together: it
// holds whole revisions.
func (w *etcdWatch) delivered(events []*mvccpb.Event) {
	now := time.Now()
	for len(events) > 0 {
		rev, n := events[0].GetKv().GetModRevision(), 1
		for n < len(events) && events[n].GetKv().GetModRevision() == rev {
			n++
		}
		op := check.Op{Kind: check.OpBatch, Revision: kv.Revision(rev)}
		// etcd looks previous values up, and does not find compacted ones.
		op.Forgetful = rev <= w.truth.compacted.Load()
		for _, e := range events[:n] {
			op.Events = append(op.Events, eventFromEtcd(e))
		}
		w.saw(op, now)
		w.next, w.seen = max(w.next, rev+1), max(w.seen, rev)
		events = events[n:]
	}
}

// list begins (again) with the state, as a client that mirrors a range does.
func (w *etcdWatch) list(ctx context.Context, c etcdserverpb.KVClient) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := rangeRequest(w.wish.watch.Range)
	req.Serializable = w.wish.fragment && !w.lost // an old state may belong to a history that has ended
	r, err := c.Range(ctx, req)
	if err != nil {
		return fmt.Errorf("list for %s: %w", w.wish.watch.Name, err)
	}
	rev := r.GetHeader().GetRevision()
	w.saw(check.Op{Kind: check.OpState, Revision: kv.Revision(rev), Items: itemsFromEtcd(r.GetKvs())}, time.Now())
	w.next = rev + 1
	return nil
}

// cutOff reports whether the watch lost its stream while etcd was restored, and
// has it begin with the state then. etcd's API has only revisions: with
// one of the ended history, a watch continues in the other one, at a node
// as at etcd itself, and only its user can know.
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

// canceled notes that the node ended the watch, which was not requested. A node may only refuse
// revisions that etcd itself has compacted: then the watch begins again with the state, as every
// client of etcd's API must.
func (w *etcdWatch) canceled(compacted int64, reason error) (relist bool) {
	if compacted > 0 && w.behind() { // the history that it watched is gone
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
