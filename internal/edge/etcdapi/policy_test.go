package etcdapi_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// does returns the policy checks for a decoded transaction, as a model.
func does(txn *etcdserverpb.TxnRequest) (did []string) {
	on := func(v policy.Verb, key, end []byte) {
		r, err := kv.RangeFromEtcd(key, end)
		if err != nil {
			r = kv.Single(string(key))
		}
		did = append(did, fmt.Sprintf("%v %v", v, r))
	}
	for _, c := range txn.GetCompare() {
		on(policy.Read, c.GetKey(), c.GetRangeEnd())
	}
	for _, op := range slices.Concat(txn.GetSuccess(), txn.GetFailure()) {
		switch r := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			on(policy.Read, r.RequestRange.GetKey(), r.RequestRange.GetRangeEnd())
		case *etcdserverpb.RequestOp_RequestPut:
			on(policy.Write, r.RequestPut.GetKey(), nil)
			if r.RequestPut.GetPrevKv() {
				on(policy.Read, r.RequestPut.GetKey(), nil)
			}
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			d := r.RequestDeleteRange
			on(policy.Write, d.GetKey(), d.GetRangeEnd())
			if d.GetPrevKv() {
				on(policy.Read, d.GetKey(), d.GetRangeEnd())
			}
		case *etcdserverpb.RequestOp_RequestTxn:
			did = append(did, does(r.RequestTxn)...)
		}
	}
	return did
}

// A newer etcd may have operations that are unknown here. They require an administrator.
func TestUnknownOperationsAreForAdministrators(t *testing.T) {
	message := func(number protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	}
	get := message(1, message(1, []byte("k")))
	for name, op := range map[string][]byte{"alone": message(5, get), "behind another": append(slices.Clone(get), message(5, get)...)} {
		did, ok := etcdapi.Operations(message(2, op))
		if want := fmt.Sprintf("%v %v", policy.OperatorWrite, kv.Range{}); !ok || !slices.Contains(did, want) {
			t.Errorf("%s: checks %q, want %q", name, did, want)
		}
	}
}

// The policy checks every operation that etcd may execute in a transaction.
func FuzzThePolicyIsAskedAboutAllOfATransaction(f *testing.F) {
	for _, o := range []ops{
		nil,
		ops{}.get("a").putValue("b").delFrom("c").del("d", "e"),
		ops{}.txn(ops{}.putValue("a").txn(ops{}.get("x"), ops{}.delFrom("b")), ops{}.get("y")),
		ops{}.put(&etcdserverpb.PutRequest{Key: []byte("k"), Value: make([]byte, 100), PrevKv: true}),
		{&etcdserverpb.RequestOp{}, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("z"), PrevKv: true},
		}}},
	} {
		b, err := proto.Marshal(&etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{{Key: []byte("a")}, {Key: []byte("b"), RangeEnd: []byte("c")}}, Success: o, Failure: o,
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var txn etcdserverpb.TxnRequest
		if proto.Unmarshal(b, &txn) != nil {
			return // etcd refuses it
		}
		did, ok := etcdapi.Operations(b)
		if !ok {
			return // refused by the node
		}
		for _, want := range does(&txn) {
			if !slices.Contains(did, want) {
				t.Errorf("no policy check for %s (only for %q)", want, did)
			}
		}
	})
}
