package etcdapi_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/etcdtest"
)

// ops are operations of a transaction, built in the order of its words.
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

// deadly are transactions that etcd 3.7.3 does not survive, when it has a, b
// and c.
func deadly() map[string]ops {
	return map[string]ops{
		"keeps the value":           ops{}.delFrom("a").keepValue("b"),
		"keeps the lease":           ops{}.delFrom("a").keepLease("b"),
		"of the first key":          ops{}.delFrom("b").keepValue("b"),
		"everything is deleted":     ops{}.delFrom("\x00").keepValue("a"),
		"the lower delete counts":   ops{}.delFrom("c").delFrom("a").keepValue("b"),
		"nested put":                ops{}.delFrom("a").txn(ops{}.keepValue("b"), nil),
		"nested delete":             ops{}.txn(ops{}.delFrom("a"), nil).keepValue("b"),
		"a put in between":          ops{}.delFrom("a").putValue("a").keepValue("b"),
		"one branch after another":  ops{}.txn(ops{}.delFrom("a"), nil).txn(ops{}.keepValue("b"), nil),
		"deep":                      ops{}.txn(ops{}.txn(ops{}.delFrom("a"), nil), nil).txn(ops{}.txn(ops{}.keepLease("b"), nil), nil),
		"what is read is forgotten": ops{}.delFrom("a").get("b").keepValue("b"),
	}
}

// harmless are transactions that look like those and are not: etcd does them,
// or refuses them itself.
func harmless() map[string]ops {
	return map[string]ops{
		"a key below":               ops{}.delFrom("b").keepValue("a"),
		"the put comes first":       ops{}.keepValue("b").delFrom("a"),
		"a new value":               ops{}.delFrom("a").putValue("b"),
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

// etcd does not survive some transactions, and never again once it has one of
// them. They do not get through; all others do, and come to what they come to
// at etcd.
func TestDeadlyTransactionsAreRefused(t *testing.T) {
	direct, behind := etcdtest.Start(t), etcdtest.Start(t)
	through := etcdserverpb.NewKVClient(startPass(t, behind.Endpoint()).conn)
	both := []etcdserverpb.KVClient{etcdserverpb.NewKVClient(dialPlain(t, direct.Endpoint())), through}
	do := func(kv etcdserverpb.KVClient, o ops) (*etcdserverpb.TxnResponse, error) {
		return kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: o})
	}
	fill := ops{}.putValue("a").putValue("b").putValue("c")
	for name, o := range deadly() {
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
	for at := int64(0); at < now.GetHeader().GetRevision(); { // both at one revision
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
				t.Fatalf("%s: etcd is gone: %v", name, err)
			}
			r, err := do(kv, o)
			got = append(got, outcome(r, err))
		}
		if got[0] != got[1] {
			t.Errorf("%s\netcd:    %s\nthrough: %s", name, got[0], got[1])
		}
	}
}

// The reason for refusing anything: an etcd that gets one of them is gone, and
// does not come back. When this fails, etcd has learnt to refuse them itself.
func TestDeadlyTransactionsAreDeadly(t *testing.T) {
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
				t.Fatalf("etcd lives: %v, %v", r, err)
			}
			_ = p.Kill() // it is dead, but p does not know
			if err := p.Start(within(t)); err == nil {
				t.Error("etcd came back")
			}
		})
	}
}
