package etcdapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func newCodec() wire.Codec { return wire.NewCodec() }

const (
	emptyRange  = "mvcc: watcher range is empty"
	duplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// text formats events as p:key=value or d:key, followed by a comma and the previous value.
func text(m *etcdserverpb.WatchResponse) string {
	var out []string
	for _, e := range m.GetEvents() {
		s := fmt.Sprintf("p:%s=%s", e.GetKv().GetKey(), e.GetKv().GetValue())
		if e.GetType() == 1 {
			s = "d:" + string(e.GetKv().GetKey())
		}
		if e.GetPrevKv() != nil {
			s += "," + string(e.GetPrevKv().GetValue())
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// Watch IDs are assigned as by etcd, refusals equal those of etcd, and answers have the order of
// the requests.
func TestWatchIDsAndRefusals(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	chosen := func(id int64) *etcdserverpb.WatchCreateRequest {
		c := whole()
		c.WatchId = id
		return c
	}
	s.create(whole())    // 0
	s.create(chosen(1))  // 1
	s.create(whole())    // 2: 1 is taken
	s.create(chosen(1))  // refused: taken
	s.create(since(-5))  // refused: no such revision
	s.create(chosen(-7)) // any number is a valid ID
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("b")})
	s.create(&etcdserverpb.WatchCreateRequest{}) // the key \0 alone
	for _, id := range []int64{0, 1, 2} {
		if m := s.created(id); m.GetHeader().GetRevision() != int64(r.h.Now()) || m.GetHeader().GetClusterId() != 7 || m.GetHeader().GetRaftTerm() != 3 || m.GetHeader().GetMemberId() == 0 {
			t.Errorf("header %v", m.GetHeader())
		}
	}
	s.refused(duplicateID)
	s.refused(rpctypes.ErrCompacted.Error())
	s.created(-7)
	s.refused(emptyRange)
	s.refused(emptyRange)
	s.created(3)
	// Cancelled IDs can be chosen again, but the server assigns ever larger ones.
	s.cancel(0)
	s.cancel(99) // unknown: no answer
	s.create(chosen(1))
	s.create(whole())
	s.canceled(0)
	s.refused(duplicateID)
	s.created(4)
}

// A watch over several shards gets whole revisions, with previous values and without filtered
// events. A response without events is not sent.
func TestWatchEvents(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	with := whole()
	with.PrevKv = true
	s.create(with)
	s.created(0)
	puts := whole()
	puts.Filters = []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NODELETE}
	s.create(puts)
	s.created(1)
	deletes := whole()
	deletes.Filters = []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT, 77}
	s.create(deletes)
	s.created(2)
	one := &etcdserverpb.WatchCreateRequest{Key: []byte("k")}
	s.create(one)
	s.created(3)

	got := make(map[int64][]string)
	read := func(n int) {
		t.Helper()
		for range n {
			m := s.next()
			if m.GetHeader().GetRevision() != m.GetEvents()[0].GetKv().GetModRevision() {
				t.Errorf("header %v of %v", m.GetHeader(), m)
			}
			got[m.GetWatchId()] = append(got[m.GetWatchId()], text(m))
		}
	}
	r.h.Commit(cachetest.Put("a", "1"), cachetest.Put("k", "1"), cachetest.Put("z", "1"))
	read(3)
	r.h.Commit(cachetest.Put("a", "2"), cachetest.Delete("k"), cachetest.Delete("z"))
	read(4)
	r.h.Commit(cachetest.Delete("a"))
	read(2)
	for id, want := range map[int64][]string{
		0: {"p:a=1 p:k=1 p:z=1", "p:a=2,1 d:k,1 d:z,1", "d:a,2"},
		1: {"p:a=1 p:k=1 p:z=1", "p:a=2"},
		2: {"d:k d:z", "d:a"},
		3: {"p:k=1", "d:k"},
	} {
		if strings.Join(got[id], ";") != strings.Join(want, ";") {
			t.Errorf("watch %d: got %q, want %q", id, got[id], want)
		}
	}
}

// A watch may start now, in the past, or in the future.
func TestWatchStart(t *testing.T) {
	r := startWatches(t, rigOptions{})
	for range 5 {
		r.h.Commit(cachetest.Put("a", "x"))
	}
	now := int64(r.h.Now())
	s := r.watch()
	s.create(whole())
	s.created(0)
	s.create(since(now - 1))
	if m := s.created(1); m.GetHeader().GetRevision() != now {
		t.Errorf("created at %d, want %d", m.GetHeader().GetRevision(), now)
	}
	for revision := now - 1; revision <= now; revision++ {
		if m := s.next(); m.GetWatchId() != 1 || m.GetHeader().GetRevision() != revision {
			t.Fatalf("got %v", m)
		}
	}
	s.create(since(now + 2))
	s.created(2)
	r.h.Commit(cachetest.Put("a", "y"))
	r.h.Commit(cachetest.Put("a", "z"))
	seen := make(map[string]bool)
	for range 5 {
		m := s.next()
		seen[fmt.Sprintf("%d@%d", m.GetWatchId(), m.GetHeader().GetRevision()-now)] = true
	}
	for _, want := range []string{"0@1", "0@2", "1@1", "1@2", "2@2"} {
		if !seen[want] {
			t.Errorf("no event %s (watch@revision) among %v", want, seen)
		}
	}
}

// While a watch catches up, several whole revisions share a message, up to a size. A large revision
// has a message of its own, and so has a revision without previous values.
func TestWatchCatchesUpInFewMessages(t *testing.T) {
	r := startWatches(t, rigOptions{})
	for i := range 100 {
		r.h.Commit(cachetest.Put("a", fmt.Sprint(i)), cachetest.Put("z", fmt.Sprint(i)))
	}
	r.h.Commit(cachetest.Put("a", strings.Repeat("x", 20_000)))
	last := int64(r.h.Commit(cachetest.Put("a", "last")))
	for _, id := range []shard.ID{1, 2, 3} { // so that all events are ready before the watches start
		if err := r.node.Replica(id).WaitProgress(t.Context(), kv.Revision(last)); err != nil {
			t.Fatal(err)
		}
	}
	r.etcd.compact(kv.Revision(first + 10))
	for _, c := range []struct {
		name  string
		start int64
		prev  bool
		want  int // messages
	}{
		{"from a revision", first + 20, false, 5}, // 32, 32, 16, the large one, the last one
		{"with previous values, from the first that etcd has", first + 10, true, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := r.watch()
			q := since(c.start)
			q.PrevKv = c.prev
			s.create(q)
			s.created(0)
			messages, at := 0, c.start-1
			for at < last {
				messages++
				for _, m := range s.split(s.received()) {
					events := 2
					if at++; at >= last-1 {
						events = 1
					}
					if m.GetHeader().GetRevision() != at || len(m.GetEvents()) != events {
						t.Fatalf("after revision %d: got %v", at-1, m)
					}
					if prev := m.GetEvents()[0].GetPrevKv() != nil; prev != (c.prev && at != c.start) {
						t.Errorf("revision %d with a previous value: %t", at, prev)
					}
				}
			}
			if messages != c.want {
				t.Errorf("%d messages, want %d", messages, c.want)
			}
		})
	}
}

// A cancelled watch sends nothing after the answer to the cancel. A half-closed stream continues.
func TestWatchCancelAndHalfClose(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.create(since(first))
	s.create(since(first))
	s.created(0)
	s.created(1)
	r.h.Commit(cachetest.Put("a", "1"))
	s.next()
	s.next()
	s.cancel(0)
	s.canceled(0)
	if err := s.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.h.Commit(cachetest.Put("a", "2"))
	if m := s.next(); m.GetWatchId() != 1 || text(m) != "p:a=2" {
		t.Errorf("got %v", m)
	}
}

// A watch from a compacted revision ends as with etcd: it is created, and then cancelled with the
// compact revision. Its ID can be used again.
func TestWatchCompacted(t *testing.T) {
	r := startWatches(t, rigOptions{cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 }})
	for range 10 {
		r.h.Commit(cachetest.Put("a", "x"))
	}
	r.etcd.compact(kv.Revision(first + 5))
	s := r.watch()
	s.create(whole())
	s.created(0)
	for id, start := range map[int64]int64{1: first, 2: first + 4} {
		c := since(start)
		c.WatchId = id
		s.create(c)
		s.created(id)
		m := s.canceled(id)
		if m.GetCompactRevision() != first+5 || m.GetHeader().GetRevision() != 0 || m.GetCancelReason() != "" {
			t.Errorf("from %d: got %v", start, m)
		}
		c.StartRevision = first + 5
		s.create(c)
		s.created(id)
		for range 5 {
			if m := s.next(); m.GetWatchId() != id || len(m.GetEvents()) != 1 {
				t.Fatalf("got %v", m)
			}
		}
		s.cancel(id)
		s.canceled(id)
	}
	s.cancel(0)
	s.canceled(0)
	// At the compact revision itself, etcd has no previous values. The tests of kube-apiserver's
	// storage check this.
	with := since(first + 5)
	with.PrevKv = true
	s.create(with)
	id := s.next().GetWatchId()
	for _, want := range []string{"p:a=x", "p:a=x,x", "p:a=x,x"} {
		if m := s.next(); m.GetWatchId() != id || text(m) != want {
			t.Errorf("got %v, want %s", m, want)
		}
	}
}

// Events that the window has evicted or never contained are read from etcd: the watch continues
// unless etcd has compacted them.
func TestWatchFromBeforeTheWindow(t *testing.T) {
	r := startWatches(t, rigOptions{cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 }})
	var last kv.Revision
	for i := range 30 { // the window evicts all but the last few
		last = r.h.Commit(cachetest.Put("a", fmt.Sprint(i)+strings.Repeat("x", 1024)), cachetest.Put(fmt.Sprint("k", i), ""))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if floor := r.node.Replica(1).Floor(); floor < kv.Revision(first)+10 {
		t.Fatalf("the floor of the window is %d: too few events are evicted", floor)
	}
	s := r.watch()
	reads := func(id, from, to int64) {
		t.Helper()
		for revision := from; revision <= to; revision++ {
			if m := s.next(); m.GetWatchId() != id || m.GetHeader().GetRevision() != revision || len(m.GetEvents()) != 1 {
				t.Fatalf("got %v, want revision %d", m, revision)
			}
		}
	}
	a := &etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first}
	s.create(a)
	s.created(0)
	reads(0, first, int64(last))
	s.requestProgress()
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < int64(last) {
		t.Fatalf("got %v", m)
	}
	r.h.Commit(cachetest.Put("a", "live"))
	reads(0, int64(last)+1, int64(last)+1)
	// A key that was quiet for a long time costs one read of the log.
	r.etcd.mu.Lock()
	before := r.etcd.histories
	r.etcd.mu.Unlock()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), StartRevision: first})
	s.created(1)
	s.requestProgress() // answered once the watch has caught up
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < int64(last)+1 {
		t.Fatalf("got %v", m)
	}
	r.h.Commit(cachetest.Put("b", "0"))
	reads(1, int64(last)+2, int64(last)+2)
	r.etcd.mu.Lock()
	if n := r.etcd.histories - before; n != 1 {
		t.Errorf("%d questions", n)
	}
	// While etcd is unavailable, the watch waits, and others continue.
	r.etcd.away = errors.New("away")
	r.etcd.mu.Unlock()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: int64(last) - 20, PrevKv: true})
	s.created(2)
	s.requestProgress() // answered after the events that this watch lacks
	for i := range 20 {
		r.h.Commit(cachetest.Put("b", "1"))
		reads(1, int64(last)+3+int64(i), int64(last)+3+int64(i))
	}
	r.etcd.mu.Lock()
	r.etcd.away = nil
	r.etcd.mu.Unlock()
	reads(2, int64(last)-20, int64(last)+1)
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < int64(last)+22 {
		t.Fatalf("got %v", m)
	}
	// If etcd has compacted meanwhile, the watch ends.
	r.etcd.compact(last - 10)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: int64(last) - 20})
	s.created(3)
	if m := s.canceled(3); m.GetCompactRevision() != int64(last)-10 {
		t.Errorf("got %v", m)
	}
}

// A client that reads so slowly that the window evicts its position is not disconnected, and misses
// no event.
func TestWatchSlowerThanTheWindow(t *testing.T) {
	const revisions = 400
	r := startWatches(t, rigOptions{cache: func(c *cache.Config) { c.WindowBytes = 64 << 10 }})
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	s.created(0)
	const brought = 3 // events from the window, which must not be repeated
	for i := range int64(brought + revisions) {
		switch {
		case i < brought:
			r.h.Commit(cachetest.Put("a", "x"))
		case i == brought:
			for range revisions { // far more than flow control admits
				r.h.Commit(cachetest.Put("a", strings.Repeat("x", 16<<10)))
			}
		}
		if m := s.next(); m.GetHeader().GetRevision() != first+i || len(m.GetEvents()) != 1 {
			t.Fatalf("got %v, want revision %d", m.GetHeader(), first+i)
		}
	}
	r.etcd.mu.Lock()
	defer r.etcd.mu.Unlock()
	if r.etcd.histories == 0 {
		t.Error("the watch never fell behind the window: the test proves nothing")
	}
}

// A progress request is answered once for all watches, after all events up to that revision. It is
// not answered if etcd would not answer it.
func TestWatchProgressRequest(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.requestProgress() // no watch: no answer
	s.create(whole())
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z")})
	s.created(1)
	r.h.Commit(cachetest.Put("a", "1")) // the other shards are quiet
	if m := s.next(); text(m) != "p:a=1" {
		t.Fatalf("got %v", m)
	}
	now := int64(r.h.Now())
	s.requestProgress()
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < now || m.GetCreated() || m.GetCanceled() || len(m.GetEvents()) != 0 {
		t.Fatalf("got %v", m)
	}
	// A lagging shard delays the answer, and its events come first.
	r.node.Gate(3).Limit(kv.Revision(now))
	last := int64(r.h.Commit(cachetest.Put("z", "2")))
	s.requestProgress()
	s.requestProgress()
	s.create(since(last + 100)) // nor while a watch starts in the future
	s.created(2)
	r.node.Gate(3).Limit(kv.Revision(last + 1000))
	for range 2 {
		if m := s.next(); text(m) != "p:z=2" {
			t.Fatalf("got %v", m)
		}
	}
	s.cancel(2)
	s.canceled(2)
	s.requestProgress()
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < last {
		t.Fatalf("got %v", m)
	}
}

// Quiet watches with progress_notify get notifications.
func TestWatchProgressNotify(t *testing.T) {
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.ProgressNotifyInterval = 100 * time.Millisecond }})
	s := r.watch()
	s.create(whole())
	s.created(0)
	told := &etcdserverpb.WatchCreateRequest{Key: []byte("z"), ProgressNotify: true}
	s.create(told)
	s.created(1)
	future := since(int64(r.h.Now()) + 100)
	future.ProgressNotify = true
	s.create(future)
	s.created(2)
	for range 3 {
		if m := s.next(); m.GetWatchId() != 1 || len(m.GetEvents()) != 0 || m.GetHeader().GetRevision() != int64(r.h.Now()) {
			t.Fatalf("got %v", m)
		}
	}
}

// heldHistory is an Upstream that delays reads of the log until the test releases them.
type heldHistory struct {
	*scripted
	asked, release chan struct{}
}

func (h *heldHistory) History(ctx context.Context, r etcd.HistoryRequest) (etcd.LogPage, error) {
	select {
	case h.asked <- struct{}{}:
	default:
	}
	select {
	case <-h.release:
	case <-ctx.Done():
		return etcd.LogPage{}, ctx.Err()
	}
	return h.scripted.History(ctx, r)
}

// Watches wait for one read of etcd's log, and etcd is compacted before the read begins. Watches
// from below the compact revision end. Watches from revisions that etcd still has continue.
func TestCompactedBeforeASharedRead(t *testing.T) {
	held := &heldHistory{asked: make(chan struct{}, 1), release: make(chan struct{})}
	r := startWatches(t, rigOptions{
		cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 },
		api:   func(c *etcdapi.Config) { held.scripted = c.Etcd.(*scripted); c.Etcd = held },
	})
	var last kv.Revision
	for i := range 30 { // the window evicts all but the last few
		last = r.h.Commit(cachetest.Put("a", fmt.Sprint(i)+strings.Repeat("x", 1024)))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	const floor, watches = first + 10, 5
	s := r.watch()
	start := func(id, from int64) {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: from})
		s.created(id)
	}
	start(0, first)
	<-held.asked
	for id := range int64(watches) {
		start(id+1, floor+id)
	}
	s.cancel(watches) // answered once the other watches wait
	s.canceled(watches)
	held.compact(kv.Revision(floor))
	close(held.release)
	next := make(map[int64]int64)
	ended := false
	for done := 0; done < watches-1 || !ended; {
		m := s.next()
		id := m.GetWatchId()
		if id == 0 {
			if !m.GetCanceled() || m.GetCompactRevision() != floor {
				t.Fatalf("got %v", m)
			}
			ended = true
			continue
		}
		if next[id] == 0 {
			next[id] = floor + id - 1
		}
		if m.GetHeader().GetRevision() != next[id] || len(m.GetEvents()) != 1 {
			t.Fatalf("watch %d: got %v, want revision %d", id, m, next[id])
		}
		if next[id]++; next[id] > int64(last) {
			done++
		}
	}
}

// If the lineage ends while a watch waits for a part of etcd's log, the events read may belong to
// the next lineage. The watch ends, and gets none of them.
func TestALineageEndsDuringARead(t *testing.T) {
	held := &heldHistory{asked: make(chan struct{}, 1), release: make(chan struct{})}
	r := startWatches(t, rigOptions{
		cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 },
		api:   func(c *etcdapi.Config) { held.scripted = c.Etcd.(*scripted); c.Etcd = held },
	})
	var last kv.Revision
	for i := range 30 {
		last = r.h.Commit(cachetest.Put("a", fmt.Sprint(i)+strings.Repeat("x", 1024)))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	s.created(0)
	<-held.asked
	r.restored(last)
	close(held.release)
	if got := s.canceled(0); got.GetCompactRevision() != first {
		t.Errorf("got %v, want a compact revision of %d", got, first)
	}
}

// restored restores etcd from a snapshot of the given revision, and makes the node follow it.
func (r *watchRig) restored(to kv.Revision) {
	r.tb.Helper()
	m := *r.shards
	m.Version, m.Lineage = m.Version+1, m.Lineage+1
	r.h.Restore(to)
	r.node.Use(&m)
}

// After a restore of etcd, progress requests of clients whose streams continued were not answered until etcd
// had passed its old revision.
func TestProgressIsAnsweredAfterARestore(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.create(whole())
	s.created(0)
	for range 5 {
		at := r.h.Commit(cachetest.Put("a", "1"))
		if m := s.next(); m.GetHeader().GetRevision() != int64(at) {
			t.Fatalf("got %v, want the event of revision %d", m, at)
		}
	}
	r.restored(cachetest.Start)
	s.canceled(0)
	s.create(whole())
	s.created(1)
	s.requestProgress()
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() != int64(cachetest.Start) {
		t.Errorf("got %v, want progress at %d", m, cachetest.Start)
	}
}

// lettingClock is a router.Clock that determines its result at the call, and returns it when the test allows it.
type lettingClock struct {
	*cachetest.Script
	asked chan (chan<- struct{}) // closing a received value releases one result
}

func (c *lettingClock) Revision(ctx context.Context) (kv.Revision, error) {
	revision, err := c.Script.Revision(ctx)
	let := make(chan struct{})
	select {
	case c.asked <- let:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-let:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return revision, err
}

// etcd is restored while a progress request waits for a watch that is being created. The request used to
// wait for etcd's old revision, and was only answered when etcd had passed it.
func TestProgressIsAnsweredAcrossARestore(t *testing.T) {
	clock := &lettingClock{asked: make(chan (chan<- struct{}))}
	r := startWatches(t, rigOptions{clock: func(h *cachetest.Script) router.Clock { clock.Script = h; return clock }})
	s := r.watch()
	s.create(whole())
	close(<-clock.asked)
	s.created(0)
	at := r.h.Commit(cachetest.Put("a", "1"))
	if m := s.next(); m.GetHeader().GetRevision() != int64(at) {
		t.Fatalf("got %v, want the event of revision %d", m, at)
	}
	s.create(whole())
	created := <-clock.asked
	s.requestProgress()
	close(<-clock.asked)
	r.restored(cachetest.Start)
	s.canceled(0)
	close(created)
	close(<-clock.asked) // the watch starts again, in the new lineage
	s.created(1)
	close(<-clock.asked) // and so does the request
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() != int64(cachetest.Start) {
		t.Errorf("got %v, want progress at %d", m, cachetest.Start)
	}
}

// tellingClock is a router.Clock that reports the revisions that it returns.
type tellingClock struct {
	*cachetest.Script
	returned chan kv.Revision
}

func (c *tellingClock) Revision(ctx context.Context) (kv.Revision, error) {
	revision, err := c.Script.Revision(ctx)
	if err == nil {
		c.returned <- revision
	}
	return revision, err
}

// clientv3 resumes a watch after the last reported progress, even if an earlier report was higher.
// So the answer to a progress request is not below any notification sent while the request waited
// for a shard.
func TestProgressAnswerIsNotBelowANotification(t *testing.T) {
	clock := &tellingClock{returned: make(chan kv.Revision, 100)}
	r := startWatches(t, rigOptions{
		clock: func(h *cachetest.Script) router.Clock { clock.Script = h; return clock },
		api:   func(c *etcdapi.Config) { c.ProgressNotifyInterval = 100 * time.Millisecond },
	})
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first, ProgressNotify: true})
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: first})
	s.created(1)
	r.node.Gate(3).Limit(r.h.Now())
	asked := r.h.Commit(cachetest.Put("b", "1"))
	s.requestProgress()
	for <-clock.returned < asked { // the request waits for the shard of z
	}
	for range 5 {
		r.h.Commit(cachetest.Put("b", "2"))
	}
	told := int64(0)
	next := func() (id int64) {
		t.Helper()
		m := s.next()
		if at := m.GetHeader().GetRevision(); at < told || len(m.GetEvents()) > 0 {
			t.Fatalf("got %v after progress %d", m, told)
		}
		told = m.GetHeader().GetRevision()
		return m.GetWatchId()
	}
	for told < int64(r.h.Now()) {
		next()
	}
	r.node.Gate(3).Limit(asked) // the shard reaches the requested revision
	for range 6 {               // the node checks the request between two of them
		if id := next(); id == -1 {
			t.Fatalf("answered with %d, although the shard is at %d", told, asked)
		}
	}
	r.node.Gate(3).Limit(r.h.Now())
	for next() != -1 {
	}
}

// A revision is fragmented only for clients that request it.
func TestWatchFragments(t *testing.T) {
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.MaxMessageBytes = 8 << 10 }})
	s := r.watch()
	cut := whole()
	cut.Fragment = true
	s.create(cut)
	s.created(0)
	s.create(whole())
	s.created(1)
	var ops []cachetest.Op
	for i := range 20 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("k%02d", i), strings.Repeat("v", 1000)))
	}
	r.h.Commit(ops...)
	events, more, wholes := 0, 0, 0
	for events < 20 || wholes < 1 {
		m := s.next()
		switch {
		case m.GetWatchId() == 1:
			wholes++
			if len(m.GetEvents()) != 20 || m.GetFragment() {
				t.Fatalf("%d events, fragment %v", len(m.GetEvents()), m.GetFragment())
			}
			continue
		case m.GetFragment():
			more++
		}
		if events += len(m.GetEvents()); m.GetFragment() == (events == 20) {
			t.Errorf("after %d events: fragment is %v", events, m.GetFragment())
		}
	}
	if more < 2 {
		t.Errorf("%d fragments", more)
	}
}

// A node that stops ends its streams so that clients resume on another node.
func TestWatchDrain(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.create(whole())
	s.created(0)
	if n := r.api.Watches(); n != 1 {
		t.Errorf("%d watches", n)
	}
	r.api.Drain()
	streams := r.api.Farewells()
	if len(streams) != 1 || streams[0].Watches != 1 || streams[0].Client == nil {
		t.Fatalf("%+v", streams)
	}
	r.watch().fails(rpctypes.ErrGRPCStopped) // a new stream is refused
	streams[0].End()
	s.fails(rpctypes.ErrGRPCStopped)
}

// The stream of a client that requires a leader ends when the node's data is too old;
// other streams continue.
func TestWatchWithoutLeader(t *testing.T) {
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.MaxStaleness = time.Millisecond }})
	strict, easy := r.watch(requireLeader...), r.watch()
	for _, s := range []*watchStream{strict, easy} {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a")})
		s.created(0)
	}
	r.node.Replica(1).Observe(time.Now(), r.h.Now()) // from now on, the age is known and grows
	strict.fails(rpctypes.ErrGRPCNoLeader)
	r.h.Commit(cachetest.Put("a", "1"))
	if m := easy.next(); text(m) != "p:a=1" {
		t.Errorf("got %v", m)
	}
}

// The stream of a client that requires a leader never ended while etcd's log could not be read for a watch that
// catches up. Streams of other clients wait for etcd.
func TestCatchUpWithoutLeader(t *testing.T) {
	r := startWatches(t, rigOptions{
		cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 },
		api:   func(c *etcdapi.Config) { c.MaxStaleness = time.Millisecond },
	})
	var last kv.Revision
	for i := range 30 { // the window evicts all but the last few
		last = r.h.Commit(cachetest.Put("a", fmt.Sprint(i)+strings.Repeat("x", 1024)))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	away := func(err error) {
		r.etcd.mu.Lock()
		defer r.etcd.mu.Unlock()
		r.etcd.away = err
	}
	away(&kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "no endpoint answers"})
	strict, easy := r.watch(requireLeader...), r.watch()
	for _, s := range []*watchStream{strict, easy} {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		s.created(0)
	}
	strict.fails(rpctypes.ErrGRPCNoLeader)
	away(nil)
	if m := easy.next(); m.GetHeader().GetRevision() != first || len(m.GetEvents()) != 1 {
		t.Errorf("got %v", m)
	}
}

// rights is a Guard.
type rights struct {
	mu      sync.Mutex
	allowed string        // guarded by mu; the user that may read keys below "m"
	changed chan struct{} // guarded by mu

	refreshed atomic.Int32
}

func (g *rights) Caller(ctx context.Context) (string, error) {
	who, _ := ctx.Value(whoKey{}).(string)
	if who == "" {
		return "", rpctypes.ErrGRPCUserEmpty
	}
	return who, nil
}

type whoKey struct{}

func (g *rights) MayRead(caller string, r kv.Range) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if caller != g.allowed || !(kv.Range{End: "m"}).Covers(r) {
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

func (g *rights) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *rights) Refresh(context.Context) { g.refreshed.Add(1) }

func (g *rights) allow(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed = who
	close(g.changed)
	g.changed = make(chan struct{})
}

// known is a Guard for which every caller is "ann".
type known struct{ *rights }

func (known) Caller(context.Context) (string, error) { return "ann", nil }

// fickle is a Guard that lets ann read only once: she loses the right after the first check, when
// the watch is not registered yet.
type fickle struct {
	*rights
	asked atomic.Bool
}

func (*fickle) Caller(context.Context) (string, error) { return "ann", nil }

func (g *fickle) MayRead(caller string, r kv.Range) error {
	if g.asked.Swap(true) {
		return rpctypes.ErrGRPCPermissionDenied
	}
	return g.rights.MayRead(caller, r)
}

// A watch requires the right to read its range, and ends when the right is lost.
func TestWatchRights(t *testing.T) {
	g := &rights{allowed: "ann", changed: make(chan struct{})}
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Guard = known{g} }})
	s := r.watch()
	s.create(whole())
	s.refused(rpctypes.ErrGRPCPermissionDenied.Error())
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("l"), RangeEnd: []byte{0}})
	s.refused(rpctypes.ErrGRPCPermissionDenied.Error())
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	s.refused(emptyRange)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("m")})
	s.created(0)
	g.allow("ann") // she keeps her right
	r.h.Commit(cachetest.Put("a", "1"))
	if m := s.next(); text(m) != "p:a=1" {
		t.Fatalf("got %v", m)
	}
	g.allow("bob")
	if m := s.canceled(0); m.GetCancelReason() != rpctypes.ErrGRPCPermissionDenied.Error() {
		t.Errorf("got %v", m)
	}

	// The right is lost while the watch is being created.
	quick := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Guard = &fickle{rights: g} }}).watch()
	g.allow("ann")
	quick.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a")})
	quick.created(0)
	if m := quick.canceled(0); m.GetCancelReason() != rpctypes.ErrGRPCPermissionDenied.Error() {
		t.Errorf("got %v", m)
	}

	nobody := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Guard = g }}).watch()
	nobody.create(whole())
	nobody.refused(rpctypes.ErrGRPCUserEmpty.Error())
}

// A client that sends requests without reading the answers costs a bounded number of answers.
func TestWatchAnswersThatAreNotRead(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	big := &etcdserverpb.WatchCreateRequest{Key: bytes.Repeat([]byte("k"), 1000), RangeEnd: []byte("a")}
	sent := make(chan int)
	go func() {
		n := 0
		for s.rpc.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: big}}) == nil {
			n++
			if n%100 == 0 {
				select {
				case sent <- n:
				case <-s.rpc.Context().Done():
				}
			}
		}
		close(sent)
	}()
	n := 0
	for quiet := false; !quiet; {
		select {
		case n = <-sent:
		case <-time.After(time.Second): // flow control has stopped the sender
			quiet = true
		}
	}
	if n > 50_000 {
		t.Errorf("%d requests were accepted", n)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for range sent {
		}
	})
	for range 2 * n {
		s.refused(emptyRange) // the stream continues when the client reads
	}
	s.end()
	sending.Wait()
}

// The answer to a progress request is not below any revision sent on the stream. Otherwise clientv3
// would resume a watch in the past, and deliver events twice.
func TestWatchProgressIsNotBelowSentRevisions(t *testing.T) {
	r := startWatches(t, rigOptions{})
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a")}) // shard 1: busy
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z")}) // shard 3: quiet, so its progress is requested
	s.created(1)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			r.h.Commit(cachetest.Put("a", "x"))
			time.Sleep(100 * time.Microsecond) // the pace of the workload
		}
	})
	var sent int64
	s.requestProgress()
	for answers := 0; answers < 20; {
		switch m := s.next(); {
		case m.GetWatchId() == -1:
			if m.GetHeader().GetRevision() < sent {
				t.Fatalf("progress %d, although revision %d had been sent", m.GetHeader().GetRevision(), sent)
			}
			answers++
			s.requestProgress()
		case len(m.GetEvents()) > 0:
			if m.GetHeader().GetRevision() != sent+1 && sent > 0 {
				t.Fatalf("revision %d after %d", m.GetHeader().GetRevision(), sent)
			}
			sent = m.GetHeader().GetRevision()
		}
	}
	stop()
	writer.Wait()
}

// Watches of one range that start before the window share the parts read of etcd's log.
func TestCatchUpsShareTheirReads(t *testing.T) {
	b := budget.New(1 << 20)
	r := startWatches(t, rigOptions{
		cache: func(c *cache.Config) { c.WindowBytes = 4 << 10 },
		api:   func(c *etcdapi.Config) { c.Budget = b },
	})
	var last kv.Revision
	for i := range 30 { // the window evicts all but the last few
		last = r.h.Commit(cachetest.Put("a", fmt.Sprint(i)+strings.Repeat("x", 1024)))
	}
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	const watches = 50
	s := r.watch()
	for range watches {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	}
	next := make(map[int64]int64)
	for done := 0; done < watches; {
		m := s.next()
		if m.GetCreated() {
			next[m.GetWatchId()] = first
			continue
		}
		id := m.GetWatchId()
		if m.GetHeader().GetRevision() != next[id] || len(m.GetEvents()) != 1 {
			t.Fatalf("got %v, want revision %d", m, next[id])
		}
		if next[id]++; next[id] > int64(last) {
			done++
		}
	}
	r.etcd.mu.Lock()
	if n := r.etcd.histories; n > 60 { // a read returns two revisions
		t.Errorf("%d reads of the log for %d watches of 30 revisions", n, watches)
	}
	r.etcd.mu.Unlock()
}
