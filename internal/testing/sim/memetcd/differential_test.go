package memetcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// smallRequests is a bound on requests that lets a test reach fragments.
const smallRequests = 16 << 10

// TestEqualToEtcd sends the same requests to the model and to etcd, and compares all
// answers and all watch responses.
func TestEqualToEtcd(t *testing.T) {
	seed := testseed.Of(t)
	b := newBoth(t, rand.New(rand.NewPCG(seed, 1)))
	for range 4 {
		b.openStream()
	}
	for i := range 1500 {
		switch n := b.rnd.IntN(100); {
		case n < 88:
			b.randomOp()
		case n < 94:
			b.settle()
			b.randomWatch()
		case n < 96:
			b.settle()
			b.randomCancel()
		case n < 97:
			b.settle()
			b.randomProgress()
		case n < 98 && i > 300:
			b.settle()
			b.randomCompact()
		}
		if i%40 == 0 {
			b.settle()
		}
	}
	b.settle()
}

// TestFragmentsEqualEtcds catches up on more bytes than fit into a response.
func TestFragmentsEqualEtcds(t *testing.T) {
	b := newBoth(t, rand.New(rand.NewPCG(1, 1)))
	st := b.openStream()
	value := []byte(strings.Repeat("v", smallRequests-1000))
	for i := range 90 {
		b.call(&pb.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: value})
	}
	b.watch(st, &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 1, Fragment: true, PrevKv: true})
	b.settle()
	b.call(&pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}) // the previous values are as large
	b.settle()
	b.until("the same fragments from both", func() bool {
		b.settle()
		lines := strings.Join(st.sides[model].log()[0], "\n")
		return strings.Contains(lines, "type:DELETE") && strings.Count(lines, "fragment:true") > 3
	})
}

// TestCatchUpEqualsEtcds catches up on more revisions than a response holds.
func TestCatchUpEqualsEtcds(t *testing.T) {
	b := newBoth(t, rand.New(rand.NewPCG(1, 1)))
	st := b.openStream()
	for i := range catchUpRevisions + 500 {
		b.call(&pb.PutRequest{Key: fmt.Appendf(nil, "k%d", i%7)})
	}
	b.watch(st, &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 2})
	b.until("as many events from both", func() bool {
		b.settle()
		return strings.Count(strings.Join(st.sides[model].log()[0], ""), "kv:{") == catchUpRevisions+500
	})
}

// The two sides.
const (
	model = 0
	real  = 1
)

// both is the model and etcd, and a client of each of them.
type both struct {
	t       *testing.T
	model   *Server
	rnd     *rand.Rand
	conns   [2]*grpc.ClientConn
	rev     int64
	streams []*watchPair
}

func newBoth(t *testing.T, rnd *rand.Rand) *both {
	b := &both{t: t, rnd: rnd, rev: 1}
	lis := bufconn.Listen(1 << 20)
	cfg := Defaults()
	cfg.Listen = func() (net.Listener, error) { return lis, nil }
	cfg.MaxRequestBytes = smallRequests
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b.model = s
	dialer := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })
	b.conns[model] = dial(t, "passthrough:///model", dialer)
	b.conns[real] = dial(t, "passthrough:///"+startEtcd(t))
	return b
}

func dial(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// startEtcd runs etcd until the test ends, and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "panic"
	cfg.MaxRequestBytes = smallRequests
	cfg.UnsafeNoFsync = true
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{anyPort}, []url.URL{anyPort}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready after a minute")
	}
	return e.Clients[0].Addr().String()
}

// call sends the same request to both and compares the answers.
func (b *both) call(req proto.Message) {
	b.t.Helper()
	var got [2]string
	for side, cc := range b.conns {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		kvc := pb.NewKVClient(cc)
		var resp interface {
			proto.Message
			GetHeader() *pb.ResponseHeader
		}
		var err error
		switch r := req.(type) {
		case *pb.RangeRequest:
			resp, err = kvc.Range(ctx, r)
		case *pb.PutRequest:
			resp, err = kvc.Put(ctx, r)
		case *pb.DeleteRangeRequest:
			resp, err = kvc.DeleteRange(ctx, r)
		case *pb.TxnRequest:
			resp, err = kvc.Txn(ctx, r)
		case *pb.CompactionRequest:
			resp, err = kvc.Compact(ctx, r)
		}
		cancel()
		if err != nil {
			got[side] = err.Error()
			continue
		}
		b.rev = max(b.rev, resp.GetHeader().GetRevision())
		got[side] = text(resp)
	}
	if got[model] != got[real] {
		b.t.Fatalf("%T %v\nmodel: %s\netcd:  %s", req, req, got[model], got[real])
	}
}

// text returns a message as text, without the identity of its sender.
func text(m proto.Message) string {
	m = proto.Clone(m)
	if f := m.ProtoReflect().Descriptor().Fields().ByName("header"); f != nil && m.ProtoReflect().Has(f) {
		h := m.ProtoReflect().Mutable(f).Message()
		for _, name := range []protoreflect.Name{"cluster_id", "member_id", "raft_term"} {
			h.Clear(h.Descriptor().Fields().ByName(name))
		}
	}
	// prototext randomly puts one or two spaces between fields.
	return strings.ReplaceAll(prototext.MarshalOptions{}.Format(m), "  ", " ")
}

// watchPair is a watch stream to each side.
type watchPair struct {
	sides   [2]*watchSide
	blocked map[int64]int64 // watches that hold back progress up to this revision
	open    map[int64]bool
}

// watchSide is one stream and all its responses.
type watchSide struct {
	stream  pb.Watch_WatchClient
	mu      sync.Mutex
	told    map[int64][]string // by watch ID
	created int                // watches, including refused ones
}

func (s *watchSide) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created
}

// progressLog is the ID of the log of answers to progress requests. Their order relative to
// other answers is not defined.
const progressLog = -2

func (s *watchSide) log() map[int64][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64][]string{}
	for id, lines := range s.told {
		out[id] = slices.Compact(slices.Clone(lines)) // a progress may be reported twice
	}
	return out
}

func (b *both) openStream() *watchPair {
	p := &watchPair{blocked: map[int64]int64{}, open: map[int64]bool{}}
	for side, cc := range b.conns {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := pb.NewWatchClient(cc).Watch(ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		s := &watchSide{stream: stream, told: map[int64][]string{}}
		p.sides[side] = s
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				resp, err := stream.Recv()
				if err != nil {
					return
				}
				s.mu.Lock()
				id := resp.WatchId
				if id == noWatch && !resp.Created {
					id = progressLog
				}
				if resp.Created {
					s.created++
				}
				s.told[id] = append(s.told[id], text(resp))
				s.mu.Unlock()
			}
		}()
		b.t.Cleanup(func() { cancel(); <-done })
	}
	b.streams = append(b.streams, p)
	return p
}

// settle waits until all watches are synced and both sides have reported the same. (How
// etcd groups the events of a watch in the past depends on timing.)
func (b *both) settle() {
	b.t.Helper()
	b.until("all watches are synced", func() bool {
		_, behind := b.model.Watches()
		return behind == 0 && slowWatchers(b.t) == 0
	})
	deadline := time.Now().Add(time.Minute)
	for i, p := range b.streams {
		for {
			m, r := p.sides[model].log(), p.sides[real].log()
			diff := difference(m, r)
			if diff == "" {
				break
			}
			if time.Now().After(deadline) {
				b.t.Fatalf("stream %d at revision %d: %s", i, b.rev, diff)
			}
			time.Sleep(5 * time.Millisecond) // polling interval
		}
	}
}

// slowWatchers returns etcd's count of watches that are not synced.
func slowWatchers(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_debugging_mvcc_slow_watcher_total" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("etcd no longer has a metric of slow watchers")
	return 0
}

func difference(m, r map[int64][]string) string {
	for id := int64(progressLog); id < 200; id++ {
		a, b := m[id], r[id]
		for i := range max(len(a), len(b)) {
			line := func(l []string) string {
				if i < len(l) {
					return l[i][:min(len(l[i]), 2000)]
				}
				return "(nothing)"
			}
			if line(a) != line(b) || i < len(a) && a[i] != b[i] {
				return fmt.Sprintf("watch %d, response %d\nmodel: %s\netcd:  %s", id, i, line(a), line(b))
			}
		}
	}
	return ""
}

func (b *both) send(p *watchPair, r *pb.WatchRequest) {
	b.t.Helper()
	for _, s := range p.sides {
		if err := s.stream.Send(proto.Clone(r).(*pb.WatchRequest)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *both) watch(p *watchPair, r *pb.WatchCreateRequest) {
	b.t.Helper()
	created := func() int { return p.sides[model].count() + p.sides[real].count() }
	before := created()
	b.send(p, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
	b.until("a watch is created", func() bool { return created() == before+2 })
}

func (b *both) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not reached within a minute: %s", what)
		}
	}
}
