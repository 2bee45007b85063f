package memetcd_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
	"github.com/shardwatch/shardwatch/internal/testing/sim/memetcd"
)

const addr = "etcd:2379"

// world is a bubble with an etcd and a client's connection to it.
type world struct {
	*testing.T
	net  *sim.Network
	etcd *memetcd.Server
	conn *grpc.ClientConn
	kv   pb.KVClient
}

func inBubble(t *testing.T, test func(world)) {
	synctest.Test(t, func(t *testing.T) {
		w := world{T: t, net: sim.NewNetwork()}
		w.net.SetLatency(time.Millisecond)
		cfg := memetcd.Defaults()
		cfg.Listen = func() (net.Listener, error) { return w.net.Listen(addr) }
		var err error
		if w.etcd, err = memetcd.New(cfg); err != nil {
			t.Fatal(err)
		}
		if err := w.etcd.Start(); err != nil {
			t.Fatal(err)
		}
		defer w.etcd.Stop()
		w.conn, err = grpc.NewClient("passthrough:///"+addr,
			grpc.WithContextDialer(w.net.Dialer("client")),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer w.conn.Close()
		w.kv = pb.NewKVClient(w.conn)
		test(w)
	})
}

func (w world) put(key, value string) {
	w.Helper()
	if _, err := w.etcd.Put(key, value); err != nil {
		w.Fatal(err)
	}
}

// watch opens a stream with one watch, and waits until it is created.
func (w world) watch(r *pb.WatchCreateRequest) pb.Watch_WatchClient {
	w.Helper()
	st, err := pb.NewWatchClient(w.conn).Watch(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if err := st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		w.Fatal(err)
	}
	if resp := w.recv(st); !resp.Created {
		w.Fatalf("not created: %v", resp)
	}
	return st
}

func (w world) recv(st pb.Watch_WatchClient) *pb.WatchResponse {
	w.Helper()
	resp, err := st.Recv()
	if err != nil {
		w.Fatal(err)
	}
	return resp
}

func (w world) askProgress(st pb.Watch_WatchClient) {
	w.Helper()
	if err := st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
		w.Fatal(err)
	}
}

func (w world) wantCode(err error, want codes.Code) {
	w.Helper()
	if status.Code(err) != want {
		w.Fatalf("got %v; want %v", err, want)
	}
}

func TestPauseHoldsAnswersAndEventsBack(t *testing.T) {
	inBubble(t, func(w world) {
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		w.etcd.Pause()
		w.put("k", "1")
		start := time.Now()
		time.AfterFunc(time.Hour, w.etcd.Resume)

		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err := w.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		w.wantCode(err, codes.DeadlineExceeded)

		resp, err := w.kv.Range(w.Context(), &pb.RangeRequest{Key: []byte("k")})
		if err != nil || resp.Count != 1 {
			w.Fatal(resp, err)
		}
		if d := time.Since(start); d < time.Hour {
			w.Fatalf("answered after %v while paused", d)
		}
		if ev := w.recv(st); ev.Header.Revision != 2 {
			w.Fatal(ev)
		}
	})
}

func TestStopBreaksConnectionsAndStartKeepsTheData(t *testing.T) {
	inBubble(t, func(w world) {
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		before, err := w.kv.Put(w.Context(), &pb.PutRequest{Key: []byte("k")})
		if err != nil {
			w.Fatal(err)
		}
		w.recv(st)
		w.etcd.Stop()
		w.etcd.Stop() // a second Stop is allowed
		_, err = st.Recv()
		w.wantCode(err, codes.Unavailable)
		_, err = w.kv.Range(w.Context(), &pb.RangeRequest{Key: []byte("k")})
		w.wantCode(err, codes.Unavailable)
		if open, _ := w.etcd.Watches(); open != 0 {
			w.Fatalf("%d watches open", open)
		}
		w.put("k", "written while it was away")
		if err := w.etcd.Start(); err != nil {
			w.Fatal(err)
		}
		got, err := w.kv.Range(w.Context(), &pb.RangeRequest{Key: []byte("k")}, grpc.WaitForReady(true))
		if err != nil || got.Header.Revision != 3 || got.Kvs[0].Version != 2 {
			w.Fatal(got, err)
		}
		if got.Header.RaftTerm <= before.Header.RaftTerm || got.Header.MemberId != before.Header.MemberId {
			w.Fatal(got.Header, before.Header)
		}
		st = w.watch(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 3})
		if ev := w.recv(st); string(ev.Events[0].Kv.Value) != "written while it was away" {
			w.Fatal(ev)
		}
	})
}

func TestDelayedWatchDropsProgressRequests(t *testing.T) {
	inBubble(t, func(w world) {
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		w.etcd.SetWatchDelay(time.Minute)
		w.put("k", "1")
		start := time.Now()
		w.askProgress(st) // dropped: the watch lacks revision 2
		if ev := w.recv(st); len(ev.Events) != 1 || time.Since(start) < time.Minute {
			w.Fatalf("%v after %v", ev, time.Since(start))
		}
		w.askProgress(st)
		if p := w.recv(st); len(p.Events) != 0 || p.WatchId != -1 || p.Header.Revision != 2 {
			w.Fatal(p)
		}
	})
}

func TestDroppedProgressRequests(t *testing.T) {
	inBubble(t, func(w world) {
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		w.etcd.DropProgress(true)
		w.askProgress(st)
		time.Sleep(time.Second)
		w.etcd.DropProgress(false)
		w.put("k", "1")
		if ev := w.recv(st); len(ev.Events) != 1 {
			w.Fatal(ev)
		}
	})
}

func TestCompactEndsWatchesInThePast(t *testing.T) {
	inBubble(t, func(w world) {
		for range 10 {
			w.put("k", "")
		}
		if err := w.etcd.Compact(8); err != nil {
			w.Fatal(err)
		}
		if err := w.etcd.Compact(8); err == nil {
			w.Fatal("compacted twice")
		}
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 7})
		if resp := w.recv(st); !resp.Canceled || resp.CompactRevision != 8 {
			w.Fatal(resp)
		}
		_, err := w.kv.Range(w.Context(), &pb.RangeRequest{Key: []byte("k"), Revision: 7})
		w.wantCode(err, codes.OutOfRange)
		if rev := w.etcd.CompactRevision(); rev != 8 {
			w.Fatal(rev)
		}
	})
}

// etcd reports progress every ten minutes to watches that request it, unless they had events since.
func TestProgressNotify(t *testing.T) {
	inBubble(t, func(w world) {
		start := time.Now()
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k"), ProgressNotify: true})
		w.put("other", "")
		for _, want := range []time.Duration{10 * time.Minute, 20 * time.Minute} {
			p := w.recv(st)
			if d := time.Since(start).Truncate(time.Minute); len(p.Events) != 0 || p.WatchId != 0 || p.Header.Revision != 2 || d != want {
				w.Fatalf("%v after %v", p, d)
			}
		}
		w.put("k", "")
		w.recv(st)
		if p := w.recv(st); p.Header.Revision != 3 || time.Since(start) < 40*time.Minute {
			w.Fatalf("%v after %v", p, time.Since(start))
		}
	})
}

// A host that falls silent is detected by keepalive alone: 10 s until the ping, 3 s for its answer.
func TestKeepaliveDetectsSilence(t *testing.T) {
	inBubble(t, func(w world) {
		st := w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		start := time.Now()
		w.net.Silence("etcd")
		_, err := st.Recv()
		w.wantCode(err, codes.Unavailable)
		if d := time.Since(start); d < 10*time.Second || d > 30*time.Second {
			w.Fatalf("after %v", d)
		}
		w.net.Revive("etcd")
		if _, err := w.kv.Range(w.Context(), &pb.RangeRequest{Key: []byte("k")}, grpc.WaitForReady(true)); err != nil {
			w.Fatal(err)
		}
	})
}

// Closing a client and a server across a dead link leaves nothing running: a leaked
// goroutine would fail the bubble.
func TestEverythingEndsAcrossADeadLink(t *testing.T) {
	inBubble(t, func(w world) {
		w.watch(&pb.WatchCreateRequest{Key: []byte("k")})
		w.net.Cut("client", "etcd")
		w.put("k", strings.Repeat("x", 1<<20))
	})
}

// clientv3 works in a bubble, except its Watch: it waits on a channel that is a package
// variable, and therefore never blocks durably.
func TestClientv3InABubble(t *testing.T) {
	inBubble(t, func(w world) {
		c, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{"http://" + addr},
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(w.net.Dialer("client"))},
		})
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Txn(w.Context()).If(clientv3.Compare(clientv3.Version("k1"), "=", 0)).
			Then(clientv3.OpPut("k1", "a"), clientv3.OpPut("k2", "b")).Commit(); err != nil {
			w.Fatal(err)
		}
		if got, err := c.Get(w.Context(), "k", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 2 {
			w.Fatal(got, err)
		}
		st, err := c.Status(w.Context(), addr)
		if err != nil || st.Version != "3.7.3" {
			w.Fatal(st, err)
		}
		if ms, err := c.MemberList(w.Context()); err != nil || len(ms.Members) != 1 {
			w.Fatal(ms, err)
		}
		if n := w.etcd.Counts(); n.Watches != 0 || n.Txns != 1 || n.Ranges != 1 {
			w.Fatalf("%+v", n)
		}
	})
}

func TestHistoryAndState(t *testing.T) {
	inBubble(t, func(w world) {
		e := w.etcd
		w.put("a", "1")
		if rev, err := e.Txn(memetcd.OpPut("a", "2"), memetcd.OpPut("b", "1")); err != nil || rev != 3 {
			w.Fatal(rev, err)
		}
		if rev, err := e.Delete("nothing"); err != nil || rev != 3 {
			w.Fatal(rev, err)
		}
		if rev, err := e.DeleteRange(kv.Range{}); err != nil || rev != 4 {
			w.Fatal(rev, err)
		}
		if _, err := e.Txn(memetcd.OpPut("a", ""), memetcd.OpPut("a", "")); err == nil {
			w.Fatal("accepted one key twice in a transaction")
		}
		if err := e.Compact(4); err != nil {
			w.Fatal(err)
		}
		var got []string
		for i, b := range e.History() {
			if b.Revision != kv.Revision(i+2) {
				w.Fatal(b)
			}
			for _, ev := range b.Events {
				s := ev.Type.String() + " " + string(ev.KV.Key()) + "=" + string(ev.KV.Value())
				if ev.Prev != nil {
					s += " was " + string(ev.Prev.Value())
				}
				got = append(got, s)
			}
		}
		want := []string{"PUT a=1", "PUT a=2 was 1", "PUT b=1", "DELETE a= was 2", "DELETE b= was 1"}
		if !slices.Equal(got, want) {
			w.Fatalf("%q; want %q", got, want)
		}
		if n := len(e.State(kv.Range{}, 0)); n != 0 {
			w.Fatalf("%d keys", n)
		}
		if kvs := e.State(kv.Prefix("b"), 3); len(kvs) != 1 || string(kvs[0].Key()) != "b" {
			w.Fatal(kvs)
		}
	})
}

func TestConfigNamesEveryMistake(t *testing.T) {
	_, err := memetcd.New(memetcd.Config{SyncInterval: -1})
	for _, want := range []string{"Listen", "MaxRequestBytes", "ProgressInterval", "SyncInterval"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
