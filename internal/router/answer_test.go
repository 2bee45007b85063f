package router_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// An answer at another revision than the read's is rejected, because its keys would be
// mixed with keys of the read's revision.
func TestAnAnswerAtAnotherRevisionIsRefused(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[1].Replicas = []shard.NodeID{"y"}
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			req.Revision--
			return n.lists(1, -1)(0, req)
		}
		at := n.h.Now()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys(t, g, nothing); err == nil || got != "" || g.Revision != at {
			t.Errorf("accepted %q at revision %d, %v; the read is at %d", got, g.Revision, err, at)
		}
	})
}

// An answer that ends without a message is a failure, not an empty shard: the next node is asked.
func TestAnAnswerWithoutAMessageIsNoEmptyShard(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.x.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) { return nil, nil }
		n.pretend.Shards[1].Replicas = []shard.NodeID{"x"}
		for _, req := range []router.ReadRequest{{Range: away}, {Range: away, Serializable: true}} {
			g, err := n.r.Read(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := keys(t, g, nothing); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v", err)
			}
			if _, err := g.Changes(t.Context(), n.h.Now()-1); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("changes: got %v", err)
			}
		}
		n.pretend.Shards[1].Replicas = []shard.NodeID{"x", "y"}
		g, err := n.r.Read(t.Context(), router.ReadRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "abcdefghij" {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// If a stream cannot be opened or the request cannot be sent, the next node is asked. If
// the node has sent the cause of the failure, the error reports it.
func TestANodeThatDoesNotTakeTheRequest(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		list := func() (string, error) {
			g, err := n.r.Read(t.Context(), router.ReadRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return keys(t, g, nothing)
		}
		down := status.Error(codes.Unavailable, "x is down")
		for what, fail := range map[string]func(err error){
			"opening": func(err error) { n.x.refuses, n.x.sends = err, nil },
			"sending": func(err error) { n.x.refuses, n.x.sends = nil, err },
		} {
			fail(down)
			n.pretend.Shards[1].Replicas = []shard.NodeID{"x", "y"}
			if got, err := list(); err != nil || got != "abcdefghij" {
				t.Errorf("%s fails at the first node: %s, %v", what, got, err)
			}
			n.pretend.Shards[1].Replicas = []shard.NodeID{"x"}
			got, err := list()
			unavailable(t, what, err, kv.NotReady, "node x does not answer")
			if got != "abc" {
				t.Errorf("%s fails: got %s before the failure", what, got)
			}
		}
		n.x.refuses, n.x.sends = nil, io.EOF
		n.x.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, wire.Status(&kv.CompactedError{Requested: 3, Floor: 12})
		}
		_, err := list()
		unavailable(t, "a node that refuses while the request is sent", err, kv.NotReady, "revision 3 is gone")
	})
}

// A local copy of another lineage than the map's is not read; the router asks a node with
// the map's lineage instead.
func TestACopyOfAnotherLineageIsReadFromAnotherNode(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		if g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst}); err != nil || !g.Here() {
			t.Errorf("a matching copy is not read locally: %v", err)
		}
		n.pretend.Lineage = 2
		n.pretend.Shards[0].Replicas = []shard.NodeID{"here", "y"}
		n.y.answer = n.lists(2, -1)
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst})
		if err != nil || g.Here() || g.Lineage != 2 {
			t.Fatalf("%+v, %v", g, err)
		}
		if got, err := keys(t, g, nothing); err != nil || got != "abc" || len(n.y.asked) != 1 {
			t.Errorf("%s, %v; y was asked %d times", got, err, len(n.y.asked))
		}
	})
}

// After the caller has disconnected, no other node is asked, neither for a local shard nor
// for a remote one.
func TestNoNodeIsAskedAfterTheCallerDisconnects(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		gone, cancel := context.WithCancel(t.Context())
		n.pretend.Shards[0].Replicas = []shard.NodeID{"here", "y"}
		n.Gate(1).Limit(n.h.Now())
		at := n.h.Commit(cachetest.Put("b", "new"))
		n.x.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			cancel()
			return nil, status.Error(codes.Unavailable, "x is away")
		}
		g, err := n.r.Read(gone, router.ReadRequest{Range: away, Revision: at, Exists: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Each(gone, nothing, func([]*kv.KeyValue) error { return nil }); err == nil || len(n.y.asked) > 0 {
			t.Errorf("%v; y was asked %d times", err, len(n.y.asked))
		}
		if _, err := n.r.Read(gone, router.ReadRequest{Range: inFirst, Revision: at, Exists: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("of a late local shard: %v", err)
		}
	})
}

// A read of a copy that stays retired fails after a second, or at once when its caller disconnects.
func TestACopyThatStaysRetired(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.Stop()
		synctest.Wait()
		began := time.Now()
		_, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst})
		unavailable(t, "of a copy that is retired", err, kv.NotReady, "shard 1")
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("gave up after %v", took)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began = time.Now()
		if _, err := n.r.Read(gone, router.ReadRequest{Range: inFirst}); err == nil || time.Since(began) > time.Millisecond {
			t.Errorf("a disconnected caller waits %v: %v", time.Since(began), err)
		}
	})
}

// Late shards are asked for the revision concurrently, so that one does not delay the others.
func TestShardsThatAreBehindCatchUpConcurrently(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.Gate(1).Limit(n.h.Now())
		at := n.h.Commit(cachetest.Put("e", "new"))
		done := make(chan error)
		go func() {
			_, err := n.r.Read(t.Context(), router.ReadRequest{})
			done <- err
		}()
		synctest.Wait()
		if first, third := n.Replica(1).Progress(), n.Replica(3).Progress(); first >= at || third != at {
			t.Errorf("while shard 1 is late at %d, shard 3 is at %d, want %d", first, third, at)
		}
		n.Gate(1).Limit(0)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// If a local shard no longer has the state at the revision of a reading, its changes come from another node. A
// compaction error for another revision than since+1 is returned unchanged.
func TestChangesAtARevisionThatIsGoneLocally(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[0].Replicas = []shard.NodeID{"here", "y"}
		since := n.h.Now()
		at := n.h.Commit(cachetest.Put("b", "1"))
		n.h.Commit(cachetest.Put("b", "2"))
		synctest.Wait()
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return []*wire.Encoded{wire.ListChunk(at, lineage(1), n.h.State(kv.Single("b"), at)), wire.ListEnd(at, lineage(1), nil, -1, -1)}, nil
		}
		// Enough writes make the copy drop the state at the revision at.
		for range 3 {
			n.h.Commit(cachetest.Put("a", "3"))
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst, Revision: at})
		if err != nil {
			t.Fatal(err)
		}
		if g.Here() {
			t.Fatal("the test needs the local copy to drop the state")
		}
		b, err := g.Changes(t.Context(), since)
		if err != nil {
			t.Fatal(err)
		}
		if changed, _, _ := content(t, b, 1<<20); !slices.Equal(changed, []string{"b"}) || len(n.y.asked) != 1 {
			t.Errorf("%v; y was asked %d times", changed, len(n.y.asked))
		}
	})
}

// Reads whose revision is chosen by another node share no fetch, because one may allow
// older data than the other. Counts and single keys do not wait for big lists.
func TestReadsThatAreNotShared(t *testing.T) {
	herd(t, func(t *testing.T, r *router.Router, e *elsewhere, h *cachetest.Script) {
		e.let = make(chan error)
		done := make(chan error, 10)
		ask := func(req router.ReadRequest, o router.ScanOptions) {
			go func() {
				_, _, err := scan(t.Context(), r, req, o)
				done <- err
			}()
			synctest.Wait()
		}
		asked := func(what string, want int64) {
			t.Helper()
			if got := e.asks.Swap(0); got != want {
				t.Errorf("%s: the other node was asked %d times, want %d", what, got, want)
			}
		}
		serializable := router.ReadRequest{Range: away, Serializable: true, MaxStaleness: router.AnyAge}
		ask(serializable, router.ScanOptions{})
		ask(serializable, router.ScanOptions{})
		asked("two serializable reads", 2)
		for i := range kv.Revision(2) {
			ask(router.ReadRequest{Range: away, Revision: h.Now() - i, Exists: true}, router.ScanOptions{})
		}
		asked("two big lists", 2)
		at := router.ReadRequest{Range: away, Revision: h.Now() - 2, Exists: true}
		ask(at, router.ScanOptions{Limit: -1})
		asked("a count", 1)
		at.Range = kv.Single("e")
		ask(at, router.ScanOptions{})
		asked("a single key", 1)
		at.Range = away
		ask(at, router.ScanOptions{Limit: 10_000})
		asked("the largest list that is a small one", 1)
		ask(at, router.ScanOptions{Limit: 10_001})
		asked("the smallest that is a big one", 0)
		for range 8 {
			e.let <- nil
			synctest.Wait()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// An error of the reader ends a scan of a single key, local and remote.
func TestAScanOfASingleKeyEndsWithTheReader(t *testing.T) {
	herd(t, func(t *testing.T, r *router.Router, _ *elsewhere, _ *cachetest.Script) {
		stop := errors.New("enough")
		for _, key := range []string{"a", "e"} {
			g, err := r.Read(t.Context(), router.ReadRequest{Range: kv.Single(key)})
			if err != nil {
				t.Fatal(err)
			}
			if g.Here() != (key == "a") {
				t.Errorf("%s: local %v", key, g.Here())
			}
			if _, err := g.Scan(t.Context(), router.ScanOptions{}, func(*kv.KeyValue) error { return stop }); !errors.Is(err, stop) {
				t.Errorf("%s: %v", key, err)
			}
			if n, err := g.Scan(t.Context(), router.ScanOptions{Limit: -1}, func(*kv.KeyValue) error { return stop }); err != nil || n != 1 {
				t.Errorf("%s counted: %d, %v", key, n, err)
			}
		}
	})
}

// A node that takes the request and does not answer, because it is stopped, delays a read by a second if another
// node answers, and by three seconds if none does.
func TestANodeThatHangsDoesNotHoldUpReads(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		took := func(what, want string, read func(*router.Reading) (string, error), d time.Duration) error {
			t.Helper()
			n.x.asked, n.y.asked = nil, nil
			g, err := n.r.Read(t.Context(), router.ReadRequest{Range: kv.Range{Start: "a", End: "h"}})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			got, err := read(g)
			if (err == nil) != (want != "") || err == nil && got != want || time.Since(began) != d {
				t.Errorf("%s: %q, %v after %v, want %q after %v", what, got, err, time.Since(began), want, d)
			}
			return err
		}
		list := func(g *router.Reading) (string, error) { return keys(t, g, nothing) }
		hold := func(g *router.Reading) (string, error) {
			b, err := g.Hold(t.Context())
			if err != nil {
				return "", err
			}
			changed, _, _ := content(t, b, 1000)
			return strings.Join(changed, ""), nil
		}
		n.x.answer, n.x.delay = n.lists(1, -1), time.Hour
		_ = took("x hangs", "abcdefg", list, time.Second)
		_ = took("x hangs, shared", "abcdefg", hold, time.Second)
		_ = took("x hangs, twice in one reading", "abcdefgabcdefg", func(g *router.Reading) (string, error) {
			first, err := list(g)
			second, again := list(g)
			return first + second, errors.Join(err, again)
		}, time.Second) // y is asked first from then on

		n.y.delay = 600 * time.Millisecond // three messages, and the end
		_ = took("the answer takes longer than its first message may", "abcdefg", list, time.Second+4*n.y.delay)
		n.y.delay = 1900 * time.Millisecond // it waits until it has reached the revision
		_ = took("the last node gets the rest of the time", "abcdefg", list, time.Second+4*n.y.delay)
		n.x.delay, n.y.delay = 1500*time.Millisecond, 0
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, status.Error(codes.Unavailable, "y is away")
		}
		_ = took("a late node is asked again if the others fail", "abcdefg", list, time.Second+4*n.x.delay)

		n.x.delay, n.y.delay = time.Hour, time.Hour
		err := took("both hang", "", list, 3*time.Second)
		unavailable(t, "both hang", err, kv.NotReady, "does not answer: it has sent nothing for 2s")
		err = took("both hang, shared", "", hold, 3*time.Second)
		unavailable(t, "both hang, shared", err, kv.NotReady, "does not answer")
		if len(n.x.asked) != 1 || len(n.y.asked) != 1 {
			t.Errorf("x was asked %d times and y %d times", len(n.x.asked), len(n.y.asked))
		}
	})
}

// A node that stops in the middle of its answer fails the read: a part of the answer has been used.
func TestANodeThatHangsInItsAnswer(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.x.answer = n.lists(1, -1)
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: away})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = g.Each(t.Context(), nothing, func([]*kv.KeyValue) error {
			n.x.delay = time.Hour
			time.Sleep(10 * time.Second) // a slow reader does not count
			return nil
		})
		unavailable(t, "x hangs", err, kv.NotReady, "node x does not answer: it has sent nothing for 3s")
		if took := time.Since(began); took != 13*time.Second || len(n.y.asked) > 0 {
			t.Errorf("after %v; y was asked %d times", took, len(n.y.asked))
		}
	})
}
