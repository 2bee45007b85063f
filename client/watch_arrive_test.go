package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// taken returns the updates that are pending for the program.
func (b *bench) taken(w *Watcher) (out []Update) {
	b.Helper()
	for {
		u, ok, err := w.take()
		if !ok || err != nil {
			return out
		}
		out = append(out, u)
	}
}

// Updates that the program has taken no longer count as pending. Closing a watch drops the
// pending ones; after any other end they can still be read.
func TestUpdatesWaitUntilTheyAreTaken(t *testing.T) {
	onBench(t, func(b *bench) {
		w, other := b.watch(FromRevision(11)), b.watch(FromRevision(11))
		for _, x := range []*Watcher{w, other} {
			b.begin(x, "n1", 10)
			for r := range int64(3) {
				b.answer(x, events(11+r, false, "a"))
			}
		}
		one := w.Stats().Bytes / 3
		if _, err := w.Next(t.Context()); err != nil || one == 0 || w.Stats().Bytes != 2*one || w.Stats().Updates != 2 {
			t.Errorf("after one of three: %+v, %v", w.Stats(), err)
		}
		w.Close()
		if u, err := w.Next(t.Context()); !errors.Is(err, ErrClosed) || w.Stats().Bytes != 0 || w.Stats().Updates != 0 {
			t.Errorf("after Close: %+v, %v; %+v", u, err, w.Stats())
		}
		other.end(outcome.ErrEnded)
		if got := b.taken(other); len(got) != 3 || other.Stats().Bytes != 0 {
			t.Errorf("after another end: %d updates, %+v", len(got), other.Stats())
		}
	}, "a:1")
}

// A watch without a node keeps no part of an incomplete unit, neither while it waits for
// another node nor once it has ended.
func TestAUnitInPartIsDroppedWithItsNode(t *testing.T) {
	onBench(t, func(b *bench) {
		for what, leave := range map[string]func(*Watcher){
			"closed": (*Watcher).Close,
			"waits":  func(w *Watcher) { w.lost(w.on, w.id, outcome.Verdict{Err: outcome.ErrSilent, After: time.Minute}, 0) },
		} {
			w := b.watch(WithState())
			b.begin(w, "n1", 10)
			b.answer(w, &pb.WatchResponse{Detail: &pb.WatchResponse_Sync{Sync: &pb.Sync{
				Kind: pb.SyncKind_SYNC_KIND_STATE, Begin: true, Revision: 10, Kvs: []*pb.KeyValue{{Key: []byte("a"), ModRevision: 3}},
			}}})
			if len(w.asm.partial.KVs) != 1 || w.asm.size == 0 {
				t.Fatalf("%s: %+v has arrived", what, w.asm.partial)
			}
			leave(w)
			if p := w.asm.partial; w.at() != "" || p.Kind != 0 || p.KVs != nil || w.asm.size != 0 {
				t.Errorf("%s: at %q, keeps %+v, %d bytes", what, w.at(), p, w.asm.size)
			}
		}
	}, "a:1")
}

// OnResume gets the previous node of the watch and the reason why the watch left it, not
// the errors in between. LastError is set only while no node serves the watch.
func TestOnResumeNamesTheReasonOfTheMove(t *testing.T) {
	onBench(t, func(b *bench) {
		told := make(chan Resume, 1)
		w := b.watch(FromRevision(11), OnResume(func(r Resume) { told <- r }))
		b.begin(w, "n1", 10)
		b.answer(w, events(12, false, "a"))
		b.fail(w, outcome.ErrSilent)
		b.fail(w, outcome.ErrNoStart) // from the next node
		if s := w.Stats(); !errors.Is(s.LastError, outcome.ErrNoStart) || s.Attached || s.Node != "n1" {
			t.Errorf("nowhere: %+v", s)
		}
		time.Sleep(2 * retry.Base)
		b.begin(w, "n3", 12)
		if r := <-told; r.From != "n1" || r.To != "n3" || !errors.Is(r.Reason, outcome.ErrSilent) || r.Revision != 12 {
			t.Errorf("told %+v", r)
		}
		if s := w.Stats(); s.LastError != nil || !s.Attached || s.Node != "n3" || s.Resumes != 1 {
			t.Errorf("served again: %+v", s)
		}
		time.Sleep(2 * retry.Settled)
		b.fail(w, outcome.ErrHome)
		b.begin(w, "", 12) // a node without a name
		if r := <-told; r.From != "n3" || !strings.HasSuffix(r.To, ":1") || !errors.Is(r.Reason, outcome.ErrHome) {
			t.Errorf("told %+v", r)
		}
	}, "a:1", "b:1", "c:1")
}

// Consecutive resumes while OnResume runs are reported as one, from the first node to the last.
func TestResumesDuringOnResumeAreReportedAsOne(t *testing.T) {
	onBench(t, func(b *bench) {
		var told []Resume
		deal := make(chan struct{})
		w := b.watch(FromRevision(11), OnResume(func(r Resume) {
			told = append(told, r)
			<-deal
		}))
		b.begin(w, "n1", 10)
		for _, name := range []string{"n2", "n3", "n4"} {
			time.Sleep(2 * retry.Settled)
			b.fail(w, errors.New("before "+name))
			b.begin(w, name, 10)
			synctest.Wait()
		}
		b.answer(w, events(11, false, "a"))
		if got := b.taken(w); len(got) != 0 {
			t.Errorf("%d updates are returned before OnResume returns", len(got))
		}
		close(deal)
		synctest.Wait()
		if len(told) != 2 || told[0].To != "n2" || told[1].From != "n2" || told[1].To != "n4" || told[1].Reason.Error() != "before n4" {
			t.Errorf("told %+v", told)
		}
		if got := b.taken(w); len(got) != 1 {
			t.Errorf("%d updates after OnResume", len(got))
		}
	}, "a:1", "b:1")
}

// The time at which the data was fresh only moves forward, with progress that covers all
// arrived events. It is reset if the history may be another one.
func TestFreshnessMovesForwardOnly(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch(FromRevision(11), WithProgress())
		b.begin(w, "n1", 10)
		began := time.Now()
		is := func(what string, want time.Time) {
			t.Helper()
			if got := w.Stats().FreshAt; !got.Equal(want) {
				t.Errorf("%s: fresh at %v, want %v", what, got.Sub(began), want.Sub(began))
			}
		}
		aged := func(revision int64, age time.Duration) *pb.WatchResponse {
			r := progress(revision)
			r.GetProgress().Age = durationpb.New(age)
			return r
		}
		b.answer(w, progress(11))
		is("no age", time.Time{})
		b.answer(w, aged(12, 2*time.Second))
		is("the first age", began.Add(-2*time.Second))
		if got := b.taken(w); len(got) != 1 || got[0].Revision != 12 || !got[0].FreshAt.Equal(began.Add(-2*time.Second)) {
			t.Errorf("the program gets %+v", got)
		}
		time.Sleep(time.Second)
		b.answer(w, aged(12, 9*time.Second))
		is("an older one", began.Add(-2*time.Second))
		b.answer(w, aged(0, 0))
		is("no revision", began.Add(-2*time.Second))
		b.answer(w, events(13, true, "a"))
		b.answer(w, aged(13, 0))
		is("in the middle of a revision", began.Add(-2*time.Second))
		b.answer(w, events(13, false, "a"))
		b.answer(w, aged(13, 0))
		is("after it", began.Add(time.Second))
		b.answer(w, unit(0, 20, "a", resync))
		is("a resync", time.Time{})
	}, "a:1")
}

// Consecutive progress updates are merged into the last one, and are delivered only on
// request. Progress never overtakes events.
func TestProgressThatWaitsIsMerged(t *testing.T) {
	onBench(t, func(b *bench) {
		w, plain := b.watch(FromRevision(11), WithProgress()), b.watch(FromRevision(11))
		var kinds []UpdateKind
		for _, x := range []*Watcher{w, plain} {
			b.begin(x, "n1", 10)
			for _, r := range []*pb.WatchResponse{progress(11), progress(12), events(13, false, "a"), progress(14), progress(15)} {
				b.answer(x, r)
			}
		}
		for _, u := range b.taken(w) {
			kinds = append(kinds, u.Kind)
			if want := []int64{12, 13, 15}[min(len(kinds), 3)-1]; u.Revision != want {
				t.Errorf("%v at revision %d, want %d", u.Kind, u.Revision, want)
			}
		}
		if len(kinds) != 3 || kinds[1] != KindBatch {
			t.Errorf("the program gets %v", kinds)
		}
		if got := b.taken(plain); len(got) != 1 || plain.Revision() != 15 {
			t.Errorf("without progress the program gets %+v and is at revision %d", got, plain.Revision())
		}
	}, "a:1")
}

// A revision in fragments that does not fit into the buffer with the pending updates is dropped, and requested
// again once the program has taken them. Alone it may exceed the buffer.
func TestARevisionThatDoesNotFitWaitsAtTheNode(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch(FromRevision(11), WithBuffer(1000))
		b.begin(w, "n1", 10)
		big := strings.Repeat("a", 2000)
		b.answer(w, events(11, true, big))
		b.answer(w, events(11, false, "a"))
		if w.at() == "" {
			t.Fatal("the watch left its node because of one big revision")
		}
		s := w.on
		b.answer(w, events(12, true, "a"))
		if w.at() != "" {
			t.Error("the watch accepts more than fits into its buffer")
		}
		if c := newest(s.Unsent()).GetCancel(); c.GetWatchId() != 2 {
			t.Errorf("the watch was not canceled at its node: %v", newest(s.Unsent()))
		}
		w.place() // a retry for any other reason
		if w.at() != "" {
			t.Error("the watch resumes before there is room")
		}
		if got := b.taken(w); len(got) != 1 || got[0].Revision != 11 {
			t.Errorf("the program gets %+v", got)
		}
		if w.at() != "a:1" || newest(w.on.Unsent()).GetCreate().GetStartRevision() != 12 || w.failures != 0 {
			t.Errorf("at %q after %d failures", w.at(), w.failures)
		}
	}, "a:1")
}

// A watch that ends before its start, in a backoff, while it waits for the shard map, or at a node,
// leaves nothing behind: no timer and no count, and its context does not refer to it.
func TestAnEndedWatchReleasesItsResources(t *testing.T) {
	onBench(t, func(b *bench) {
		running, waiting := b.watch(), b.watch()
		b.begin(running, "n1", 10)
		waiting.lost(waiting.on, waiting.id, outcome.Verdict{Err: outcome.ErrEnded, After: time.Hour}, 0)
		b.c.follower.Topology.Store(&shardmap.Topology{})
		unmapped := b.watch()
		if b.c.follower.Unmapped.Load() != 1 || unmapped.at() != "" || unmapped.timer == nil || waiting.timer == nil {
			t.Fatalf("%d watches wait for the map", b.c.follower.Unmapped.Load())
		}
		s := running.on
		for _, w := range []*Watcher{running, waiting, unmapped} {
			w.Close()
			if w.stop() || w.timer != nil {
				t.Error("the context of the watch or a timer refers to it")
			}
		}
		left := 0
		for _, r := range s.Unsent() {
			if r.GetCancel() != nil {
				left++
			}
		}
		if n := b.c.follower.Unmapped.Load(); n != 0 || len(b.c.watchers) != 0 || left != 2 {
			t.Errorf("%d watches wait for the map, %d watchers, %d of 2 were canceled on the stream", n, len(b.c.watchers), left)
		}
		b.c.wg.Wait()
		late := &Watcher{c: b.c, err: ErrClosed}
		var stopped atomic.Bool
		late.setStop(func() bool { stopped.Store(true); return true })
		if !stopped.Load() {
			t.Error("the context of a watch that ended at once refers to it")
		}
	}, "a:1")
}

// known returns a topology that has the shards of these ranges, or all shards.
func known(t *testing.T, all bool, ranges ...Range) *shardmap.Topology {
	t.Helper()
	in := shardmap.Interest{All: all}
	for _, r := range ranges {
		in.Ranges = append(in.Ranges, r.keys())
	}
	top, err := new(shardmap.Topology).With("a:1", in, &pb.WatchShardMapResponse{Map: new(pb.ShardMap), AllShards: all})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// A watch waits once for the shards of its range, and is placed when they are known, or
// after a timeout.
func TestAWatchWaitsForTheMapOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		b.c.follower.Topology.Store(&shardmap.Topology{})
		w, other := b.watch(), b.watch()
		w.mapped(known(t, false, Prefix("b")))
		if w.at() != "" {
			t.Errorf("a map of other ranges places the watch at %q", w.at())
		}
		w.mapped(known(t, false, Prefix("")))
		if w.at() != "a:1" || b.c.follower.Unmapped.Load() != 1 {
			t.Errorf("with the map: at %q; %d wait", w.at(), b.c.follower.Unmapped.Load())
		}
		time.Sleep(mapWait)
		synctest.Wait()
		if other.at() != "a:1" || b.c.follower.Unmapped.Load() != 0 {
			t.Errorf("without the map: at %q; %d wait", other.at(), b.c.follower.Unmapped.Load())
		}
		b.fail(other, outcome.ErrEnded)
		if other.at() != "b:1" {
			t.Errorf("the watch waits a second time")
		}
		b.c.follower.Topology.Store(known(t, true))
		if covered := b.watch(); covered.at() != "a:1" || b.c.follower.Unmapped.Load() != 0 {
			t.Errorf("a watch of known shards is at %q; %d wait", covered.at(), b.c.follower.Unmapped.Load())
		}
	}, "a:1", "b:1")
}

// A map of another cluster moves the watches that are served by nodes of the former
// cluster, and no others. A node of another cluster than the map's does not start a watch.
func TestWatchesFollowTheClusterOfTheMap(t *testing.T) {
	onBench(t, func(b *bench) {
		created := func(cluster string) *pb.WatchResponse {
			return &pb.WatchResponse{Detail: &pb.WatchResponse_Created{Created: &pb.Created{Revision: 10, Lineage: 1, ClusterId: cluster}}}
		}
		old, current, starting := b.watch(), b.watch(), b.watch()
		b.answer(old, created("old"))
		b.answer(current, created("new"))
		var unfollowed int
		b.c.follower.Following(func() { unfollowed++ })
		watches{b.c}.Regroup("new")
		time.Sleep(retry.HerdMax)
		synctest.Wait()
		if old.Stats().Attached || !errors.Is(old.Stats().LastError, outcome.ErrForeign) || !current.Stats().Attached || starting.Stats().LastError != nil {
			t.Errorf("%+v, %+v, %+v", old.Stats(), current.Stats(), starting.Stats())
		}
		top := &shardmap.Topology{ClusterID: "new"}
		b.c.follower.Topology.Store(top)
		b.answer(starting, created("old"))
		if starting.Stats().Attached || starting.begun || !errors.Is(starting.Stats().LastError, outcome.ErrForeign) || unfollowed != 1 {
			t.Errorf("%+v; the map is doubted %d times", starting.Stats(), unfollowed)
		}
	}, "a:1", "b:1")
}

// A watch whose revisions are compacted at every node asks each node once, and fails with
// the lowest of their floors.
func TestCompactedHistoryIsRequestedFromEachNodeOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		top := known(t, true)
		top.Members = []shardmap.Member{{Name: "n1", Address: "a:1"}, {Name: "n2", Address: "b:1"}, {Name: "n3", Address: "c:1"}}
		b.c.follower.Topology.Store(top)
		w := b.c.Watch(context.Background(), Prefix("a"), FromRevision(3), WithoutResync())
		asked := map[string]bool{}
		for _, floor := range []int64{9, 7, 8} {
			at := w.at()
			if asked[at] || at == "" {
				t.Fatalf("asks %q, after it has asked %v", at, asked)
			}
			asked[at] = true
			b.answer(w, endOf(pb.EndReason_END_REASON_COMPACTED, func(e *pb.Ended) { e.Floor = floor }))
			time.Sleep(time.Second)
		}
		var compacted *CompactedError
		if !errors.As(w.Err(), &compacted) || *compacted != (CompactedError{3, 7}) {
			t.Errorf("the watch ends with %v", w.Err())
		}
	}, "a:1", "b:1", "c:1")
}
