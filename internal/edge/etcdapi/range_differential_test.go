package etcdapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// differ compares the answers of an API with those of the etcd behind it.
type differ struct {
	t       *testing.T
	rng     *rand.Rand
	etcd    etcdserverpb.KVClient
	nodes   []*readNode
	leases  []int64
	now     int64 // etcd's revision
	compact int64
	here    int64 // number of requests answered from memory
}

func (d *differ) key() []byte {
	// Some prefixes lie outside of the served range, and only some of them have keys.
	prefix := []string{"/a/", "/a/", "/m/", "/m/x/", "/z/", "/", "0", "!"}[d.rng.IntN(8)]
	return fmt.Appendf(nil, "%s%02d", prefix, d.rng.IntN(40))
}

// write makes a random change at etcd.
func (d *differ) write() {
	ctx := within(d.t)
	var err error
	switch n := d.rng.IntN(20); {
	case n < 14:
		put := &etcdserverpb.PutRequest{Key: d.key(), Value: d.value(), Lease: d.leases[d.rng.IntN(len(d.leases))]}
		_, err = d.etcd.Put(ctx, put)
	case n < 17:
		_, err = d.etcd.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: d.key()})
	case n < 18:
		_, err = d.etcd.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: []byte("/m/x/1"), RangeEnd: []byte("/m/x/3")})
	case n < 19:
		var ops []*etcdserverpb.RequestOp
		for i := range 1 + d.rng.IntN(20) {
			key := fmt.Appendf(nil, "/%c/%02d", 'a'+rune(i), d.rng.IntN(40))
			ops = append(ops, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: key, Value: d.value()}}})
		}
		_, err = d.etcd.Txn(ctx, &etcdserverpb.TxnRequest{Success: ops})
	case d.now-d.compact > 100:
		d.compact += 1 + d.rng.Int64N(50)
		_, err = d.nodes[0].kv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: d.compact})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := d.etcd.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("x")})
	if err != nil {
		d.t.Fatal(err)
	}
	d.now = r.GetHeader().GetRevision()
}

func (d *differ) value() []byte {
	size := []int{0, 1, 1, 1, 10, 500, 3000, 20000}[d.rng.IntN(8)]
	return []byte(strings.Repeat(string(rune('a'+d.rng.IntN(3))), size)) // many equal values
}

// revision returns a random revision, mostly an existing one or one close to that.
func (d *differ) revision() int64 {
	switch d.rng.IntN(12) {
	case 0:
		return d.now + d.rng.Int64N(3) - 1
	case 1:
		return d.compact + d.rng.Int64N(3) - 1
	case 2:
		return []int64{-1, math.MaxInt64, math.MinInt64, 1}[d.rng.IntN(4)]
	case 3, 4:
		return d.compact + d.rng.Int64N(d.now-d.compact+1)
	case 5:
		return max(0, d.now-d.rng.Int64N(10))
	}
	return 0
}

// request returns a random request.
func (d *differ) request() *etcdserverpb.RangeRequest {
	r := &etcdserverpb.RangeRequest{
		Revision: d.revision(), Serializable: d.rng.IntN(2) == 0,
		KeysOnly: d.rng.IntN(4) == 0, CountOnly: d.rng.IntN(8) == 0,
	}
	switch d.rng.IntN(10) {
	case 0:
		r.Key, r.RangeEnd = []byte("/"), []byte("0") // all served keys
	case 1:
		r.Key, r.RangeEnd = []byte{0}, []byte{0}
	case 2:
		r.Key, r.RangeEnd = d.key(), []byte{0}
	case 3, 4:
		r.Key = d.key()
	case 5:
		r.Key, r.RangeEnd = d.key(), d.key()
	case 6:
		r.Key = []byte("/m/")
		r.RangeEnd = []byte("/m0")
	case 7:
		r.Key, r.RangeEnd = []byte("/a"), []byte("/p")
	case 8:
		r.Key = d.key()
		r.RangeEnd = append(r.Key[:len(r.Key):len(r.Key)], 0)
	case 9:
		if d.rng.IntN(5) > 0 {
			r.Key = []byte("/")
		}
		r.RangeEnd = []byte("/y")
	}
	if d.rng.IntN(2) == 0 {
		r.Limit = []int64{1, 2, 3, 7, 30, 100, 1000, -1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64}[d.rng.IntN(11)]
	}
	if d.rng.IntN(2) == 0 {
		r.SortOrder = etcdserverpb.RangeRequest_SortOrder(d.rng.IntN(3))
		r.SortTarget = etcdserverpb.RangeRequest_SortTarget(d.rng.IntN(5))
		if d.rng.IntN(40) == 0 {
			r.SortTarget = 5
		}
		if d.rng.IntN(40) == 0 {
			r.SortOrder = -1
		}
	}
	if d.rng.IntN(4) == 0 {
		for _, field := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
			if d.rng.IntN(2) == 0 {
				*field = d.compact + d.rng.Int64N(d.now-d.compact+5) - 2
			}
		}
	}
	return r
}

// normal removes the ID of the answering member, which may differ.
func normal(r *etcdserverpb.RangeResponse) *etcdserverpb.RangeResponse {
	if r.GetHeader() != nil {
		r.Header.MemberId = 0
	}
	return r
}

// same fails unless both results are equal.
func (d *differ) same(what string, r *etcdserverpb.RangeRequest, got, want *etcdserverpb.RangeResponse, err, wantErr error) {
	d.t.Helper()
	if wantErr != nil || err != nil {
		if g, w := status.Convert(err), status.Convert(wantErr); g.Code() != w.Code() || g.Message() != w.Message() {
			d.t.Fatalf("%s %v:\ngot  %v %v\nwant %v %v", what, r, err, got.GetHeader(), wantErr, want.GetHeader())
		}
		return
	}
	if !proto.Equal(normal(got), normal(want)) {
		d.t.Fatalf("%s %v:\ngot  %s\nwant %s", what, r, brief(got), brief(want))
	}
}

// brief formats an answer without its values.
func brief(r *etcdserverpb.RangeResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v more=%v count=%d:", r.GetHeader(), r.GetMore(), r.GetCount())
	for _, item := range r.GetKvs() {
		fmt.Fprintf(&b, " %s@%d(%d,v%d,%d bytes,lease %d)", item.GetKey(), item.GetModRevision(), item.GetCreateRevision(), item.GetVersion(), len(item.GetValue()), item.GetLease())
	}
	return b.String()
}

// streamed joins the chunks of a stream into one answer.
func streamed(ctx context.Context, c etcdserverpb.KVClient, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, int, error) {
	s, err := c.RangeStream(ctx, proto.CloneOf(r))
	if err != nil {
		return nil, 0, err
	}
	out := &etcdserverpb.RangeResponse{}
	for n := 0; ; n++ {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return out, n, nil
		} else if err != nil {
			return nil, n, err
		}
		if out.GetHeader() != nil {
			return nil, n, fmt.Errorf("chunk %d follows the one with the header", n)
		}
		chunk := m.GetRangeResponse()
		if chunk.GetHeader() == nil && (chunk.GetMore() || chunk.GetCount() != 0 || len(chunk.GetKvs()) == 0) {
			return nil, n, fmt.Errorf("chunk %d, not the last one, is %v", n, brief(chunk))
		}
		out.Header, out.More, out.Count = chunk.GetHeader(), chunk.GetMore(), chunk.GetCount()
		out.Kvs = append(out.Kvs, chunk.GetKvs()...)
	}
}

// An API with shards on this node and another one answers random requests of all kinds like the
// etcd behind it, while etcd changes and is compacted.
func TestRangeAgainstEtcd(t *testing.T) {
	seed := testseed.Of(t)
	e := etcdtest.Start(t)
	m := serving([]string{"/b", "/m/2", "/m/x/"}, "here", "there")
	here := startReads(t, "here", m, e.Endpoint())
	there := startReads(t, "there", m, e.Endpoint())
	here.node.Connect("there", dialPlain(t, there.peer))
	there.node.Connect("here", dialPlain(t, here.peer))
	here.api.CutLists(2<<10, 2<<10, 16<<10)
	there.api.CutLists(3<<10, 1, 4<<10)
	d := &differ{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), etcd: etcdserverpb.NewKVClient(dialPlain(t, e.Endpoint())),
		nodes: []*readNode{here, there}, leases: []int64{0, 0, 0, 7}, compact: 1, now: 1,
	}
	if _, err := e.Client().Lease.Grant(within(t), 1000); err != nil {
		t.Fatal(err)
	}
	lease, err := etcdserverpb.NewLeaseClient(dialPlain(t, e.Endpoint())).LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{TTL: 1000, ID: 7})
	if err != nil || lease.GetID() != 7 {
		t.Fatal(err)
	}
	for range 300 {
		d.write()
	}
	const rounds = 1000
	for i := range rounds {
		if d.rng.IntN(3) == 0 {
			d.write()
		}
		d.settle()
		node := d.nodes[d.rng.IntN(2)]
		r := d.request()
		want, wantErr := d.etcd.Range(within(t), r)
		got, err := node.kv.Range(within(t), r)
		d.same(fmt.Sprintf("request %d", i), r, got, want, err, wantErr)
		d.where(node, r)
		if d.rng.IntN(3) == 0 {
			if d.rng.IntN(2) == 0 {
				r.SortTarget, r.SortOrder = 0, 0
				r.MinModRevision, r.MaxModRevision, r.MinCreateRevision, r.MaxCreateRevision = 0, 0, 0, 0
			}
			want, _, wantErr = streamed(within(t), d.etcd, r)
			got, _, err = streamed(within(t), node.kv, r)
			d.same(fmt.Sprintf("stream %d", i), r, got, want, err, wantErr)
			node.etcd.reads.Store(0)
		}
	}
	if t.Logf("%d of %d requests were answered from memory", d.here, rounds); d.here < rounds/3 {
		t.Errorf("want at least a third")
	}
	for _, n := range d.nodes {
		if held := n.api.Held(); held != 0 {
			t.Errorf("%d bytes of chunks are held although no chunk is being sent", held)
		}
	}
}

// where checks that a request was answered from memory if that is possible, and counts it.
func (d *differ) where(node *readNode, r *etcdserverpb.RangeRequest) {
	d.t.Helper()
	asked := node.etcd.reads.Swap(0)
	d.here += 1 - asked
	rng, err := kv.RangeFromEtcd(r.GetKey(), r.GetRangeEnd())
	if asked > 0 && err == nil && served().Covers(rng) && r.GetRevision() <= 0 {
		d.t.Fatalf("etcd was asked to answer %v", r)
	}
}

// settle waits until every cache has reached etcd's revision and reports fresh data, because
// serializable reads are compared, too.
func (d *differ) settle() {
	now := time.Now()
	for _, n := range d.nodes {
		for id := range shard.ID(10) {
			c := n.node.Replica(id)
			if c == nil {
				continue
			}
			c.Observe(now, kv.Revision(d.now))
			if err := c.WaitProgress(within(d.t), kv.Revision(d.now)); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}
