package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// crowd is a set of watches of all shapes over a changing cluster, with all
// guarantees checked against etcd's own history.
type crowd struct {
	c       *cluster
	history *check.History
	ctx     context.Context //nolint:containedctx // of the test
	running sync.WaitGroup

	mu       sync.Mutex
	watchers []*watcher // guarded by mu
	heard    error      // guarded by mu; the error that ended the history
}

type watcher struct {
	mu      sync.Mutex
	checker *check.Checker
	resumes []client.Resume // not delivered yet
	moves   []client.Resume // all moves
	state   bool
	err     error
	stop    context.CancelFunc
}

// newCrowd follows etcd from its beginning. The cluster must run.
func newCrowd(c *cluster) *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	w := &crowd{c: c, history: check.NewHistory(1, nil), ctx: ctx}
	w.running.Go(func() {
		for r := range c.etcd.Client().Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(2)) {
			events := r.Events
			for len(events) > 0 {
				revision := events[0].Kv.ModRevision
				b := check.Batch{Revision: kv.Revision(revision)}
				for len(events) > 0 && events[0].Kv.ModRevision == revision {
					b.Events = append(b.Events, truth(events[0]))
					events = events[1:]
				}
				if err := w.history.Append(b); err != nil {
					w.mu.Lock()
					w.heard = err
					w.mu.Unlock()
					return
				}
			}
		}
	})
	c.t.Cleanup(func() { cancel(); w.running.Wait() })
	return w
}

func truth(e *clientv3.Event) check.Event {
	if e.Type == clientv3.EventTypeDelete {
		return check.Delete(string(e.Kv.Key), kv.Revision(e.Kv.ModRevision))
	}
	return check.Put(check.Item{
		Key: string(e.Kv.Key), Value: check.HashValue(e.Kv.Value), Create: kv.Revision(e.Kv.CreateRevision),
		Mod: kv.Revision(e.Kv.ModRevision), Version: e.Kv.Version, Lease: e.Kv.Lease,
	})
}

// watch adds a watcher of r at cl: from revision from, or with the state first if
// from is 0.
func (w *crowd) watch(cl *client.Client, name string, r client.Range, from int64) *watcher {
	one := &watcher{state: from == 0, checker: check.NewChecker(check.Watch{
		Name: name, Range: kv.Range{Start: r.Start, End: r.End}, Start: kv.Revision(from), Prev: true, Merged: true,
	})}
	ctx, stop := context.WithCancel(w.ctx)
	one.stop = stop
	options := []client.WatchOption{client.WithPrevKV(), client.WithProgress(), client.OnResume(one.resumed)}
	if from == 0 {
		options = append(options, client.WithState())
	} else {
		options = append(options, client.FromRevision(from))
	}
	cw := cl.Watch(ctx, r, options...)
	w.running.Go(func() {
		defer cw.Close()
		for {
			u, err := cw.Next(ctx)
			if err != nil {
				one.mu.Lock()
				if ctx.Err() == nil {
					one.err = err
				}
				one.mu.Unlock()
				return
			}
			one.saw(u)
		}
	})
	w.mu.Lock()
	w.watchers = append(w.watchers, one)
	w.mu.Unlock()
	return one
}

func (one *watcher) resumed(r client.Resume) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.resumes = append(one.resumes, r)
	one.moves = append(one.moves, r)
}

// allMoves returns every resume of the watch.
func (one *watcher) allMoves() []client.Resume {
	one.mu.Lock()
	defer one.mu.Unlock()
	return slices.Clone(one.moves)
}

// moved returns how often the watch resumed, and the last node.
func (one *watcher) moved() (times int, to string, reason error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if n := len(one.moves); n > 0 {
		return n, one.moves[n-1].To, one.moves[n-1].Reason
	}
	return 0, "", nil
}

func (one *watcher) saw(u client.Update) {
	op := check.Op{Revision: kv.Revision(u.Revision)}
	switch u.Kind {
	case client.KindBatch:
		op.Kind = check.OpBatch
		for i := range u.Events {
			e := &u.Events[i]
			event := check.Delete(string(e.KV.Key), kv.Revision(e.KV.ModRevision))
			if e.Type != client.EventDelete {
				event = check.Put(item(&e.KV))
			}
			if e.Prev != nil {
				p := item(e.Prev)
				event.Prev = &p
			}
			op.Events = append(op.Events, event)
		}
	case client.KindState:
		op.Kind = check.OpState
		for i := range u.KVs {
			op.Items = append(op.Items, item(&u.KVs[i]))
		}
	case client.KindProgress:
		op.Kind = check.OpProgress
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	for len(one.resumes) > 0 && one.resumes[0].Revision < u.Revision {
		one.checker.Feed(check.Op{Kind: check.OpResumed, Revision: kv.Revision(one.resumes[0].Revision + 1), Node: one.resumes[0].To})
		one.resumes = one.resumes[1:]
	}
	one.checker.Feed(op)
}

func item(k *client.KeyValue) check.Item {
	return check.Item{
		Key: string(k.Key), Value: check.HashValue(k.Value), Create: kv.Revision(k.CreateRevision),
		Mod: kv.Revision(k.ModRevision), Version: k.Version, Lease: k.Lease,
	}
}

// shapes adds watches of single keys, prefixes and everything at cl.
func (w *crowd) shapes(cl *client.Client, from int64) {
	for name, r := range map[string]client.Range{
		"everything": {}, "prefix": client.Prefix("/b/"), "prefixes": client.Between("/b/", "/f/"), "key": client.Key("/c/02"),
	} {
		w.watch(cl, fmt.Sprintf("%s from %d", name, from), r, from)
	}
}

// reach waits until every watcher has all events up to revision, and checks the guarantees.
func (w *crowd) reach(revision int64) {
	w.c.t.Helper()
	testkit.Succeeds(w.c.t, fmt.Sprintf("watchers at %d", revision), func() error {
		if head := w.history.Head(); int64(head) < revision {
			return fmt.Errorf("the history is at %d", head)
		}
		for _, one := range w.all() {
			err := one.complete(kv.Revision(revision))
			if errors.Is(err, errEnded) {
				w.c.t.Fatal(err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, one := range w.all() {
		one.mu.Lock()
		one.checker.Judge(w.history)
		first, all := one.checker.Violations()
		one.mu.Unlock()
		for _, v := range first {
			w.c.t.Errorf("%s: %v", one.checker.Watch().Name, v)
		}
		if all > 0 {
			w.c.t.Fatalf("%s: %d violations", one.checker.Watch().Name, all)
		}
	}
}

func (w *crowd) all() []*watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*watcher(nil), w.watchers...)
}

var errEnded = errors.New("the watch has ended")

func (one *watcher) complete(revision kv.Revision) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.err != nil {
		return fmt.Errorf("%s: %w: %w", one.checker.Watch().Name, errEnded, one.err)
	}
	if one.checker.Reached() < revision {
		return fmt.Errorf("%s is at %d", one.checker.Watch().Name, one.checker.Reached())
	}
	return nil
}

// load writes to etcd until the returned function is called, which returns the
// last revision.
func (w *crowd) load(t testing.TB, among []string) (stop func() int64) {
	rng := testseed.Rand(t)
	ctx, cancel := context.WithCancel(w.ctx)
	var last int64
	var done sync.WaitGroup
	done.Go(func() {
		pick := func() string { return among[rng.IntN(len(among))] }
		for n := 0; ctx.Err() == nil; n++ {
			cl := w.c.etcd.Client()
			var revision int64
			switch a, b := pick(), pick(); {
			case n%10 == 3:
				if r, err := cl.Delete(ctx, a); err == nil {
					revision = r.Header.GetRevision()
				}
			case n%10 == 7 && a != b:
				if r, err := cl.Txn(ctx).Then(clientv3.OpPut(a, fmt.Sprint(n)), clientv3.OpPut(b, fmt.Sprint(n))).Commit(); err == nil {
					revision = r.Header.GetRevision()
				}
			default:
				if r, err := cl.Put(ctx, a, fmt.Sprint(n)); err == nil {
					revision = r.Header.GetRevision()
				}
			}
			last = max(last, revision)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond): // a rate, not a wait
			}
		}
	})
	return func() int64 {
		cancel()
		done.Wait()
		return max(last, w.c.put(among[0]))
	}
}
