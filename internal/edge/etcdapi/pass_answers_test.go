package etcdapi_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

func (o ops) list(key, end string) ops {
	return append(o, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}})
}

// wideRig is an API without a cache, in front of an etcd with 3 MB of data, and with a budget of 4
// MiB for lists.
func wideRig(t *testing.T) (*passRig, *budget.Budget) {
	t.Helper()
	b := budget.New(16 << 20)
	rig := startPass(t, etcdtest.Start(t).Endpoint(), func(cfg *etcdapi.Config) { cfg.Budget = b })
	for i := range 300 {
		if _, err := etcdserverpb.NewKVClient(rig.conn).Put(within(t), &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/k/%03d", i), Value: bytes.Repeat([]byte("v"), 10_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if held := b.Held(budget.Lists); held != 0 {
		t.Fatalf("%d bytes are held after small answers", held)
	}
	return rig, b
}

// unread makes a call on a separate connection and does not read the answer.
func (r *passRig) unread(ctx context.Context, t *testing.T, method string, request proto.Message) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = s.SendMsg(request)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Unread answers forwarded from etcd count against the budget, whether their size is reserved in
// advance or on arrival. Further lists are refused until these answers are read or dropped.
func TestAnswersOfEtcdsAreBounded(t *testing.T) {
	t.Parallel()
	list := &etcdserverpb.TxnRequest{Success: ops{}.list("/k/", "/k0")}
	for what, request := range map[string]*etcdserverpb.TxnRequest{
		"read":  list,
		"write": {Success: ops{}.list("/k/", "/k0").putValue("/other")},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rig, b := wideRig(t)
			kvs := etcdserverpb.NewKVClient(rig.conn)
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			first := rig.unread(ctx, t, etcdserverpb.KV_Txn_FullMethodName, request)
			testkit.Eventually(t, "the unread answer counts against the budget", func() bool { return b.Held(budget.Lists) > 3_000_000 })
			if _, err := kvs.Txn(within(t), list); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), budget.Flag) {
				t.Errorf("a list beside an unread answer: %v", err)
			}
			if r, err := kvs.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.get("/k/007").putValue("/small")}); err != nil || len(r.GetResponses()) != 2 {
				t.Errorf("a small transaction: %v, %v", r, err)
			}
			var answer etcdserverpb.TxnResponse
			if err := first.RecvMsg(&answer); err != nil || len(answer.GetResponses()[0].GetResponseRange().GetKvs()) != 300 {
				t.Errorf("the first answer: %d responses, %v", len(answer.GetResponses()), err)
			}
			testkit.Eventually(t, "the bytes of the read answer are released", func() bool { return b.Held(budget.Lists) == 0 })
			if r, err := kvs.Txn(within(t), list); err != nil || len(r.GetResponses()[0].GetResponseRange().GetKvs()) != 300 {
				t.Errorf("a list after the release: %v", err)
			}
			rig.unread(ctx, t, etcdserverpb.KV_Txn_FullMethodName, request)
			testkit.Eventually(t, "the second unread answer counts against the budget", func() bool { return b.Held(budget.Lists) > 3_000_000 })
			cancel()
			testkit.Eventually(t, "the bytes of the dropped answer are released", func() bool { runtime.GC(); return b.Held(budget.Lists) == 0 })
		})
	}
}

// A write whose answer exceeds the budget for lists is executed, and the error says so. A read of
// that size succeeds if it is the only one.
func TestAnswersLargerThanTheBudget(t *testing.T) {
	t.Parallel()
	rig, b := wideRig(t)
	kvs := etcdserverpb.NewKVClient(rig.conn)
	twice := ops{}.list("/k/", "/k0").list("/k/", "/k0")
	if r, err := kvs.Txn(within(t), &etcdserverpb.TxnRequest{Success: twice}, grpc.MaxCallRecvMsgSize(16<<20)); err != nil || proto.Size(r) < 6_000_000 {
		t.Errorf("a read: %d bytes, %v", proto.Size(r), err)
	}
	_, err := kvs.Txn(within(t), &etcdserverpb.TxnRequest{Success: twice.putValue("/written")}, grpc.MaxCallRecvMsgSize(16<<20))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "etcd has executed") {
		t.Errorf("a write: %v", err)
	}
	if r, err := kvs.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.get("/written")}); err != nil || r.GetResponses()[0].GetResponseRange().GetCount() != 1 {
		t.Errorf("the written answer: %v, %v", r, err)
	}
	if r, err := kvs.DeleteRange(within(t), &etcdserverpb.DeleteRangeRequest{Key: []byte("/k/"), RangeEnd: []byte("/k0"), PrevKv: true}); err != nil || len(r.GetPrevKvs()) != 300 {
		t.Errorf("a delete: %d keys, %v", len(r.GetPrevKvs()), err)
	}
	testkit.Eventually(t, "all bytes are released", func() bool { runtime.GC(); return b.Held(budget.Lists) == 0 })
}

// The answers of writes that return single keys count against the budget, too. A write whose answer has no room there is
// executed, and the error says so; another client's lists find room.
func TestAnswersOfSingleKeysAreBounded(t *testing.T) {
	t.Parallel()
	key := func(i int) string { return fmt.Sprintf("/large/%d", i) }
	for what, c := range map[string]struct {
		method  string
		request func(i int) proto.Message
	}{
		"put":    {etcdserverpb.KV_Put_FullMethodName, func(i int) proto.Message { return &etcdserverpb.PutRequest{Key: []byte(key(i)), PrevKv: true} }},
		"delete": {etcdserverpb.KV_DeleteRange_FullMethodName, func(i int) proto.Message { return &etcdserverpb.DeleteRangeRequest{Key: []byte(key(i)), PrevKv: true} }},
		"transaction": {etcdserverpb.KV_Txn_FullMethodName, func(i int) proto.Message {
			return &etcdserverpb.TxnRequest{Success: ops{}.get(key(i)).get("/k/000").putValue(key(i))}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rig, b := wideRig(t)
			kvs := etcdserverpb.NewKVClient(rig.conn)
			for i := range 2 {
				if _, err := kvs.Put(within(t), &etcdserverpb.PutRequest{Key: []byte(key(i)), Value: make([]byte, 1_200_000)}); err != nil {
					t.Fatal(err)
				}
			}
			rig.unread(within(t), t, c.method, c.request(0))
			testkit.Eventually(t, "the unread answer counts against the budget", func() bool { return b.Held(budget.Lists) > 1_200_000 })
			second := rig.unread(within(t), t, c.method, c.request(1))
			if err := second.RecvMsg(new(etcdserverpb.TxnResponse)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "etcd has executed") {
				t.Errorf("a write beside an unread answer: %v", err)
			}
			if held := b.Held(budget.Lists); held > 2<<20 { // half of the share of lists
				t.Errorf("%d bytes are held", held)
			}
			if r, err := kvs.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.list(key(1), key(2))}); err != nil || proto.Size(r) > 1000 {
				t.Errorf("the refused write is not executed: %d bytes, %v", proto.Size(r), err)
			}
			other := etcdserverpb.NewKVClient(dialFrom(t, "127.0.0.2", rig.addr))
			if r, err := other.Txn(within(t), &etcdserverpb.TxnRequest{Success: ops{}.list("/k/0", "/k/1")}); err != nil || len(r.GetResponses()[0].GetResponseRange().GetKvs()) != 100 {
				t.Errorf("another client's list: %v", err)
			}
		})
	}
}

// The answer of a transaction may be large if it has the keys of a range, or more than one key. Only one branch is
// executed.
func TestWhichTransactionsHaveLargeAnswers(t *testing.T) {
	t.Parallel()
	previous := func(o ops) ops {
		for _, op := range o {
			if p := op.GetRequestPut(); p != nil {
				p.PrevKv = true
			}
			if d := op.GetRequestDeleteRange(); d != nil {
				d.PrevKv = true
			}
		}
		return o
	}
	for what, c := range map[string]struct {
		request *etcdserverpb.TxnRequest
		want    bool
	}{
		"one key":                     {&etcdserverpb.TxnRequest{Success: ops{}.get("a").putValue("b").putValue("c")}, false},
		"one key in each branch":      {&etcdserverpb.TxnRequest{Success: previous(ops{}.putValue("a")), Failure: ops{}.get("a").putValue("b")}, false},
		"a range":                     {&etcdserverpb.TxnRequest{Success: ops{}.list("a", "b")}, true},
		"two keys":                    {&etcdserverpb.TxnRequest{Success: ops{}.get("a").putValue("b").get("c")}, true},
		"two keys in the else branch": {&etcdserverpb.TxnRequest{Success: ops{}.get("a"), Failure: ops{}.get("a").get("c")}, true},
		"two previous keys":           {&etcdserverpb.TxnRequest{Success: previous(ops{}.putValue("a").del("b", ""))}, true},
		"writes alone":                {&etcdserverpb.TxnRequest{Success: ops{}.putValue("a").del("b", "")}, false},
		"one key, nested":             {&etcdserverpb.TxnRequest{Success: ops{}.txn(ops{}.get("a"), ops{}.get("b")).putValue("c")}, false},
		"two keys, one nested":        {&etcdserverpb.TxnRequest{Success: ops{}.txn(nil, ops{}.get("b")).get("c")}, true},
		"two nested keys":             {&etcdserverpb.TxnRequest{Failure: ops{}.txn(ops{}.get("a"), nil).txn(nil, ops{}.get("b"))}, true},
	} {
		b, err := proto.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		if got := etcdapi.IsLarge(b); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}
