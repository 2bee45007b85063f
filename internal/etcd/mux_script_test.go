package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// scripted is an etcd whose watch streams the test answers.
type scripted struct {
	fake
	streams chan *scriptedStream
}

// scriptedStream is one of its streams: the requests, and the function to answer.
type scriptedStream struct {
	t        *testing.T
	requests chan *etcdserverpb.WatchRequest
	etcdserverpb.Watch_WatchServer
}

func (s *scripted) Watch(stream etcdserverpb.Watch_WatchServer) error {
	one := &scriptedStream{requests: make(chan *etcdserverpb.WatchRequest, 1000), Watch_WatchServer: stream}
	s.streams <- one
	for {
		r, err := stream.Recv()
		if err != nil {
			close(one.requests)
			return err
		}
		one.requests <- r
	}
}

func startScripted(t *testing.T) (*scripted, *Client) {
	t.Helper()
	s := &scripted{streams: make(chan *scriptedStream, 100)}
	l, g := bufconn.Listen(1<<16), grpc.NewServer()
	etcdserverpb.RegisterKVServer(g, s)
	etcdserverpb.RegisterWatchServer(g, s)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	cfg := testConfig("scripted:1")
	cfg.ProgressIdle = time.Hour
	cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return s, newClient(t, cfg)
}

// opened returns the next opened stream.
func (s *scripted) opened(t *testing.T) *scriptedStream {
	t.Helper()
	select {
	case one := <-s.streams:
		one.t = t
		return one
	case <-time.After(patience):
		t.Fatal("no stream was opened")
		return nil
	}
}

// request returns the next request of a kind and skips other kinds. It returns nil if the stream ended.
func (s *scriptedStream) request(is func(*etcdserverpb.WatchRequest) bool) *etcdserverpb.WatchRequest {
	s.t.Helper()
	for {
		select {
		case r := <-s.requests:
			if r == nil || is(r) {
				return r
			}
		case <-time.After(patience):
			s.t.Fatal("the expected request did not arrive")
		}
	}
}

func (s *scriptedStream) creates() *etcdserverpb.WatchCreateRequest {
	s.t.Helper()
	return s.request(func(r *etcdserverpb.WatchRequest) bool { return r.GetCreateRequest() != nil }).GetCreateRequest()
}

func (s *scriptedStream) asks() {
	s.t.Helper()
	s.request(func(r *etcdserverpb.WatchRequest) bool { return r.GetProgressRequest() != nil })
}

func (s *scriptedStream) cancels() int64 {
	s.t.Helper()
	return s.request(func(r *etcdserverpb.WatchRequest) bool { return r.GetCancelRequest() != nil }).GetCancelRequest().GetWatchId()
}

// ends waits until the client has ended the stream.
func (s *scriptedStream) ends() {
	s.t.Helper()
	s.request(func(r *etcdserverpb.WatchRequest) bool { return false })
}

func (s *scriptedStream) send(r *etcdserverpb.WatchResponse) {
	s.t.Helper()
	if err := s.Send(r); err != nil {
		s.t.Error(err)
	}
}

// event sends one event to a watch.
func (s *scriptedStream) event(id, revision int64) {
	s.t.Helper()
	s.events(id, revision)
}

// events sends an event of each revision to a watch, in one response.
func (s *scriptedStream) events(id int64, revisions ...int64) {
	s.t.Helper()
	r := response(slices.Max(revisions), false, revisions...)
	r.WatchId = id
	s.send(r)
}

// progress sends the progress of all watches.
func (s *scriptedStream) progress(revision int64) {
	s.t.Helper()
	r := response(revision, false)
	r.WatchId = anyWatch
	s.send(r)
}

// expect takes updates, and fails unless they equal want, in the words of seen.
func (f *follower) expect(want string) {
	f.t.Helper()
	var got []string
	for range strings.Fields(want) {
		got = append(got, seen([]kv.Update{f.next()}))
	}
	if s := strings.Join(got, " "); s != want {
		f.t.Fatalf("got %q, want %q", s, want)
	}
}

// own follows from 101 at an etcd of revision 100, and returns the watch's own stream and the consumer, once the
// watch may share a stream.
func (s *scripted) own(t *testing.T, c *Client) (*scriptedStream, *quiet) {
	t.Helper()
	return s.ownOf(t, c, kv.Prefix("/"))
}

// ownOf is own for a range.
func (s *scripted) ownOf(t *testing.T, c *Client, r kv.Range) (*scriptedStream, *quiet) {
	t.Helper()
	q := &quiet{want: new(kv.Demand)}
	q.follower = follow(t, c, kv.FollowRequest{Range: r, From: 101, Want: q.want})
	private := s.opened(t)
	if r := private.creates(); r.GetStartRevision() != 101 || r.GetWatchId() != 0 {
		t.Fatalf("the first stream creates %v, want watch 0 from 101", r)
	}
	private.send(created(0, 100))
	q.begun(101)
	q.want.Ask(101)
	private.asks()
	private.progress(101)
	q.expect("p101")
	return private, q
}

// joined is own, followed by the move of the watch to the shared stream at revision 101. Without a shared stream,
// one is opened.
func (s *scripted) joined(t *testing.T, c *Client, shared *scriptedStream) (*scriptedStream, *quiet) {
	t.Helper()
	return s.joinedOf(t, c, shared, kv.Prefix("/"))
}

// joinedOf is joined for a range.
func (s *scripted) joinedOf(t *testing.T, c *Client, shared *scriptedStream, r kv.Range) (*scriptedStream, *quiet) {
	t.Helper()
	private, q := s.ownOf(t, c, r)
	if shared == nil {
		shared = s.opened(t)
	}
	shared.announce(c, shared.creates().GetWatchId(), 101)
	private.progress(101)
	private.ends()
	return shared, q
}

// announce announces a watch on the shared stream, and returns when the client has processed the announcement.
func (s *scriptedStream) announce(c *Client, id, revision int64) {
	s.t.Helper()
	c.muxes.mu.Lock()
	m := c.muxes.now
	c.muxes.mu.Unlock()
	m.mu.Lock()
	p := m.watches[id].places[0]
	m.mu.Unlock()
	s.send(created(id, revision))
	testkit.Eventually(s.t, "the client has processed the announcement", func() bool { return p.begins() == kv.Revision(revision) })
}

// A watch moves to the shared stream when it has all revisions up to its beginning there. Duplicates are skipped,
// and no event is missing.
func TestWatchMovesToTheSharedStream(t *testing.T) {
	s, c := startScripted(t)
	private, q := s.own(t, c)
	shared := s.opened(t)
	if r := shared.creates(); r.GetStartRevision() != 0 || r.GetWatchId() != 1 || string(r.GetKey()) != "/" || string(r.GetRangeEnd()) != "0" {
		t.Fatalf("the shared stream creates %v", r)
	}
	shared.announce(c, 1, 104) // etcd was at 102 when it created the watch
	shared.event(1, 103)
	shared.event(1, 104)
	shared.progress(104) // may have been requested before the creation
	shared.event(1, 105)
	shared.event(1, 106)
	for revision := int64(102); revision <= 105; revision++ {
		private.event(0, revision)
		q.expect(seen([]kv.Update{{Kind: kv.UpdateBatch, Revision: kv.Revision(revision), Batch: kv.Batch{Revision: kv.Revision(revision), Events: make([]kv.Event, 1)}}}))
		if revision == 104 {
			break
		}
	}
	private.ends()
	q.expect("b105×1 b106×1")
	shared.event(1, 107)
	q.want.Ask(109) // otherwise the progress does not wake the consumer
	shared.progress(109)
	q.expect("b107×1 p109")
	q.want.Ask(110)
	shared.asks()
	shared.progress(110)
	q.expect("p110")
	if n := c.Stats(); n.Joins != 1 || n.WatchesOpen != 1 || n.StreamsOpen != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// The progress of the shared stream does not apply to a watch that etcd has not announced there yet: etcd holds
// the events of that watch back until then.
func TestProgressBeforeTheAnnouncementIsOfTheOthers(t *testing.T) {
	s, c := startScripted(t)
	shared, first := s.joined(t, c, nil)
	private, second := s.own(t, c)
	id := shared.creates().GetWatchId()
	first.want.Ask(108)
	shared.progress(108) // requested before etcd created the second watch, at 109
	first.expect("p108")
	private.events(0, 103, 107, 109)
	second.expect("b103×1 b107×1 b109×1")
	shared.announce(c, id, 110)
	private.event(0, 110)
	second.expect("b110×1")
	private.ends()
	shared.event(id, 110)
	shared.event(id, 111)
	second.expect("b111×1")
	second.want.Ask(112)
	shared.asks()
	shared.progress(112)
	second.expect("p112")
}

// A watch may have received events on its own stream that are above its beginning on the shared stream. They are
// skipped there.
func TestWatchThatIsAheadMoves(t *testing.T) {
	s, c := startScripted(t)
	private, q := s.own(t, c)
	shared := s.opened(t)
	shared.announce(c, shared.creates().GetWatchId(), 101)
	private.events(0, 102, 103)
	q.expect("b102×1 b103×1")
	private.ends()
	shared.event(1, 102)
	shared.event(1, 103)
	shared.progress(103)
	shared.event(1, 104)
	q.expect("b104×1")
}

// etcd ends one watch of the shared stream as compacted. The client cancels that watch, so that the others get
// progress. The watch's own stream reports the reason to its consumer.
func TestOneWatchOfTheSharedStreamIsCompacted(t *testing.T) {
	s, c := startScripted(t)
	shared, first := s.joined(t, c, nil)
	_, second := s.joined(t, c, shared)
	shared.event(1, 102)
	first.expect("b102×1")
	shared.send(&etcdserverpb.WatchResponse{WatchId: 1, Canceled: true, CompactRevision: 150})
	if id := shared.cancels(); id != 1 {
		t.Errorf("watch %d is cancelled, want 1", id)
	}
	private := s.opened(t)
	if r := private.creates(); r.GetStartRevision() != 103 {
		t.Errorf("the watch resumes with %v, want revision 103", r)
	}
	private.send(created(0, 160))
	private.send(&etcdserverpb.WatchResponse{Canceled: true, CompactRevision: 150})
	var compacted *kv.CompactedError
	if err := first.failure(); !errors.As(err, &compacted) || *compacted != (kv.CompactedError{Requested: 103, Floor: 150}) {
		t.Errorf("the watch ended with %v", err)
	}
	shared.event(1, 103) // in transit when the watch ended
	shared.event(2, 161)
	second.expect("b161×1")
	if n := c.Stats(); n.LeftOther != 1 || n.Compacted != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// A watch that etcd has to catch up on the shared stream suppresses the progress of all its watches. The busiest
// watch leaves, and the others get progress.
func TestWatchThatSilencesTheSharedStreamLeaves(t *testing.T) {
	s, c := startScripted(t)
	shared, busy := s.joined(t, c, nil)
	_, other := s.joined(t, c, shared)
	other.want.Ask(1_000_000)
	last := kv.Revision(101) // of the busy watch
	private := func() *scriptedStream {
		for {
			shared.events(1, int64(last)+1, int64(last)+2)
			shared.event(2, int64(last)+2)
			for got := 0; got < 3; got++ {
				select {
				case u := <-busy.updates:
					if last++; u.Kind != kv.UpdateBatch || u.Revision != last {
						t.Fatalf("got %+v, want revision %d", u, last)
					}
				case u := <-other.updates:
					if u.Kind != kv.UpdateBatch {
						t.Fatalf("got %+v before etcd sent progress", u)
					}
				case one := <-s.streams:
					one.t = t
					return one
				case <-time.After(patience):
					t.Fatal("no watch leaves the shared stream")
				}
			}
		}
	}()
	if id := shared.cancels(); id != 1 {
		t.Fatalf("watch %d is cancelled, want 1", id)
	}
	if r := private.creates(); r.GetStartRevision() != int64(last)+1 {
		t.Errorf("the watch resumes with %v after its last revision", r)
	}
	private.send(created(0, int64(last)))
	private.event(0, int64(last)+1)
	busy.expect(fmt.Sprintf("b%d×1", last+1))
	shared.progress(int64(last) + 10)
	for u := other.next(); u.Kind != kv.UpdateProgress; u = other.next() {
	}
	if n := c.Stats(); n.LeftOther != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// A watch that etcd refuses on the shared stream stays on its own stream. The refusal carries no watch ID, so it
// applies to the watch whose creation is due to be answered next.
func TestWatchRefusedOnTheSharedStream(t *testing.T) {
	s, c := startScripted(t)
	shared, first := s.joined(t, c, nil)
	private, second := s.own(t, c)
	shared.creates()
	shared.send(&etcdserverpb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "etcdserver: permission denied"})
	testkit.Eventually(t, "the watch was refused", func() bool { return c.Stats().LeftOther == 1 })
	private.event(0, 102)
	second.expect("b102×1")
	first.want.Ask(103)
	shared.progress(103)
	shared.event(1, 104)
	first.expect("p103 b104×1")
	c.beginAgain()
	second.want.Ask(105)
	private.asks()
	private.progress(105)
	second.expect("p105")
	private.event(0, 106)
	second.expect("b106×1")
	if len(s.streams) > 0 {
		t.Error("a new stream was opened, although the watch was not refused because of its login")
	}
}

// etcd refuses a watch on the shared stream because the stream's login is too old. As it would refuse all later
// watches, too, all watches continue on separate streams, and then share one with a new login.
func TestSharedStreamOfAnOldLogin(t *testing.T) {
	s, c := startScripted(t)
	shared, first := s.joined(t, c, nil)
	private, second := s.own(t, c)
	shared.creates()
	shared.send(&etcdserverpb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "etcdserver: invalid auth token"})
	shared.ends()
	resumed := s.opened(t)
	if r := resumed.creates(); r.GetStartRevision() != 102 {
		t.Errorf("the watch resumes with %v, want revision 102", r)
	}
	resumed.send(created(0, 101))
	resumed.event(0, 102)
	first.expect("b102×1")
	private.event(0, 102)
	second.expect("b102×1")
	c.beginAgain()
	second.want.Ask(103)
	private.asks()
	private.progress(103)
	second.expect("p103")
	next := s.opened(t)
	next.announce(c, next.creates().GetWatchId(), 103)
	private.progress(103)
	private.ends()
	first.want.Ask(103)
	resumed.asks()
	resumed.progress(103)
	first.expect("p103")
	next.announce(c, next.creates().GetWatchId(), 103)
	resumed.progress(103)
	resumed.ends()
	next.event(1, 104)
	second.expect("b104×1")
	next.event(2, 105)
	first.expect("b105×1")
	if n := c.Stats(); n.StreamsOpen != 1 || n.WatchesOpen != 2 || n.LeftOther != 2 {
		t.Errorf("stats: %+v", n)
	}
}

// beginAgain lets the next shared stream begin at once.
func (c *Client) beginAgain() {
	c.muxes.mu.Lock()
	defer c.muxes.mu.Unlock()
	c.muxes.next = time.Time{}
}

// A watch shares a stream only with watches of its own history.
func TestSharedStreamIsOfOneHistory(t *testing.T) {
	s, c := startScripted(t)
	c.Adopt(1, kv.Mark{})
	shared, first := s.joined(t, c, nil)
	before, late := s.own(t, c)
	shared.creates() // not announced yet
	c.beginAgain()
	c.Adopt(2, kv.Mark{})
	if p := c.join(1, kv.Prefix("/"), make(chan kv.Revision, 1)); p != nil {
		t.Error("a watch of an earlier history joined a shared stream")
	}
	next, second := s.joined(t, c, nil)
	if next == shared {
		t.Error("watches of two histories share a stream")
	}
	shared.event(1, 102)
	first.expect("b102×1")
	next.event(1, 102)
	second.expect("b102×1")
	before.event(0, 102)
	late.expect("b102×1")
}

// Shared streams begin at limited intervals, however often they break.
func TestSharedStreamsBeginAtLimitedIntervals(t *testing.T) {
	s, c := startScripted(t)
	private, q := s.own(t, c)
	s.opened(t).send(created(99, 101)) // violates the protocol
	testkit.Eventually(t, "the shared stream has ended", func() bool { return c.Stats().StreamsOpen == 1 })
	for revision := int64(102); revision < 110; revision++ {
		q.want.Ask(kv.Revision(revision))
		private.asks()
		private.progress(revision)
		q.expect(seen([]kv.Update{{Kind: kv.UpdateProgress, Revision: kv.Revision(revision)}}))
	}
	c.muxes.mu.Lock()
	now := time.Now()
	late := now.After(c.muxes.next) // the machine is too slow for the next check
	c.muxes.mu.Unlock()
	if len(s.streams) > 0 && !late {
		t.Error("another shared stream began at once")
	}
	c.beginAgain()
	q.want.Ask(110)
	private.asks()
	private.progress(110)
	q.expect("p110")
	shared := s.opened(t)
	shared.announce(c, shared.creates().GetWatchId(), 110)
	private.progress(110)
	private.ends()
}

// If a consumer waits for a revision when its watch moves, the shared stream requests progress. So does the
// watch's own stream when the watch leaves.
func TestWantIsCarriedToTheSharedStream(t *testing.T) {
	s, c := startScripted(t)
	private, q := s.own(t, c)
	shared := s.opened(t)
	id := shared.creates().GetWatchId()
	q.want.Ask(105)
	private.asks() // for 105, which etcd has not reached
	shared.announce(c, id, 101)
	private.progress(101)
	private.ends()
	shared.asks() // for its first watch
	shared.progress(101)
	shared.asks()
	shared.progress(105)
	q.expect("p105")
	q.want.Ask(110)
	shared.asks()
	shared.send(&etcdserverpb.WatchResponse{WatchId: id, Canceled: true, CompactRevision: 5})
	private = s.opened(t)
	private.creates()
	private.send(created(0, 105))
	private.asks()
	private.progress(110)
	q.expect("p110")
}

// A consumer that waits for updates of the shared stream gets etcd's answer directly from the goroutine that
// receives it, and later events as updates.
func TestAnswersOfTheSharedStreamAreReportedDirectly(t *testing.T) {
	s, c := startScripted(t)
	direct := make(chan kv.Revision, 1)
	q := &quiet{want: new(kv.Demand)}
	q.follower = follow(t, c, kv.FollowRequest{
		Range: kv.Prefix("/"), From: 101, Want: q.want,
		Progress: func(revision kv.Revision) bool { direct <- revision; return true },
	})
	private := s.opened(t)
	private.send(created(0, 100))
	q.begun(101)
	q.want.Ask(101)
	private.asks()
	private.progress(101)
	q.expect("p101")
	shared := s.opened(t)
	id := shared.creates().GetWatchId()
	shared.announce(c, id, 101)
	private.progress(101)
	private.ends()
	revision := int64(102)
	testkit.Eventually(t, "progress is reported directly", func() bool {
		revision += 2
		q.want.Ask(kv.Revision(revision))
		shared.event(id, revision-1)
		q.expect(fmt.Sprintf("b%d×1", revision-1))
		shared.progress(revision)
		select {
		case got := <-direct:
			return got == kv.Revision(revision)
		case u := <-q.updates: // the consumer did not wait yet
			return u.Kind != kv.UpdateProgress
		}
	})
	shared.event(id, revision+1)
	q.expect(fmt.Sprintf("b%d×1", revision+1))
}

// After a restore of etcd under running watches, a shared stream delivers nothing of the new history.
func TestSharedStreamOfARestoredEtcd(t *testing.T) {
	s, c := startScripted(t)
	c.Adopt(1, kv.Mark{})
	private, q := s.own(t, c)
	shared := s.opened(t)
	id := shared.creates().GetWatchId()
	c.Adopt(1, kv.Mark{Revision: 500}) // a revision that etcd has not reached
	shared.send(created(id, 101))
	event := response(103, false, 103)
	event.WatchId = id
	_ = shared.Send(event) // the client may have ended the stream
	testkit.Eventually(t, "the restore is detected", func() bool { _, why, _ := c.Ended(); return why != nil })
	private.event(0, 102)
	q.expect("b102×1")
	private.event(0, 104)
	q.expect("b104×1")
	if n := c.Stats(); n.Joins != 0 {
		t.Errorf("stats: %+v", n)
	}
}
