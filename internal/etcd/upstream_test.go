package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// sharing returns a scripted etcd and watches of adjacent ranges, /a to /b and so on. All watches have moved to
// the shared stream at revision 101, as its watches 1, 2 and so on.
func sharing(t *testing.T, watches int) (*scripted, *Client, *scriptedStream, []*quiet) {
	t.Helper()
	s, c := startScripted(t)
	c.muxes.pause = 0
	var shared *scriptedStream
	var all []*quiet
	for i := range watches {
		var q *quiet
		shared, q = s.joinedOf(t, c, shared, kv.Range{Start: fmt.Sprintf("/%c", 'a'+i), End: fmt.Sprintf("/%c", 'b'+i)})
		all = append(all, q)
	}
	return s, c, shared, all
}

// change sends a watch a revision that changes keys.
func (s *scriptedStream) change(id, revision int64, keys ...string) {
	s.t.Helper()
	r := response(revision, false)
	r.WatchId = id
	for _, key := range keys {
		r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}})
	}
	s.send(r)
}

// forms waits for the request for the watch of a run, and announces the watch at revision.
func (s *scriptedStream) forms(c *Client, start, end string, revision int64) (id int64) {
	s.t.Helper()
	r := s.creates()
	if string(r.GetKey()) != start || string(r.GetRangeEnd()) != end || r.GetStartRevision() != 0 {
		s.t.Fatalf("the created watch is %v, want one from %s to %s", r, start, end)
	}
	s.send(created(r.GetWatchId(), revision))
	return r.GetWatchId()
}

// cancelled waits until the given watches are cancelled.
func (s *scriptedStream) cancelled(want ...int64) {
	s.t.Helper()
	var got []int64
	for range want {
		got = append(got, s.cancels())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Fatalf("watches %v are cancelled, want %v", got, want)
	}
}

// Watches of adjacent ranges share one watch at etcd, a run. Each event goes to its range, whole, and proves the
// progress of all ranges, so that none requests progress.
func TestAdjacentRangesShareAWatch(t *testing.T) {
	_, c, shared, all := sharing(t, 3)
	shared.progress(102) // a run is requested
	run := shared.forms(c, "/a", "/d", 102)
	shared.change(1, 103, "/a1")
	all[0].skip(103, "b103×1")
	shared.change(run, 103, "/a1") // the run forms, and delivers nothing yet
	shared.progress(103)           // now the run is the only watch
	shared.cancelled(1, 2, 3)
	asked := c.Stats().ProgressAsked
	for _, q := range all {
		q.want.Ask(104)
	}
	shared.change(run, 104, "/b1", "/a1", "/b2")
	for i, want := range []string{"b104×1", "b104×2", "p104"} {
		all[i].skip(104, want)
	}
	shared.change(run, 105, "/a1")
	all[0].skip(105, "b105×1")
	all[1].want.Ask(105)
	all[1].skip(105, "p105")
	if n := c.Stats(); n.ProgressAsked-asked > 1 || n.WatchesOpen != 1 || n.StreamsOpen != 1 {
		t.Errorf("stats: %+v; %d requests for progress before", n, asked)
	}
}

// skip takes updates up to the one of revision, which must equal want. The updates before it must be progress.
func (q *quiet) skip(revision kv.Revision, want string) {
	q.t.Helper()
	for {
		u := q.next()
		if u.Revision >= revision {
			if got := seen([]kv.Update{u}); got != want {
				q.t.Fatalf("got %s, want %s", got, want)
			}
			return
		}
		if u.Kind != kv.UpdateProgress {
			q.t.Fatalf("got %s before %s", seen([]kv.Update{u}), want)
		}
	}
}

// While the watch of a run forms, revisions arrive on the run's watch and on the previous watches, in any relative
// order. The run takes over at a point where no revision is lost or repeated.
func TestRunTakesOverWithoutAGap(t *testing.T) {
	_, c, shared, all := sharing(t, 2)
	shared.progress(102)
	run := shared.forms(c, "/a", "/c", 104) // etcd was at 103 when it created the watch
	shared.change(run, 104, "/a1", "/b1")
	shared.change(2, 103, "/b1")
	shared.progress(103) // requested before the watch was created, so that it proves nothing for the watch
	shared.change(run, 105, "/b1")
	shared.change(run, 106, "/a1")
	shared.change(1, 104, "/a1")
	shared.change(2, 104, "/b1")
	shared.change(2, 105, "/b1")
	shared.change(1, 106, "/a1")
	shared.progress(106)
	shared.change(run, 107, "/b1", "/a1")
	shared.change(1, 107, "/a1") // in transit when the run took over
	shared.change(2, 107, "/b1")
	shared.cancelled(1, 2)
	for i, want := range [][]string{{"b104×1", "b106×1", "b107×1"}, {"b103×1", "b104×1", "b105×1", "b107×1"}} {
		var got []string
		for len(got) == 0 || got[len(got)-1] != "b107×1" {
			if u := all[i].next(); u.Kind == kv.UpdateBatch {
				got = append(got, seen([]kv.Update{u}))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("watch %d got %v, want %v", i, got, want)
		}
	}
}

// One consumer of a run ends, and its watch leaves. The other watches get their events without a pause, and then a
// watch without that range.
func TestRunContinuesWithoutOneOfItsRanges(t *testing.T) {
	_, c, shared, all := sharing(t, 3)
	shared.progress(102)
	run := shared.forms(c, "/a", "/d", 102)
	shared.progress(103)
	shared.cancelled(1, 2, 3)
	all[1].stop()
	shared.change(run, 104, "/a1", "/b1", "/c1")
	shared.change(run, 105, "/b1")
	all[0].skip(104, "b104×1")
	all[2].skip(104, "b104×1")
	shared.progress(106)
	var ids []int64
	for range 2 {
		r := shared.creates()
		shared.send(created(r.GetWatchId(), 106))
		ids = append(ids, r.GetWatchId())
		if string(r.GetKey()) == "/a" { // its first event overtakes those of the run
			shared.change(r.GetWatchId(), 108, "/a1")
		}
		if got := string(r.GetKey()) + string(r.GetRangeEnd()); got != "/a/b" && got != "/c/d" {
			t.Errorf("a watch of %s is created, want only the remaining ranges", got)
		}
	}
	shared.change(run, 107, "/a1")
	all[0].skip(107, "b107×1")
	shared.change(run, 108, "/a1")
	all[0].skip(108, "b108×1")
	shared.progress(108)
	shared.cancelled(run)
	for _, id := range ids {
		shared.change(id, 109, "/a1") // the event is of both watches, each of which has only its own keys
	}
	all[0].skip(109, "b109×1")
	if n := c.Stats(); n.WatchesOpen != 2 || n.LeftOther+n.LeftSlow != 0 {
		t.Errorf("stats: %+v", n)
	}
}

// etcd ends the watch of a run as compacted. Each watch of the run resumes on a separate stream from its own
// position, and that stream reports the compaction to its consumer.
func TestRunIsCompacted(t *testing.T) {
	s, c, shared, all := sharing(t, 2)
	shared.progress(102)
	run := shared.forms(c, "/a", "/c", 102)
	shared.progress(103)
	shared.cancelled(1, 2)
	shared.change(run, 104, "/a1")
	all[0].skip(104, "b104×1")
	all[1].want.Ask(104)
	all[1].skip(104, "p104")
	shared.send(&etcdserverpb.WatchResponse{WatchId: run, Canceled: true, CompactRevision: 150})
	for range all {
		private := s.opened(t)
		if r := private.creates(); r.GetStartRevision() != 105 {
			t.Errorf("the watch resumes with %v, want revision 105", r)
		}
		private.send(created(0, 160))
		private.send(&etcdserverpb.WatchResponse{Canceled: true, CompactRevision: 150})
	}
	for _, q := range all {
		var compacted *kv.CompactedError
		if err := q.failure(); !errors.As(err, &compacted) || *compacted != (kv.CompactedError{Requested: 105, Floor: 150}) {
			t.Errorf("the watch ended with %v", err)
		}
	}
}

// Runs form even while watches keep joining and leaving, if the last runs formed long enough ago.
func TestRunFormsWhileWatchesJoin(t *testing.T) {
	s, c := startScripted(t)
	c.muxes.pause = time.Hour
	join := func(shared *scriptedStream, at int) *scriptedStream {
		shared, _ = s.joinedOf(t, c, shared, kv.Range{Start: fmt.Sprintf("/%c", 'a'+at), End: fmt.Sprintf("/%c", 'b'+at)})
		return shared
	}
	shared := join(nil, 0)
	join(shared, 1)
	m := c.muxes.now
	m.mu.Lock()
	m.shaped = m.shaped.Add(-2 * c.muxes.pause)
	m.mu.Unlock()
	join(shared, 2)
	shared.progress(102)
	shared.forms(c, "/a", "/d", 102)
	shared.progress(103)
	shared.cancelled(1, 2, 3)
	join(shared, 3)
	shared.progress(104)
	shared.change(4, 105, "/a1")
	shared.progress(105)
	testkit.Eventually(t, "the client has processed the last answer", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.watches[4].a.done == 105
	})
	if n := c.Stats(); n.WatchesOpen != 2 { // the next run forms once the pause is over
		t.Errorf("stats: %+v", n)
	}
}

// etcd refuses or ends the watch of a forming run. The previous watches continue, and a refused run is not
// requested again.
func TestRunThatDoesNotForm(t *testing.T) {
	for name, again := range map[string]bool{"refused": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			_, c, shared, all := sharing(t, 2)
			shared.progress(102)
			if again {
				run := shared.forms(c, "/a", "/c", 102)
				shared.send(&etcdserverpb.WatchResponse{WatchId: run, Canceled: true, CompactRevision: 150})
				shared.cancelled(run)
			} else {
				shared.creates()
				shared.send(&etcdserverpb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "etcdserver: permission denied"})
			}
			shared.progress(103)
			if again {
				shared.forms(c, "/a", "/c", 103)
			}
			shared.change(1, 104, "/a1")
			shared.change(2, 104, "/b1")
			all[0].skip(104, "b104×1")
			all[1].skip(104, "b104×1")
			m := c.muxes.now
			m.mu.Lock()
			if requested := m.last == 4; requested != again { // IDs 1 and 2 are the watches, 3 is the first run
				t.Errorf("the run is requested again: %v", requested)
			}
			m.mu.Unlock()
			if n := c.Stats(); n.LeftOther != 0 {
				t.Errorf("stats: %+v", n)
			}
		})
	}
}

// A watch that joins the shared stream while a run of its neighbours forms is part of the next run.
func TestWatchJoinsARun(t *testing.T) {
	s, c, shared, all := sharing(t, 2)
	shared.progress(102)
	run := shared.forms(c, "/a", "/c", 102)
	_, third := s.joinedOf(t, c, shared, kv.Range{Start: "/c", End: "/d"}) // as watch 4, from 101
	all = append(all, third)
	shared.progress(103)
	shared.cancelled(1, 2)
	shared.progress(104)
	next := shared.forms(c, "/a", "/d", 104)
	shared.change(run, 105, "/b1")
	shared.change(next, 105, "/b1", "/c1")
	shared.change(4, 105, "/c1")
	shared.progress(105)
	shared.cancelled(run, 4)
	shared.change(next, 106, "/a1", "/c1")
	all[0].skip(106, "b106×1")
	all[1].skip(105, "b105×1")
	all[2].skip(105, "b105×1")
	all[2].skip(106, "b106×1")
	if n := c.Stats(); n.WatchesOpen != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// A watch leaves while its run forms. The run takes over for the other watches, and is requested again without the
// range.
func TestWatchLeavesWhileItsRunForms(t *testing.T) {
	_, c, shared, all := sharing(t, 3)
	shared.progress(102)
	run := shared.forms(c, "/a", "/d", 102)
	all[1].stop()
	shared.cancelled(2)
	shared.progress(103)
	shared.cancelled(1, 3)
	shared.change(run, 104, "/a1", "/b1", "/c1")
	all[0].skip(104, "b104×1")
	all[2].skip(104, "b104×1")
	shared.progress(104)
	shared.creates()
	shared.creates()
	if n := c.Stats(); n.WatchesOpen != 3 { // the run's watch and the two forming watches
		t.Errorf("stats: %+v", n)
	}
}

// One of four consumers of a run stops reading. Its watch leaves the run, loses nothing, and rejoins the run
// later. The other consumers get all their events without requests for progress.
func TestSlowConsumerLeavesItsRun(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	c.muxes.pause = 0
	all := followAll(t, s, c, adjacent(4)...)
	one := func() bool {
		at := put(t, s, "/elsewhere", "x")
		for _, q := range all {
			q.want.Ask(at)
			q.reach(at)
		}
		n := c.Stats()
		return n.WatchesOpen == 1 && n.StreamsOpen == 1
	}
	testkit.Eventually(t, "all watches form a run", one)
	slow := all[0]
	var want []string
	for i := range 30 {
		value := strings.Repeat("v", 100<<10) + fmt.Sprint(i)
		want = append(want, fmt.Sprintf("%d: PUT /s00/k=%s", put(t, s, "/s00/k", value), value))
		at := put(t, s, fmt.Sprintf("/s%02d/k", 1+i%3), "v")
		for j, q := range all[1:] {
			q.want.Ask(at)
			if got := q.reach(at); (len(got) == 1) != (j == i%3) {
				t.Fatalf("consumer %d got %q at write %d", 1+j, got, i)
			}
		}
	}
	if n := c.Stats(); n.LeftSlow != 1 {
		t.Errorf("stats: %+v", n)
	}
	now := put(t, s, "/elsewhere", "y")
	slow.want.Ask(now)
	if got := slow.reach(now); !slices.Equal(got, want) {
		t.Errorf("got %d batches, want %d", len(got), len(want))
	}
	testkit.Eventually(t, "all watches form a run again", one)
}

// adjacent returns n prefix ranges, each of which ends where the next one starts.
func adjacent(n int) (out []kv.Range) {
	for i := range n {
		out = append(out, kv.Range{Start: fmt.Sprintf("/s%02d/", i), End: fmt.Sprintf("/s%02d/", i+1)})
	}
	return out
}

// A write to a run needs no request for progress: its event proves the progress of all ranges.
func TestEventOfARunNeedsNoQuestion(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	c.muxes.pause = 0
	all := followAll(t, s, c, adjacent(16)...)
	testkit.Eventually(t, "all watches form a run", func() bool {
		at := put(t, s, "/elsewhere", "x")
		for _, q := range all {
			q.want.Ask(at)
			q.reach(at)
		}
		return c.Stats().WatchesOpen == 1
	})
	before := c.Stats().ProgressAsked
	const writes = 30
	for i := range writes {
		at := put(t, s, fmt.Sprintf("/s%02d/k", i%16), fmt.Sprint(i))
		all[i%16].reach(at) // the event has arrived
		for _, q := range all {
			q.want.Ask(at)
		}
		for j, q := range all {
			if j != i%16 {
				q.reach(at)
			}
		}
	}
	// Requests that were in transit, or one each ProgressIdle.
	if asked := c.Stats().ProgressAsked - before; asked > writes/5 {
		t.Errorf("%d requests for progress for %d writes", asked, writes)
	}
}

// After a change of rights, etcd refuses each new watch on a stream with an old login. All watches move to a
// stream with a new login, and form a run there.
func TestRunFormsWithANewLogin(t *testing.T) {
	for name, joins := range map[string]bool{"when a watch joins": true, "when a run forms": false} {
		t.Run(name, func(t *testing.T) {
			s := etcdtest.Start(t, etcdtest.WithJWT(t))
			root := s.AuthOn()
			c := as(t, s, "root")
			c.muxes.pause = 0
			if !joins {
				c.muxes.pause = time.Hour
			}
			ranges := adjacent(3)
			all := followAllAs(t, root, c, ranges[:2]...)
			etcdtest.Permit(t, root, "ann", "/elsewhere", "")
			if joins {
				q := &quiet{want: new(kv.Demand)}
				q.follower = follow(t, c, kv.FollowRequest{Range: ranges[2], Want: q.want})
				q.ready()
				all = append(all, q)
			} else {
				m := c.muxes.now
				m.mu.Lock()
				c.muxes.pause = 0
				m.mu.Unlock()
			}
			testkit.Eventually(t, "all watches form one run on one stream", func() bool {
				c.beginAgain()
				at := putAs(t, root, "/elsewhere", "x")
				for _, q := range all {
					q.want.Ask(at)
					q.reach(at)
				}
				n := c.Stats()
				return n.WatchesOpen == 1 && n.StreamsOpen == 1
			})
		})
	}
}

// A revision with events of all ranges of a run exceeds the size of a response. Each watch then fetches its own
// events on a separate stream, once and whole, and the watches form a run again.
func TestRunWithALargeRevision(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.MaxResponseBytes = 4 << 20
	c := newClient(t, cfg)
	c.muxes.pause = 0
	all := followAll(t, s, c, adjacent(2)...)
	one := func() bool {
		c.beginAgain()
		at := put(t, s, "/elsewhere", "x")
		for _, q := range all {
			q.want.Ask(at)
			q.reach(at)
		}
		n := c.Stats()
		return n.WatchesOpen == 1 && n.StreamsOpen == 1
	}
	testkit.Eventually(t, "both watches form a run", one)
	const keys, atOnce = 1500, 100
	padding := strings.Repeat("k", 2<<10)
	for i := 0; i < keys; i += atOnce {
		for j, q := range all {
			var ops []clientv3.Op
			for k := range atOnce {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("/s%02d/%s%d", j, padding, i+k), ""))
			}
			r, err := s.Client().Txn(t.Context()).Then(ops...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			q.want.Ask(kv.Revision(r.Header.Revision))
			q.reach(kv.Revision(r.Header.Revision))
		}
	}
	testkit.Eventually(t, "both watches form a run again", one)
	if n := c.Stats(); n.LeftOther > 0 {
		t.Fatalf("stats: %+v", n)
	}
	r, err := s.Client().Delete(t.Context(), "/s00/", clientv3.WithRange("/s02/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		for {
			u := q.next()
			if u.Kind == kv.UpdateProgress && u.Revision < kv.Revision(r.Header.Revision) {
				continue
			}
			if u.Kind != kv.UpdateBatch || u.Revision != kv.Revision(r.Header.Revision) || len(u.Batch.Events) != keys {
				t.Errorf("got an update of kind %d, revision %d with %d events", u.Kind, u.Revision, len(u.Batch.Events))
			}
			break
		}
	}
	if n := c.Stats(); n.LeftOther != 2 || n.Fragments > 0 {
		t.Errorf("stats: %+v", n)
	}
	testkit.Eventually(t, "both watches form a run at the end", one)
}

// The watch of a run keeps etcd from reporting progress. Its watches continue on separate streams, each from its
// own position.
func TestRunThatSilencesTheSharedStreamLeaves(t *testing.T) {
	s, c, shared, all := sharing(t, 2)
	s.joinedOf(t, c, shared, kv.Prefix("/x")) // this watch stays
	shared.progress(102)
	run := shared.forms(c, "/a", "/c", 102)
	shared.progress(103)
	shared.cancelled(1, 2)
	for _, q := range all {
		q.want.Ask(103)
		q.skip(103, "p103")
		q.want.Ask(1_000_000)
	}
	last := []kv.Revision{103, 103}
	var private []*scriptedStream
	for revision := kv.Revision(104); len(private) == 0; revision++ {
		shared.change(run, int64(revision), "/a1", "/b1")
		for i, q := range all {
			for len(private) == 0 && last[i] < revision {
				select {
				case u := <-q.updates:
					if u.Kind != kv.UpdateBatch || u.Revision != last[i]+1 {
						t.Fatalf("watch %d got %s after %d", i, seen([]kv.Update{u}), last[i])
					}
					last[i] = u.Revision
				case one := <-s.streams:
					one.t = t
					private = append(private, one)
				case <-time.After(patience):
					t.Fatal("no watch leaves the run")
				}
			}
		}
	}
	shared.cancelled(run)
	for len(private) < len(all) { // the others leave after their queued updates
		select {
		case one := <-s.streams:
			one.t = t
			private = append(private, one)
		case u := <-all[0].updates:
			last[0] = u.Revision
		case u := <-all[1].updates:
			last[1] = u.Revision
		case <-time.After(patience):
			t.Fatal("a watch does not leave the run")
		}
	}
	for _, one := range private {
		r := one.creates()
		i := int(r.GetKey()[1] - 'a')
		if r.GetStartRevision() != int64(last[i])+1 {
			t.Errorf("watch %d resumes with %v after revision %d", i, r, last[i])
		}
		one.send(created(0, int64(last[i])))
		one.change(0, int64(last[i])+1, fmt.Sprintf("/%c1", 'a'+i))
		all[i].expect(fmt.Sprintf("b%d×1", last[i]+1))
	}
}

// Two runs form in place of one, and etcd ends one of the two forming watches. The other one takes over for its
// range only, and the old run continues for the remaining ranges.
func TestOneOfTwoRunsForms(t *testing.T) {
	_, c, shared, all := sharing(t, 3)
	shared.progress(102)
	run := shared.forms(c, "/a", "/d", 102)
	shared.progress(103)
	shared.cancelled(1, 2, 3)
	all[1].stop()
	shared.progress(104)
	ids := map[string]int64{}
	for range 2 {
		r := shared.creates()
		shared.send(created(r.GetWatchId(), 104))
		ids[string(r.GetKey())] = r.GetWatchId()
	}
	shared.send(&etcdserverpb.WatchResponse{WatchId: ids["/c"], Canceled: true, CompactRevision: 150})
	shared.cancelled(ids["/c"])
	shared.progress(104)
	shared.change(ids["/a"], 105, "/a1")
	shared.change(run, 105, "/a1", "/c1")
	shared.change(run, 106, "/a1", "/c1")
	shared.change(ids["/a"], 106, "/a1")
	for revision := kv.Revision(105); revision <= 106; revision++ {
		for _, i := range []int{0, 2} {
			all[i].skip(revision, fmt.Sprintf("b%d×1", revision))
		}
	}
	if n := c.Stats(); n.LeftOther+n.LeftSlow != 0 {
		t.Errorf("stats: %+v", n)
	}
}
