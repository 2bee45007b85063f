package differential_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// cell is one key of the store; the zero cell is a missing key.
type cell struct {
	value string
	mod   int64
}

// store is all keys, each in a separate shard, at a revision.
type store struct {
	revision int64
	cells    [6]cell
}

func cellKey(i int) []byte { return fmt.Appendf(nil, "/%c/cell", 'a'+i) }

// operation is a client's request.
type operation struct {
	kind string // read, all, put, delete, swap
	key  int
	// value is put, also by a swap, which puts if the last change of the key was at mod, and
	// otherwise reads the key. A swap also puts the key after it.
	value string
	mod   int64
}

// outcome is the answer.
type outcome struct {
	unknown  bool // there was no answer: it may take effect at any time, or never
	revision int64
	did      bool // a delete has deleted something; a swap has put
	seen     map[int]cell
}

// linear is a model of etcd: every change has a separate revision, and a read returns its revision.
func linear(initial store) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, in, out any) (bool, any) {
			s, op, o := state.(store), in.(operation), out.(outcome)
			next := s.after(op)
			if o.unknown {
				return true, next
			}
			changed := next.revision != s.revision
			switch op.kind {
			case "delete", "swap":
				if o.did != changed {
					return false, s
				}
			}
			for i, c := range o.seen {
				if s.cells[i] != c {
					return false, s
				}
			}
			return o.revision == next.revision, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
	}
}

// after returns the store behind an operation.
func (s store) after(op operation) store {
	set := func(i int, value string) { s.cells[i] = cell{value, s.revision + 1} }
	switch op.kind {
	case "put":
		set(op.key, op.value)
	case "swap":
		if s.cells[op.key].mod != op.mod {
			return s
		}
		set(op.key, op.value)
		set((op.key+1)%len(s.cells), op.value)
	case "delete":
		if s.cells[op.key] == (cell{}) {
			return s
		}
		s.cells[op.key] = cell{}
	default:
		return s
	}
	s.revision++
	return s
}

// do sends an operation to a node, and returns the outcome.
func (op operation) do(ctx context.Context, cc *grpc.ClientConn) outcome {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kvs := pb.NewKVClient(cc)
	key, value := cellKey(op.key), []byte(op.value)
	seen := func(only int, list []*mvccpb.KeyValue) map[int]cell {
		out := map[int]cell{}
		for i := range len(store{}.cells) {
			if only < 0 || only == i {
				out[i] = cell{}
			}
		}
		for _, k := range list {
			out[int(k.Key[1]-'a')] = cell{string(k.Value), k.ModRevision}
		}
		return out
	}
	put := func(i int) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: cellKey(i), Value: value}}}
	}
	switch op.kind {
	case "read":
		if r, err := kvs.Range(ctx, &pb.RangeRequest{Key: key}); err == nil {
			return outcome{revision: r.Header.Revision, seen: seen(op.key, r.Kvs)}
		}
	case "all":
		if r, err := kvs.Range(ctx, &pb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0")}); err == nil {
			return outcome{revision: r.Header.Revision, seen: seen(-1, r.Kvs)}
		}
	case "put":
		if r, err := kvs.Put(ctx, &pb.PutRequest{Key: key, Value: value}); err == nil {
			return outcome{revision: r.Header.Revision}
		}
	case "delete":
		if r, err := kvs.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key}); err == nil {
			return outcome{revision: r.Header.Revision, did: r.Deleted > 0}
		}
	case "swap":
		r, err := kvs.Txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: op.mod}}},
			Success: []*pb.RequestOp{put(op.key), put((op.key + 1) % len(store{}.cells))},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
		})
		if err == nil {
			o := outcome{revision: r.Header.Revision, did: r.Succeeded}
			if !r.Succeeded {
				o.seen = seen(op.key, r.Responses[0].GetResponseRange().Kvs)
			}
			return o
		}
	}
	return outcome{unknown: true}
}

// history runs concurrent reads and writes of clients, each through all nodes in turn, and returns
// the operations with their outcomes, and the initial store.
func history(t *testing.T, nodes []*grpc.ClientConn, clients, each int, seed uint64) (initial store, ops []porcupine.Operation) {
	t.Helper()
	r, err := pb.NewKVClient(nodes[0]).DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	initial.revision = r.Header.Revision
	began := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for c := range clients {
		d := rand.New(rand.NewPCG(seed, uint64(c)))
		all.Go(func() {
			known := map[int]int64{}
			for i := range each {
				op := operation{key: d.IntN(len(initial.cells)), value: fmt.Sprintf("%d of client %d", i, c)}
				op.kind = []string{"read", "read", "read", "all", "all", "put", "put", "delete", "swap", "swap", "swap"}[d.IntN(11)]
				op.mod = known[op.key]
				node := nodes[(c+i)%len(nodes)]
				call := time.Since(began)
				o := op.do(t.Context(), node)
				done := porcupine.Operation{ClientId: c, Input: op, Call: int64(call), Output: o, Return: int64(time.Since(began))}
				for k, s := range o.seen {
					known[k] = s.mod
				}
				if o.unknown {
					done.Return = math.MaxInt64
					if op.kind == "read" || op.kind == "all" {
						continue // it has no effect
					}
				}
				mu.Lock()
				ops = append(ops, done)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return initial, ops
}

// judge reports whether some order of the operations explains all answers.
func judge(initial store, ops []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(linear(initial), ops, time.Minute)
}

// Reads and writes through different nodes are linearizable.
func TestLinearizable(t *testing.T) {
	sides := theTier(t).Sides
	first := firstSeed(t)
	for i := range uint64(*rounds) {
		initial, ops := history(t, sides.Through, 8, 60, first+i)
		linearizable(t, first+i, initial, ops)
	}
}

// linearizable fails unless all operations were answered and are linearizable.
func linearizable(t *testing.T, seed uint64, initial store, ops []porcupine.Operation) {
	t.Helper()
	unknown, swapped := 0, 0
	for _, op := range ops {
		o := op.Output.(outcome)
		if o.unknown {
			unknown++
		}
		if op.Input.(operation).kind == "swap" && o.did {
			swapped++
		}
	}
	if result := judge(initial, ops); result != porcupine.Ok {
		t.Errorf("seed %d: %d operations are %s", seed, len(ops), result)
		for _, op := range ops {
			t.Log(op.ClientId, op.Call, op.Return, linear(initial).DescribeOperation(op.Input, op.Output))
		}
	}
	if unknown > 0 || swapped == 0 {
		t.Errorf("seed %d: %d operations had no answer, %d swaps were done", seed, unknown, swapped)
	}
}

// A stale read is detected, however little it lags.
func TestStaleReadsAreFound(t *testing.T) {
	sides := plainSides(t)
	if initial, ops := history(t, sides.Through, 4, 30, 1); judge(initial, ops) != porcupine.Ok {
		t.Fatal("etcd is not linearizable")
	}
	var mu sync.Mutex
	reads, old := 0, map[string][]byte{}
	stale := plant{method: "KV.Range", response: func(c *call, m proto.Message) []proto.Message {
		mu.Lock()
		defer mu.Unlock()
		key := string(c.requests[0].(*pb.RangeRequest).Key)
		before := old[key]
		old[key] = bytesOf(m)
		if reads++; reads%40 == 0 && before != nil { // the previous outcome
			proto.Reset(m)
			if err := proto.Unmarshal(before, m); err != nil {
				t.Error(err)
			}
		}
		return []proto.Message{m}
	}}
	nodes := []*grpc.ClientConn{dial(t, stale.serve(t, sides.Direct)), sides.Through[0]}
	for seed := range uint64(20) {
		if initial, ops := history(t, nodes, 4, 60, seed); judge(initial, ops) == porcupine.Illegal {
			return
		}
	}
	t.Error("stale reads were not found")
}
