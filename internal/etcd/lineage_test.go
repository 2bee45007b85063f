package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdclock"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// members are etcd members that report preset marks.
type members struct {
	mu    sync.Mutex
	marks []kv.Mark
	gate  chan struct{} // if set, answers wait for it
	hangs int           // the ID of a member that answers no read; 0: none

	asked atomic.Int64 // requests for the index
}

type member struct {
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedKVServer
	all *members
	id  int
}

func (m *member) header() (*etcdserverpb.ResponseHeader, kv.Mark) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	k := m.all.marks[m.id]
	return &etcdserverpb.ResponseHeader{ClusterId: k.Cluster, MemberId: uint64(m.id + 1), RaftTerm: k.Term, Revision: int64(k.Revision)}, k
}

func (m *member) Range(ctx context.Context, _ *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	h, _ := m.header()
	m.all.mu.Lock()
	gate, hangs := m.all.gate, m.all.hangs == m.id+1
	m.all.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	return &etcdserverpb.RangeResponse{Header: h}, nil
}

func (m *member) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	m.all.asked.Add(1)
	h, k := m.header()
	return &etcdserverpb.StatusResponse{Header: h, RaftIndex: k.Index}, nil
}

func (m *members) set(marks ...kv.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks = marks
}

// startMembers returns members that all report mark, and a client of them.
func startMembers(t *testing.T, n int, mark kv.Mark) (*members, *Client) {
	t.Helper()
	listeners := map[string]*bufconn.Listener{}
	all, endpoints := serveMembers(t, n, mark, func(i int) (net.Listener, string) {
		name := fmt.Sprintf("m%d:1", i)
		listeners[name] = bufconn.Listen(1 << 16)
		return listeners[name], name
	})
	cfg := testConfig(endpoints...)
	cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) { return listeners[addr].DialContext(ctx) }
	return all, newClient(t, cfg)
}

// startTCPMembers is startMembers over TCP, which identifies connections: a process that has reported its index
// gets no further request for it. change may change the client's config.
func startTCPMembers(t *testing.T, n int, mark kv.Mark, change func(*Config)) (*members, *Client) {
	t.Helper()
	all, endpoints := serveMembers(t, n, mark, func(int) (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().String()
	})
	cfg := testConfig(endpoints...)
	if change != nil {
		change(&cfg)
	}
	return all, newClient(t, cfg)
}

func serveMembers(t *testing.T, n int, mark kv.Mark, listen func(i int) (net.Listener, string)) (*members, []string) {
	t.Helper()
	all := &members{}
	var endpoints []string
	for i := range n {
		m := &member{all: all, id: i}
		all.marks = append(all.marks, mark)
		l, name := listen(i)
		g := grpc.NewServer()
		etcdserverpb.RegisterMaintenanceServer(g, m)
		etcdserverpb.RegisterKVServer(g, m)
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(l) }()
		t.Cleanup(func() { g.Stop(); <-ended })
		endpoints = append(endpoints, name)
	}
	return all, endpoints
}

var before = kv.Mark{Cluster: 1, Term: 4, Index: 50, Revision: 30}

// Any evidence of another history ends the lineage for all requests to etcd, until the next lineage is adopted.
func TestAnotherHistoryIsFound(t *testing.T) {
	for cause, after := range map[kv.Cause]kv.Mark{
		kv.CauseCluster:  {Cluster: 2, Term: 9, Index: 90, Revision: 90},
		kv.CauseRevision: {Cluster: 1, Term: 2, Index: 5, Revision: 29},
		kv.CauseTerm:     {Cluster: 1, Term: 3, Index: 60, Revision: 1030},
		kv.CauseIndex:    {Cluster: 1, Term: 4, Index: 49, Revision: 31},
	} {
		t.Run(string(cause), func(t *testing.T) {
			m, c := startMembers(t, 3, before)
			c.Adopt(7, kv.Mark{Cluster: 1})
			for range 3 {
				if got, err := c.Look(t.Context()); err != nil || got.Mark() != before {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			lineage, why, changed := c.Ended()
			if lineage != 7 || why != nil {
				t.Fatalf("lineage %d has ended: %v", lineage, why)
			}
			m.set(after, after, after)
			got, err := c.Look(t.Context())
			var found *kv.HistoryError
			if !errors.As(err, &found) || found.Cause != cause || found.Was != before || got.Mark() != after {
				t.Fatalf("%+v, %v", got, err)
			}
			<-changed
			if _, why, _ = c.Ended(); why != found {
				t.Errorf("the lineage ended with %v", why)
			}
			wrong := func(what string, err error) {
				if !errors.Is(err, kv.ErrOtherHistory) {
					t.Errorf("%s: %v, want ErrOtherHistory", what, err)
				}
			}
			_, err = c.Revision(t.Context())
			wrong("the revision", err)
			_, err = c.CheckRevision(t.Context(), 3)
			wrong("a revision of the past", err)
			wrong("a watch", follow(t, c, kv.FollowRequest{From: 31, Lineage: 7}).failure())
			wrong("a list", follow(t, c, kv.FollowRequest{Lineage: 7}).failure())

			c.Adopt(8, after)
			if now, err := c.Revision(t.Context()); now != after.Revision || err != nil {
				t.Errorf("revision in the new lineage: %d, %v", now, err)
			}
			var old *kv.LineageError
			if err := follow(t, c, kv.FollowRequest{From: 31, Lineage: 7}).failure(); !errors.As(err, &old) || *old != (kv.LineageError{Requested: 7, Current: 8}) {
				t.Errorf("a watch of the old lineage: %v", err)
			}
			if cluster, _ := c.Identity(); cluster != after.Cluster {
				t.Errorf("cluster %d", cluster)
			}
		})
	}
}

// Linearizable reads also detect another history, not only looks. The marks that other nodes have read count, too.
func TestReadFindsAnotherHistory(t *testing.T) {
	m, c := startMembers(t, 1, before)
	c.Adopt(1, before)
	c.Saw(1, kv.Mark{Revision: 40})
	c.Saw(2, kv.Mark{Revision: 400}) // of another lineage, does not count
	m.set(kv.Mark{Cluster: 1, Term: 4, Index: 50, Revision: 40})
	if _, err := c.Revision(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.set(kv.Mark{Cluster: 1, Term: 4, Index: 50, Revision: 39})
	if now, err := c.Revision(t.Context()); !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("%d, %v", now, err)
	}
}

// A member that took its state from another member reports an old term until the next write. A member that lost
// data would report an old revision. The other members contradict them.
func TestOneMemberIsNoRestore(t *testing.T) {
	for name, odd := range map[string]kv.Mark{
		"an old term":     {Cluster: 1, Term: 2, Index: 50, Revision: 30},
		"an old index":    {Cluster: 1, Term: 4, Index: 20, Revision: 30},
		"an old revision": {Cluster: 1, Term: 4, Index: 50, Revision: 20},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := startMembers(t, 3, before)
			c.Adopt(1, before)
			m.set(before, odd, before)
			for range 100 { // the connected members take turns
				if c.Stats().Disagreements > 2 {
					break
				}
				if _, err := c.Look(t.Context()); err != nil {
					t.Fatal(err)
				}
				if now, err := c.Revision(t.Context()); now < 30 && err == nil {
					t.Errorf("a read returned revision %d, want at least 30", now)
				}
			}
			if _, why, _ := c.Ended(); why != nil {
				t.Errorf("the lineage has ended: %v", why)
			}
			if c.Stats().Disagreements == 0 {
				t.Error("no disagreement was counted")
			}
		})
	}
}

// Members take turns, and each has reported its index at another revision of etcd. The inferred index of one
// member does not contradict later reports of the others.
func TestMembersDoNotContradictTheMarkInTurn(t *testing.T) {
	m, c := startTCPMembers(t, 3, before, nil)
	c.Adopt(1, kv.Mark{Cluster: 1})
	for seen := map[uint64]bool{}; len(seen) < 3; { // until all members are connected and take turns
		clock, err := c.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[clock.Member] = true
	}
	const looks = 30
	now, last := before, uint64(0)
	for range looks {
		got, err := c.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Index < last || got.Index > now.Index {
			t.Errorf("the inferred index %d is below the previous one, %d, or above etcd's, %d", got.Index, last, now.Index)
		}
		last = got.Index
		now.Index, now.Revision = now.Index+1, now.Revision+1
		m.set(now, now, now)
	}
	if n := c.Stats().Disagreements; n != 0 {
		t.Errorf("%d looks were contradicted", n)
	}
	if last < before.Index+looks/2 {
		t.Errorf("the inferred index is %d after %d more revisions", last, looks)
	}
	if n := m.asked.Load(); n >= looks { // up to six requests for each member
		t.Errorf("%d looks sent %d requests for the index", looks, n)
	}
}

// A look detects that the index went back, but cannot reach each member. The next look detects it again: nothing
// is inferred from the report of a process of another history.
func TestContradictoryIndexIsFoundAgain(t *testing.T) {
	var cut atomic.Bool // no new connections
	restored := kv.Mark{Cluster: 1, Term: 4, Index: 49, Revision: 31}
	_, c := startTCPMembers(t, 1, restored, func(cfg *Config) {
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if cut.Load() {
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	})
	c.Adopt(1, before)
	if _, err := c.Revision(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut.Store(true)
	if got, err := c.Look(t.Context()); !errors.Is(err, etcdconn.ErrUnavailable) || errors.Is(err, kv.ErrOtherHistory) {
		t.Fatalf("%+v, %v", got, err)
	}
	cut.Store(false)
	for range 2 { // the second look also shows etcd's own index
		if got, err := c.Look(t.Context()); !errors.Is(err, kv.ErrOtherHistory) || got.Mark() != restored {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// A mark that another node has read may be ahead of a process that has reported its index.
func TestAdoptedMarkIsComparedWithTheIndex(t *testing.T) {
	_, c := startTCPMembers(t, 1, before, nil)
	c.Adopt(1, kv.Mark{Cluster: 1})
	if got, err := c.Look(t.Context()); err != nil || got.Mark() != before {
		t.Fatalf("%+v, %v", got, err)
	}
	c.Adopt(1, kv.Mark{Index: before.Index + 1})
	var found *kv.HistoryError
	if got, err := c.Look(t.Context()); !errors.As(err, &found) || found.Cause != kv.CauseIndex || got.Mark() != before {
		t.Errorf("%+v, %v", got, err)
	}
}

// A member contradicts the others, one of which hangs while its connections stay open. The answer of the third
// member decides.
func TestLookDoesNotWaitForAMemberThatHangs(t *testing.T) {
	m, c := startTCPMembers(t, 3, before, func(cfg *Config) { cfg.CallTimeout, cfg.KeepaliveTime = time.Hour, time.Hour })
	c.Adopt(1, before)
	odd := before
	odd.Index = 20
	m.set(before, odd, before)
	m.mu.Lock()
	m.hangs = 3
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for c.Stats().Disagreements == 0 { // the members take turns
		if _, err := c.Look(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, why, _ := c.Ended(); why != nil {
		t.Errorf("the lineage has ended: %v", why)
	}
}

// A response is valid as of its request. Later knowledge does not contradict it.
func TestLateAnswerIsNoRestore(t *testing.T) {
	m, c := startMembers(t, 1, before)
	c.Adopt(1, before)
	gate := make(chan struct{})
	m.mu.Lock()
	m.gate = gate
	m.mu.Unlock()
	read := make(chan error)
	go func() { _, err := c.Revision(t.Context()); read <- err }()
	for c.Stats().ClockReads == 0 { // until the read is in flight
		time.Sleep(time.Millisecond)
	}
	c.Saw(1, kv.Mark{Revision: 100, Term: 9})
	close(gate)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if _, why, _ := c.Ended(); why != nil {
		t.Error(why)
	}
}

// A request of one lineage gets no answer in the next lineage.
func TestAnswerFromTheOldLineage(t *testing.T) {
	m, c := startMembers(t, 1, before)
	c.Adopt(1, before)
	gate := make(chan struct{})
	m.mu.Lock()
	m.gate = gate
	m.mu.Unlock()
	read := make(chan error, 2)
	go func() { _, err := c.Revision(t.Context()); read <- err }()
	go func() { _, err := c.Look(t.Context()); read <- err }()
	for c.Stats().ClockReads < 2 {
		time.Sleep(time.Millisecond)
	}
	c.Adopt(2, kv.Mark{Cluster: 1})
	close(gate)
	for range 2 {
		if err := <-read; !strings.Contains(err.Error(), "a new lineage has begun") || !errors.Is(err, etcdconn.ErrUnavailable) {
			t.Error(err)
		}
	}
	if _, mark := c.Known(); mark != (kv.Mark{Cluster: 1}) {
		t.Errorf("the mark of the new lineage is %+v", mark)
	}
}

// A node that is directed to another cluster for a while, and back, continues its lineage. A history that went
// back stays ended, whatever revisions it reports later.
func TestEndIsFinalButForAnotherCluster(t *testing.T) {
	m, c := startMembers(t, 1, before)
	c.Adopt(1, before)
	look := func(mark kv.Mark) error {
		m.set(mark)
		_, err := c.Look(t.Context())
		return err
	}
	if err := look(kv.Mark{Cluster: 2, Revision: 90}); !errors.Is(err, kv.ErrOtherHistory) {
		t.Error(err)
	}
	if err := look(before); err != nil {
		t.Errorf("back at the first cluster: %v", err)
	}
	if err := look(kv.Mark{Cluster: 1, Term: 2, Index: 5, Revision: 10}); !errors.Is(err, kv.ErrOtherHistory) {
		t.Error(err)
	}
	if err := look(kv.Mark{Cluster: 1, Term: 9, Index: 90, Revision: 90}); !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("a history that went back is accepted again: %v", err)
	}
}

// While no lineage is adopted, any history is accepted.
func TestNoLineageYet(t *testing.T) {
	m, c := startMembers(t, 1, before)
	for _, mark := range []kv.Mark{before, {Cluster: 2, Term: 2, Index: 5, Revision: 10}} {
		m.set(mark)
		if now, err := c.Revision(t.Context()); now != mark.Revision || err != nil {
			t.Errorf("%d, %v", now, err)
		}
	}
}

// restores are the four ways to restore a snapshot to an etcd at the same address.
func restores() map[string]struct {
	restore etcdtest.Restore
	writes  int // before the first look
} {
	return map[string]struct {
		restore etcdtest.Restore
		writes  int
	}{
		"another cluster ID":         {restore: etcdtest.Restore{Token: "another"}},
		"an older state":             {},
		"a bumped revision":          {restore: etcdtest.Restore{BumpRevision: 1000}},
		"an older state, written to": {writes: 30},
	}
}

// Each way to restore a real etcd, in a separate process, is detected by the next look. A watch from the revision
// after the last seen one ends before its first update.
func TestRestoresAreFound(t *testing.T) {
	t.Parallel()
	for name, how := range restores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := etcdtest.Start(t)
			grow(t, s.Client(), 20)
			how.restore.Snapshot = s.Snapshot(t.Context())
			grow(t, s.Client(), 20)
			c := newClient(t, testConfig(s.Endpoint()))
			c.Adopt(1, kv.Mark{})
			was, err := c.Look(t.Context())
			if err != nil || was.Index == 0 || was.Term == 0 {
				t.Fatalf("%+v, %v", was, err)
			}
			s.Stop()
			s.Restore(how.restore)
			grow(t, s.Client(), how.writes)

			next := was.Revision + 1
			err = answered(func() error { return follow(t, c, kv.FollowRequest{From: next, Lineage: 1}).failure() })
			if !errors.Is(err, kv.ErrOtherHistory) {
				t.Errorf("a watch from %d: %v, want ErrOtherHistory", next, err)
			}
			_, err = c.Look(t.Context())
			var found *kv.HistoryError
			if !errors.As(err, &found) {
				t.Fatal(err)
			}
			t.Log(found.Finding())
		})
	}
}

// Only the first look at a process requests its index. Later looks infer the index from the revision, so that it
// lacks entries without a revision. A restarted process gets a new request.
func TestIndexIsAskedForOnce(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	c.Adopt(1, kv.Mark{})
	index := func() uint64 {
		t.Helper()
		var now etcdclock.Clock
		if err := answered(func() (err error) { now, err = c.Look(t.Context()); return err }); err != nil {
			t.Fatal(err)
		}
		if _, mark := c.Known(); mark.Index != now.Index {
			t.Fatalf("the mark is %+v after a look with index %d", mark, now.Index)
		}
		return now.Index
	}
	const leases, writes = 5, 20
	first := index()
	if next := index(); next != first {
		t.Errorf("index %d, then %d without an entry between", first, next)
	}
	for range leases {
		if _, err := s.Client().Grant(t.Context(), 60); err != nil {
			t.Fatal(err)
		}
	}
	if next := index(); next != first {
		t.Errorf("index %d after %d without a new revision: the index was requested again", next, first)
	}
	grow(t, s.Client(), writes)
	if next := index(); next != first+writes {
		t.Errorf("index %d, after %d and %d more writes", next, first, writes)
	}
	s.Stop()
	s.Restart()
	if next := index(); next < first+leases+writes {
		t.Errorf("index %d after a restart, want at least %d, %d leases and %d writes", next, first, leases, writes)
	}
	// A new lineage does not use the reports of the previous one.
	c.Adopt(2, kv.Mark{})
	if next := index(); next < first+leases+writes {
		t.Errorf("index %d in a new lineage, want a new request", next)
	}
}

// answered calls do again while the connection fails.
func answered(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, etcdconn.ErrUnavailable) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// None of the following is a restore: the leader of three members dies, a member lags and catches up from a
// snapshot of the others, and all members stop and start.
func TestNoRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel()
	members := etcdtest.StartMembers(t, 3)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint())
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	c := newClient(t, testConfig(endpoints...))
	c.Adopt(1, kv.Mark{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a passing test ends earlier
	defer cancel()
	looks := 0
	watching := func(what string, do func()) {
		t.Helper()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				if _, err := c.Look(ctx); errors.Is(err, kv.ErrOtherHistory) {
					t.Errorf("%s: %v", what, err)
					return
				} else if err == nil {
					looks++
				}
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		do()
		close(stop)
		<-stopped
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	leader := func() int {
		for {
			for i, e := range endpoints {
				one, stop := context.WithTimeout(ctx, time.Second)
				r, err := cli.Status(one, e)
				stop()
				if err == nil && r.Leader == r.Header.MemberId {
					return i
				}
			}
			must(ctx.Err())
		}
	}
	write := func(n int) {
		for range n {
			for {
				one, stop := context.WithTimeout(ctx, time.Second)
				_, err := cli.Put(one, "k", "v")
				stop()
				if err == nil {
					break
				}
				must(ctx.Err())
			}
		}
	}
	watching("writes", func() { write(50) })
	watching("the leader dies", func() {
		l := leader()
		must(members[l].Kill())
		write(20)
		must(members[l].Start(ctx))
		write(20)
	})
	watching("a member stands still", func() {
		l := (leader() + 1) % 3
		must(members[l].Pause())
		write(100)
		must(members[l].Cont())
		write(1)
	})
	watching("all stop and start", func() {
		var all sync.WaitGroup
		for _, m := range members {
			must(m.Stop())
		}
		for _, m := range members {
			all.Go(func() {
				if err := m.Start(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		write(5)
	})
	if _, why, _ := c.Ended(); why != nil || looks < 10 {
		t.Errorf("after %d looks: %v", looks, why)
	}

	// A restore of all members from one snapshot is detected.
	path := filepath.Join(t.TempDir(), "snapshot")
	must(etcdtest.SaveSnapshot(ctx, endpoints[0], path))
	write(1)
	look := func() error { _, err := c.Look(ctx); return err }
	must(answered(look))
	var all sync.WaitGroup
	for _, m := range members {
		must(m.Stop())
		must(m.Restore(etcdtest.Restore{Snapshot: path}))
	}
	for _, m := range members {
		all.Go(func() {
			if err := m.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := answered(look); !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("the restore was not detected: %v", err)
	}
}

// The log reports the beginning and the end of the outage of a stopped etcd, which accepts connections and does
// not answer.
func TestTheLogReportsASilentEtcd(t *testing.T) {
	p := etcdtest.StartProcess(t)
	cfg := Defaults()
	cfg.Endpoints = []string{p.Endpoint()}
	var out lines
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	c := newClient(t, cfg)
	look := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := c.Look(ctx)
		return err
	}
	testkit.Eventually(t, "etcd answers", func() bool { return look() == nil })
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Cont() }() // also if it runs again
	testkit.Eventually(t, "the log reports the outage", func() bool { return look() != nil && out.count("etcd is unavailable") > 0 })
	if err := p.Cont(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the log reports the recovery", func() bool { return look() == nil && out.count("etcd is available again") > 0 })
}
