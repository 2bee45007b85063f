package peerapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// session is the session ID of the tests.
const session = 77

// heartbeat is the heartbeat stream of another node.
type heartbeat struct {
	t   *testing.T
	rpc grpc.BidiStreamingClient[peerv1.BeatRequest, peerv1.BeatResponse]
	// By reported stream: its progress, and its newest revision with events up to that progress.
	progress, since map[uint64]kv.Revision
	reports         int // responses that report progress
}

func beat(t *testing.T, r *running, session uint64) *heartbeat {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	rpc, err := peerv1.NewPeerServiceClient(dial(t, r.peers)).Beat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h := &heartbeat{t: t, rpc: rpc, progress: make(map[uint64]kv.Revision), since: make(map[uint64]kv.Revision)}
	h.send(&peerv1.BeatRequest{Session: session})
	return h
}

func (h *heartbeat) send(m *peerv1.BeatRequest) {
	h.t.Helper()
	if err := h.rpc.Send(m); err != nil {
		h.t.Fatal(err)
	}
}

func (h *heartbeat) next() *peerv1.BeatResponse {
	h.t.Helper()
	m, err := h.rpc.Recv()
	if err != nil {
		h.t.Fatal(err)
	}
	if len(m.GetFollowIds()) > 0 {
		h.reports++
	}
	for i, id := range m.GetFollowIds() {
		h.progress[id] = kv.Revision(m.GetProgress() - m.GetBehind()[i])
		h.since[id] = h.progress[id] - kv.Revision(m.GetQuiet()[i])
	}
	return m
}

// until receives responses until the streams have reached a revision.
func (h *heartbeat) until(revision kv.Revision, ids ...uint64) {
	h.t.Helper()
	for _, id := range ids {
		for h.progress[id] < revision {
			h.next()
		}
	}
}

// shards returns a map of the shards a, b, c, … at one node. Each shard has the keys with its letter as prefix.
func shards(n int) *shard.Map {
	var cuts []string
	for i := range n - 1 {
		cuts = append(cuts, string(rune('b'+i)))
	}
	return cachetest.Map(1, cuts, "here")
}

// key returns a key of a shard.
func key(id int) string { return string(rune('a' + id - 1)) }

// followAll opens the streams of the shards from 1 to n, waits until they have begun, and returns their IDs.
func followAll(ctx context.Context, t *testing.T, r *running, session uint64, n int) (ids []uint64) {
	t.Helper()
	for id := 1; id <= n; id++ {
		sh, _ := r.node.Map().Shard(shard.ID(id))
		stream, _, err := r.follows(ctx, func(f *peerv1.FollowRequest) {
			f.Key, f.RangeEnd = sh.Range.Etcd()
			f.ShardId, f.Session, f.FollowId = uint64(id), session, uint64(id)
		})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetEnd() == nil {
			t.Fatalf("%v, %v: want the end of the beginning", m, err)
		}
		ids = append(ids, uint64(id))
	}
	return ids
}

// The answer to each ping has the node's last read of etcd.
func TestHeartbeatsAreAnswered(t *testing.T) {
	r := start(t, cachetest.New(), options{})
	beats, err := peerv1.NewPeerServiceClient(dial(t, r.peers)).Beat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for ping := int64(1); ping <= 10; ping++ {
		if err := beats.Send(&peerv1.BeatRequest{PingNanos: ping}); err != nil {
			t.Fatal(err)
		}
		switch b, err := beats.Recv(); {
		case err != nil:
			t.Fatal(err)
		case b.GetPongNanos() != ping:
			t.Errorf("ping %d is answered with %v", ping, b)
		case kv.Revision(b.GetEtcdRevision()) != looked.Revision || b.GetLineage() != looked.Lineage || b.GetEtcdAge().AsDuration() < 60e9:
			t.Errorf("got %v, want the last read of etcd, a minute old", b)
		}
	}
}

// One request brings all shards of a pair to a revision, and one response reports them, however many they are. A
// shard is reported with its newest events.
func TestOneAnswerForAllShardsOfAPair(t *testing.T) {
	const n = 16
	h := cachetest.New()
	r := start(t, h, options{shards: shards(n)})
	b := beat(t, r, session)
	ids := followAll(t.Context(), t, r, session, n)
	b.until(cachetest.Start, ids...)
	const writes = 50
	before := b.reports
	newest := make(map[uint64]kv.Revision)
	for i := range writes {
		id := i*7%n + 1
		at := h.Commit(cachetest.Put(key(id), fmt.Sprint(i)))
		newest[uint64(id)] = at
		b.send(&peerv1.BeatRequest{WantProgress: int64(at)})
		m := b.next()
		for _, id := range ids {
			if newest[id] == at { // the stream brings the events
				if b.progress[id] >= at {
					t.Fatalf("the shard with events at %d is reported with progress %d before its events arrive", at, b.progress[id])
				}
				continue
			}
			// The answer does not wait for every shard: on a busy machine a second answer reports the last shards.
			b.until(at, id)
			if b.since[id] != newest[id] && (newest[id] != 0 || b.since[id] > cachetest.Start) {
				t.Fatalf("at %d: shard %d is reported with its newest events at %d, want %d", at, id, b.since[id], newest[id])
			}
		}
		if m.GetPongNanos() != 0 || m.GetEtcdRevision() != 0 {
			t.Errorf("the answer to a request for progress has the fields of an answer to a ping: %v", m)
		}
	}
	if got := b.reports - before; got < writes || got > writes+writes/2 {
		t.Errorf("%d responses to %d requests for the progress of %d shards", got, writes, n)
	}
}

// The answer to the next ping reports the progress of quiet shards.
func TestPingsBringProgress(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	b := beat(t, r, session)
	followAll(t.Context(), t, r, session, 1)
	b.until(cachetest.Start, 1)
	elsewhere := h.Commit(cachetest.Put("z", "1"))
	home := r.node.Replica(1)
	if err := home.WaitProgress(t.Context(), elsewhere); err != nil { // a request of another waiter
		t.Fatal(err)
	}
	b.send(&peerv1.BeatRequest{PingNanos: 5})
	b.until(elsewhere, 1)
	b.send(&peerv1.BeatRequest{PingNanos: 6})
	if m := b.next(); m.GetPongNanos() != 6 || len(m.GetFollowIds()) > 0 || m.GetProgress() != 0 {
		t.Errorf("%v: a shard without new progress is reported again", m)
	}
}

// After a request for it, the node pushes progress: once for all shards of a pair, as soon as all of them have
// advanced. A ping ends the pushes.
func TestProgressIsPushedWhileItIsWanted(t *testing.T) {
	const n = 16
	h := cachetest.New()
	r := start(t, h, options{shards: shards(n + 1)})
	b := beat(t, r, session)
	ids := followAll(t.Context(), t, r, session, n)
	b.until(cachetest.Start, ids...)
	commit := func() kv.Revision { // to a shard that is not followed
		at := h.Commit(cachetest.Put(key(n+1), "1"))
		for id := range shard.ID(n) {
			if err := r.node.Replica(id+1).WaitProgress(t.Context(), at); err != nil { // a request of another waiter
				t.Fatal(err)
			}
		}
		return at
	}
	ping := func(nanos int64, push bool) (reports int) {
		before := b.reports
		b.send(&peerv1.BeatRequest{PingNanos: nanos, Push: push})
		for b.next().GetPongNanos() != nanos {
		}
		return b.reports - before
	}
	commit()
	if got := ping(1, false); got != 1 {
		t.Errorf("%d reports without a request, want only that in the answer to the ping", got)
	}
	at := commit()
	b.send(&peerv1.BeatRequest{WantProgress: int64(at)})
	b.until(at, ids...)
	for nanos := int64(2); nanos < 4; nanos++ {
		before := b.reports
		for range 20 {
			at = commit()
			if m := b.next(); m.GetReached() != int64(at) || len(m.GetFollowIds()) != n {
				t.Fatalf("at %d: %v, want all shards", at, m)
			}
		}
		if got := b.reports - before; got != 20 {
			t.Errorf("%d reports of 20 revisions, want one of each", got)
		}
		ping(nanos, true)
	}
	r.node.Gate(2).Limit(at)
	last := h.Commit(cachetest.Put(key(n+1), "2"))
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	b.send(&peerv1.BeatRequest{PingNanos: 5})
	if m := b.next(); m.GetPongNanos() != 5 || m.GetReached() != int64(at) {
		t.Errorf("%v: want the answer to the ping, with one shard at %d", m, at)
	}
	r.node.Gate(2).Limit(0)
	commit()
	if got := ping(6, false); got != 1 {
		t.Errorf("%d reports after the ping that ends the pushes, want only that in its answer", got)
	}
}

// A shard that cannot reach a revision does not delay the other shards. It is reported once it reaches the
// revision.
func TestALateShardIsReportedLater(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{shards: shards(4)})
	b := beat(t, r, session)
	ids := followAll(t.Context(), t, r, session, 3)
	b.until(cachetest.Start, ids...)
	for range 3 {
		was := h.Now()
		r.node.Gate(2).Limit(was)
		at := h.Commit(cachetest.Put("d", "1"))
		b.send(&peerv1.BeatRequest{WantProgress: int64(at)})
		b.until(at, 1, 3)
		next := h.Commit(cachetest.Put("d", "2"))
		b.send(&peerv1.BeatRequest{WantProgress: int64(next)})
		b.until(next, 1, 3)
		if b.progress[2] > was {
			t.Fatalf("the shard that was held at %d is reported with progress %d", was, b.progress[2])
		}
		r.node.Gate(2).Limit(0)
		b.until(next, 2)
	}
}

// A stream that begins later gets the earlier request of its pair. A stream that has ended is no longer reported.
// The heartbeat may begin after the streams.
func TestStreamsComeAndGo(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{shards: shards(2)})
	ctx, leave := context.WithCancel(t.Context())
	followAll(ctx, t, r, session, 2)
	b := beat(t, r, session)
	at := h.Commit(cachetest.Put("a", "1"))
	b.send(&peerv1.BeatRequest{WantProgress: int64(at)})
	b.until(at, 2)
	leave()
	r.node.Gate(1).Limit(at)
	testkit.Eventually(t, "the streams end", func() bool {
		return r.node.Replica(1).Status().Watchers == 0 && r.node.Replica(2).Status().Watchers == 0
	})
	next := h.Commit(cachetest.Put("b", "1"))
	b.send(&peerv1.BeatRequest{WantProgress: int64(next)})
	b.send(&peerv1.BeatRequest{PingNanos: 9})
	clear(b.progress)
	for b.next().GetPongNanos() != 9 {
	}
	r.node.Gate(1).Limit(0)
	stream, _, err := r.follows(t.Context(), func(f *peerv1.FollowRequest) {
		sh, _ := r.node.Map().Shard(1)
		f.Key, f.RangeEnd = sh.Range.Etcd()
		f.FromRevision, f.Session, f.FollowId = int64(at)+1, session, 8
	})
	if err != nil || stream == nil {
		t.Fatal(err)
	}
	b.until(next, 8)
	if b.progress[1] != 0 || b.progress[2] != 0 {
		t.Errorf("streams that have ended are reported: %v", b.progress)
	}
}

// A stream that its follower closes before it has the whole state leaves no watcher, which would keep the cache
// busy for ever.
func TestAStreamThatEndsEarlyLeavesNoWatcher(t *testing.T) {
	h := cachetest.New()
	for i := range 64 { // more than the flow control windows of the connection hold
		h.Commit(cachetest.Put(fmt.Sprint("a", i), strings.Repeat("x", 256<<10)))
	}
	r := start(t, h, options{})
	ctx, leave := context.WithCancel(t.Context())
	_, m, err := r.follows(ctx, func(f *peerv1.FollowRequest) { f.FromRevision, f.WantState = 0, true })
	if err != nil || m.GetBegin() == nil {
		t.Fatalf("%v, %v; want the beginning", m, err)
	}
	home := r.node.Replica(1)
	if n := home.Status().Watchers; n != 1 {
		t.Fatalf("%d watchers while the state is sent, want 1", n)
	}
	leave()
	testkit.Eventually(t, "the watcher ends", func() bool { return home.Status().Watchers == 0 })
}

// Progress is reported only to the session of the streams, and not without a session. A session has at most one
// heartbeat.
func TestSessionsAreApart(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{shards: shards(2)})
	b, other, none := beat(t, r, session), beat(t, r, session+1), beat(t, r, 0)
	followAll(t.Context(), t, r, session, 2)
	followAll(t.Context(), t, r, 0, 2)
	at := h.Commit(cachetest.Put("a", "1"))
	b.send(&peerv1.BeatRequest{WantProgress: int64(at)})
	b.until(at, 2)
	for name, x := range map[string]*heartbeat{"another": other, "none": none} {
		x.send(&peerv1.BeatRequest{WantProgress: int64(at)})
		x.send(&peerv1.BeatRequest{PingNanos: 9})
		for x.next().GetPongNanos() != 9 {
		}
		if len(x.progress) > 0 {
			t.Errorf("%s session gets the progress %v", name, x.progress)
		}
	}
	if _, err := beat(t, r, session).rpc.Recv(); !errors.As(wire.Error(err), new(*kv.InvalidError)) {
		t.Errorf("a second heartbeat of the session: %v, want InvalidError", err)
	}
}

// The events of a shard without reads at the follower are sent together, with the next ping. After a request for
// progress, after a ping that does not list the stream, and after the end of the heartbeat, they and all later
// events are sent at once. Otherwise they are sent when they exceed a size. No events are lost.
func TestIdleStreamsAreSentLater(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	b := beat(t, r, session)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	stream, _, err := r.follows(ctx, func(f *peerv1.FollowRequest) {
		f.Session, f.FollowId, f.AcceptSeveral = session, 1, true
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func() (revisions []int64) {
		t.Helper()
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.GetEvents() {
			revisions = append(revisions, e.GetKv().GetModRevision())
		}
		return revisions
	}
	// together reads revisions from at most two messages: when the stream is asked to hold events back, it may be
	// sending, and then also sends the events that arrive meanwhile.
	together := func(when string, want []int64) {
		t.Helper()
		got := next()
		if len(got) < len(want) {
			got = append(got, next()...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: two messages have %v, want %v", when, got, want)
		}
	}
	next() // the end of the beginning
	b.until(cachetest.Start, 1)
	home := r.node.Replica(1)
	commit := func(n, size int) (revisions []int64) {
		t.Helper()
		for range n {
			at := h.Commit(cachetest.Put("a", strings.Repeat("v", size)))
			if err := home.WaitProgress(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			revisions = append(revisions, int64(at))
		}
		return revisions
	}
	pings := int64(0)
	ping := func(idle ...uint64) {
		t.Helper()
		pings++
		b.send(&peerv1.BeatRequest{PingNanos: pings, IdleFollowIds: idle})
		for b.next().GetPongNanos() != pings { // until the answer, which shows that the ping was processed
		}
	}
	for name, flush := range map[string]func(){
		"the next ping":           func() { ping(1) },
		"a ping without its name": func() { ping() },
		"a question":              func() { b.send(&peerv1.BeatRequest{WantProgress: int64(h.Now())}) },
	} {
		ping(1)
		want := commit(20, 10)
		if streams, bytes := r.service.HeldBack(); streams != 1 || bytes < 20*10 {
			t.Fatalf("%d streams hold back %d bytes, want one with all", streams, bytes)
		}
		flush()
		together(name, want)
		ping()
		for range 3 {
			if got, want := next, commit(1, 10); !slices.Equal(got(), want) {
				t.Fatalf("after %s: revisions %v were not sent at once", name, want)
			}
		}
		if streams, bytes := r.service.HeldBack(); streams != 0 || bytes != 0 {
			t.Fatalf("after %s: %d streams hold back %d bytes", name, streams, bytes)
		}
	}
	ping(1)
	for want := commit(100, 10_000); len(want) > 0; {
		got := next()
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if want = want[len(got):]; len(want) < 26 { // less than the bound: with the next ping
			ping(1)
		}
	}
	want := commit(20, 10)
	if err := b.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	together("without pings", want)
}
