package etcdapi_test

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// ops are the operations of a transaction, in the order in which methods add them.
type ops []*etcdserverpb.RequestOp

func (o ops) delFrom(key string) ops { return o.del(key, "\x00") }

func (o ops) del(key, end string) ops {
	return append(o, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}})
}

func (o ops) put(r *etcdserverpb.PutRequest) ops {
	return append(o, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: r}})
}

func (o ops) putValue(key string) ops {
	return o.put(&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte("new")})
}

func (o ops) keepValue(key string) ops {
	return o.put(&etcdserverpb.PutRequest{Key: []byte(key), IgnoreValue: true})
}

func (o ops) keepLease(key string) ops {
	return o.put(&etcdserverpb.PutRequest{Key: []byte(key), IgnoreLease: true})
}

func (o ops) get(key string) ops {
	return append(o, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: []byte(key)}}})
}

func (o ops) txn(then, other ops) ops {
	return append(o, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: &etcdserverpb.TxnRequest{Success: then, Failure: other}}})
}

// deadly returns transactions that crash etcd 3.7.3 if it has the keys a, b and c.
func deadly() map[string]ops {
	return map[string]ops{
		"keeps the value":          ops{}.delFrom("a").keepValue("b"),
		"keeps the lease":          ops{}.delFrom("a").keepLease("b"),
		"of the first key":         ops{}.delFrom("b").keepValue("b"),
		"everything is deleted":    ops{}.delFrom("\x00").keepValue("a"),
		"the lower delete counts":  ops{}.delFrom("c").delFrom("a").keepValue("b"),
		"nested put":               ops{}.delFrom("a").txn(ops{}.keepValue("b"), nil),
		"nested delete":            ops{}.txn(ops{}.delFrom("a"), nil).keepValue("b"),
		"a put in between":         ops{}.delFrom("a").putValue("a").keepValue("b"),
		"one branch after another": ops{}.txn(ops{}.delFrom("a"), nil).txn(ops{}.keepValue("b"), nil),
		"deep":                     ops{}.txn(ops{}.txn(ops{}.delFrom("a"), nil), nil).txn(ops{}.txn(ops{}.keepLease("b"), nil), nil),
		"a read result is dropped": ops{}.delFrom("a").get("b").keepValue("b"),
	}
}

// deadlyOnceCompacted returns transactions after which etcd 3.7.3 crashes at a read, once it is
// compacted to their revision.
func deadlyOnceCompacted() map[string]ops {
	return map[string]ops{
		"a new value":         ops{}.delFrom("a").putValue("b"),
		"of the first":        ops{}.delFrom("b").putValue("b"),
		"in a nested one":     ops{}.delFrom("a").txn(ops{}.putValue("c"), nil),
		"of a key, and below": ops{}.delFrom("b").putValue("a").putValue("c"),
	}
}

// harmless returns similar transactions that etcd executes, or refuses itself.
func harmless() map[string]ops {
	return map[string]ops{
		"a key below":               ops{}.delFrom("b").keepValue("a"),
		"the put comes first":       ops{}.keepValue("b").delFrom("a"),
		"a new value below":         ops{}.delFrom("b").putValue("a"),
		"the other branch":          ops{}.txn(ops{}.delFrom("a"), ops{}.keepValue("b")),
		"nested put first":          ops{}.txn(ops{}.keepValue("b"), nil).delFrom("a"),
		"nothing is deleted":        ops{}.keepValue("a").keepLease("b"),
		"an end, refused by etcd":   ops{}.del("a", "z").keepValue("b"),
		"one key, refused by etcd":  ops{}.del("b", "").keepLease("b"),
		"put twice, refused by it":  ops{}.keepValue("a").keepValue("a"),
		"an end before the key":     ops{}.del("b", "a").keepValue("b"),
		"deletes beside each other": ops{}.del("a", "b").delFrom("c").keepValue("b"),
	}
}

// Some transactions crash etcd, and again at each restart. The node refuses them. It forwards all
// others, with the same result as at etcd.
func TestDeadlyTransactionsAreRefused(t *testing.T) {
	direct, behind := etcdtest.Start(t), etcdtest.Start(t)
	through := etcdserverpb.NewKVClient(startPass(t, behind.Endpoint()).conn)
	both := []etcdserverpb.KVClient{etcdserverpb.NewKVClient(dialPlain(t, direct.Endpoint())), through}
	do := func(kv etcdserverpb.KVClient, o ops) (*etcdserverpb.TxnResponse, error) {
		return kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: o})
	}
	fill := ops{}.putValue("a").putValue("b").putValue("c")
	all := deadly()
	maps.Copy(all, deadlyOnceCompacted())
	// The node cannot predict which branch etcd takes.
	all["a delete in the other branch"] = ops{}.txn(nil, ops{}.delFrom("a")).keepValue("b")
	all["the lower delete in the other branch"] = ops{}.txn(ops{}.delFrom("c"), ops{}.delFrom("a")).keepValue("b")
	all["a put in the other branch"] = ops{}.delFrom("a").txn(nil, ops{}.keepValue("b"))
	for name, o := range all {
		if _, err := do(through, fill); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*etcdserverpb.TxnRequest{{Success: o}, {Failure: o}} {
			if _, err := through.Txn(within(t), r); !errors.Is(rpctypes.Error(err), rpctypes.ErrDuplicateKey) || status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := do(both[0], fill); err != nil {
		t.Fatal(err)
	}
	now, err := do(through, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < now.GetHeader().GetRevision(); { // brings both etcds to one revision
		r, err := do(both[0], fill)
		if err != nil {
			t.Fatal(err)
		}
		at = r.GetHeader().GetRevision()
	}
	for name, o := range harmless() {
		var got []string
		for _, kv := range both {
			if _, err := do(kv, fill); err != nil {
				t.Fatalf("%s: etcd is unavailable: %v", name, err)
			}
			r, err := do(kv, o)
			got = append(got, outcome(r, err))
		}
		if got[0] != got[1] {
			t.Errorf("%s\netcd:    %s\nthrough: %s", name, got[0], got[1])
		}
	}
}

// A transaction that is not a valid proto is refused, as by etcd 3.7. etcd 3.5 and 3.6 truncate field numbers to 32
// bits, and varints to 64 bits.
func TestMalformedTransactionsAreRefused(t *testing.T) {
	direct := dialPlain(t, etcdtest.Start(t).Endpoint())
	through := startPass(t, "127.0.0.1:1", func(c *etcdapi.Config) { c.Etcd = unasked{c.Etcd, t} }).conn
	op, err := proto.Marshal(ops{}.delFrom("a")[0])
	if err != nil {
		t.Fatal(err)
	}
	put, err := proto.Marshal(&etcdserverpb.TxnRequest{Success: ops{}.keepValue("b")})
	if err != nil {
		t.Fatal(err)
	}
	const success = 2<<3 | 2
	for name, tag := range map[string][]byte{
		"a field number beyond 32 bits": protowire.AppendVarint(nil, 1<<35|success),
		"a varint beyond 64 bits":       {0x80 | success, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2},
	} {
		b := slices.Concat(protowire.AppendBytes(tag, op), put)
		var got []string
		for _, conn := range []*grpc.ClientConn{direct, through} {
			request := &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}}
			err := conn.Invoke(within(t), etcdserverpb.KV_Txn_FullMethodName, request, new(wire.Encoded), grpc.ForceCodecV2(newCodec()))
			got = append(got, outcome(new(etcdserverpb.TxnResponse), err))
		}
		if got[0] != got[1] || !strings.Contains(got[0], "Internal") {
			t.Errorf("%s\netcd:    %s\nthrough: %s", name, got[0], got[1])
		}
	}
}

// unasked is an etcd that must not get any request.
type unasked struct {
	etcdapi.Upstream
	t *testing.T
}

func (u unasked) ProxyConn() grpc.ClientConnInterface {
	u.t.Error("the request reached etcd")
	return u.Upstream.ProxyConn()
}

// kills is isDeadly for a decoded transaction and one path through the branches: the bits of
// choices select the branch of each successive transaction.
func kills(txn *etcdserverpb.TxnRequest, choices uint, deleted *[]string) (rest uint, yes bool) {
	branch := txn.GetSuccess()
	if choices&1 == 1 {
		branch = txn.GetFailure()
	}
	choices >>= 1
	for _, op := range branch {
		switch r := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			if key := string(r.RequestDeleteRange.GetKey()); key != "" && string(r.RequestDeleteRange.GetRangeEnd()) == "\x00" {
				*deleted = append(*deleted, key)
			}
		case *etcdserverpb.RequestOp_RequestPut:
			if slices.ContainsFunc(*deleted, func(from string) bool { return from <= string(r.RequestPut.GetKey()) }) {
				return 0, true
			}
		case *etcdserverpb.RequestOp_RequestTxn:
			if choices, yes = kills(r.RequestTxn, choices, deleted); yes {
				return 0, true
			}
		}
	}
	return choices, false
}

// transactions returns the number of transactions in txn, including itself.
func transactions(txn *etcdserverpb.TxnRequest) int {
	n := 1
	for _, op := range slices.Concat(txn.GetSuccess(), txn.GetFailure()) {
		if inner := op.GetRequestTxn(); inner != nil {
			n += transactions(inner)
		}
	}
	return n
}

// The scan of an encoded transaction has the same result as a check of the decoded one, for all
// encodings, unless an operation has several parts.
func FuzzDeadlyTransactions(f *testing.F) {
	for _, all := range []map[string]ops{deadly(), deadlyOnceCompacted(), harmless()} {
		for _, o := range all {
			for _, r := range []*etcdserverpb.TxnRequest{{Success: o}, {Failure: o}, {Success: ops{}.delFrom("a"), Failure: o}} {
				b, err := proto.Marshal(r)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b)
				f.Add(append(b, b...))
			}
		}
	}
	// One operation in two parts, and two operations of which the last counts.
	one := func(o ops) []byte {
		b, _ := proto.Marshal(o[0])
		return b
	}
	txn := func(ops ...[]byte) (b []byte) {
		for _, o := range ops {
			b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), o)
		}
		return b
	}
	del := one(ops{}.delFrom("a"))
	f.Add(txn(del, slices.Concat(one(ops{}.putValue("b")), one(ops{}.keepValue("")), one(ops{}.putValue("")))))
	f.Add(txn(del, slices.Concat(one(ops{}.keepValue("b")), one(ops{}.get("b")))))
	f.Add(txn(del, slices.Concat(one(ops{}.get("b")), one(ops{}.keepValue("b")))))
	f.Add(txn(slices.Concat(one(ops{}.txn(ops{}.delFrom("a"), nil)), one(ops{}.txn(ops{}.keepValue("b"), nil)))))
	f.Add(txn(append(del, 0x0b, 0x0c))) // a group
	f.Fuzz(func(t *testing.T, b []byte) {
		var r etcdserverpb.TxnRequest
		if proto.Unmarshal(b, &r) != nil {
			etcdapi.IsDeadly(b) // must return
			return
		}
		n := transactions(&r)
		if n > 10 {
			return // too many paths
		}
		want := false
		for choices := range uint(1) << n {
			_, yes := kills(&r, choices, new([]string))
			want = want || yes
		}
		one, err := proto.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		if got := etcdapi.IsDeadly(one); got != want || etcdapi.IsSplit(one) {
			t.Errorf("%v: got %v, want %v; in parts: %v", &r, got, want, etcdapi.IsSplit(one))
		}
		if got := etcdapi.IsDeadly(b); got != want && !etcdapi.IsSplit(b) {
			t.Errorf("%v, as it came: got %v, want %v", &r, got, want)
		}
	})
}

// The scan of the largest transactions is linear in their size, whatever they contain.
func TestScansOfLargeTransactionsAreLinear(t *testing.T) {
	many := bytes.Repeat([]byte{0x12, 0}, 1<<20) // empty operations
	parts := append(protowire.AppendVarint([]byte{0x12}, 2<<20), bytes.Repeat([]byte{0x12, 2, 0x28, 1}, 1<<19)...)
	for name, b := range map[string][]byte{
		"many": many, "parts": parts, "nested": nest(20_000, nil, nil), "nested in parts": nest(1000, split, bytes.Repeat([]byte{0x12, 0}, 1<<19)),
	} {
		for what, look := range map[string]func(){
			"etcd's survival": func() {
				if etcdapi.IsDeadly(b) {
					t.Errorf("%s: deadly", name)
				}
			},
			"the policy": func() { etcdapi.CountOperations(b) },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			look()
			runtime.ReadMemStats(&after)
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 8*uint64(len(b)) {
				t.Errorf("%s, for %s: %d bytes for a transaction of %d", name, what, cost, len(b))
			}
		}
	}
}

// The scan stops at an operation in several parts: a scan of 1 MiB of empty operations within it
// would cost more than receiving them.
func TestAScanStopsAtASplitOperation(t *testing.T) {
	broken := []byte{0x12, 0x7f} // the length is beyond the end
	if b := nest(3, nil, broken); etcdapi.IsSplit(b) || !etcdapi.IsMalformed(b) {
		t.Error("the malformed part was not found without a split operation")
	}
	if b := nest(3, split, broken); !etcdapi.IsSplit(b) || etcdapi.IsMalformed(b) {
		t.Error("the scan continued after the split operation")
	}
}

// split is an empty transaction, as one part of an operation.
var split = []byte{0x22, 0}

// nest returns nested transactions, with inner in the innermost one. Each operation begins with
// part.
func nest(levels int, part, inner []byte) []byte {
	out := slices.Clone(inner) // built from the inside out, reversed
	slices.Reverse(out)
	prepend := func(b []byte) {
		for _, c := range slices.Backward(b) {
			out = append(out, c)
		}
	}
	for range levels {
		prepend(protowire.AppendVarint([]byte{0x22}, uint64(len(out)))) // within an operation
		prepend(part)
		prepend(protowire.AppendVarint([]byte{0x12}, uint64(len(out)))) // within the first branch
	}
	slices.Reverse(out)
	return out
}

// Valid nested transactions have the same result as at etcd, and too many levels are refused as by
// etcd. An operation in several parts, which no client encodes, is refused before it costs
// anything.
func TestNestedTransactions(t *testing.T) {
	e := etcdtest.Start(t)
	direct, through := dialPlain(t, e.Endpoint()), startPass(t, e.Endpoint()).conn
	do := func(conn *grpc.ClientConn, b []byte) (*etcdserverpb.TxnResponse, error) {
		request, answer := &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}}, new(wire.Encoded)
		if err := conn.Invoke(within(t), etcdserverpb.KV_Txn_FullMethodName, request, answer, grpc.ForceCodecV2(newCodec())); err != nil {
			return nil, err
		}
		out := new(etcdserverpb.TxnResponse)
		return out, newCodec().Unmarshal(answer.Buffers, out)
	}
	inner, err := proto.Marshal(&etcdserverpb.TxnRequest{Success: ops{}.get("none")})
	if err != nil {
		t.Fatal(err)
	}
	for _, levels := range []int{0, 1, 2, 50, 126, 127, 128, 1000, 4998, 4999, 5000, 5001, 20_000} {
		b := nest(levels, nil, inner)
		r1, err1 := do(direct, b)
		r2, err2 := do(through, b)
		if want, got := outcome(r1, err1), outcome(r2, err2); want != got {
			t.Errorf("%d levels\netcd:    %s\nthrough: %s", levels, want, got)
		}
		if (err1 == nil) != (levels < 128) {
			t.Errorf("%d levels: etcd has another limit: %v", levels, err1)
		}
		if levels == 0 {
			continue
		}
		if _, err := do(through, nest(levels, split, inner)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d levels in parts: %v", levels, err)
		}
	}
}

// The reason for the refusals: such a transaction crashes etcd, and again at each restart. If this
// test fails, etcd refuses the transactions itself.
func TestDeadlyTransactionsCrashEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many etcds")
	}
	for name, o := range deadly() {
		t.Run(name, func(t *testing.T) {
			p := etcdtest.StartProcess(t)
			kv := etcdserverpb.NewKVClient(dialPlain(t, p.Endpoint()))
			if _, err := kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.putValue("a").putValue("b").putValue("c")}); err != nil {
				t.Fatal(err)
			}
			if r, err := kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: o}); status.Code(err) != codes.Unavailable {
				t.Fatalf("etcd has not crashed: %v, %v", r, err)
			}
			_ = p.Kill() // etcd has crashed, but p has not noticed
			if err := p.Start(within(t)); err == nil {
				t.Error("etcd has restarted")
			}
		})
	}
}

// Likewise for transactions that crash etcd only after a compaction.
func TestTransactionsThatAreDeadlyOnceCompacted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many etcds")
	}
	for name, o := range deadlyOnceCompacted() {
		t.Run(name, func(t *testing.T) {
			p := etcdtest.StartProcess(t)
			kv := etcdserverpb.NewKVClient(dialPlain(t, p.Endpoint()))
			if _, err := kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.putValue("a").putValue("b").putValue("c")}); err != nil {
				t.Fatal(err)
			}
			r, err := kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: o})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kv.Compact(within(t), &etcdserverpb.CompactionRequest{Revision: r.GetHeader().GetRevision(), Physical: true}); err != nil {
				t.Fatal(err)
			}
			if r, err := kv.Range(within(t), &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); status.Code(err) != codes.Unavailable {
				t.Fatalf("etcd has not crashed: %v, %v", r, err)
			}
		})
	}
}
