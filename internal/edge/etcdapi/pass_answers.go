package etcdapi

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/protofields"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Forwarded answers of etcd may be as large as its database, and are kept until their
// clients have read them. Above freeAnswer they count against the budget, like lists that
// this node answers.

const (
	// freeAnswer is the largest answer that takes nothing from the budget, in bytes.
	freeAnswer = leastChunk
	// askTries bounds the attempts of a request whose answer grows.
	askTries = 5
	// leastPooled is the smallest capacity of a buffer that gRPC returns to its pool.
	leastPooled = 2 << 10
	// maxWide bounds the concurrent writes to etcd whose answers may be large:
	// the budget counts their answers only on arrival. An answer with one key is not large.
	maxWide = 4
)

// ask forwards a read-only request to etcd. If the answer is larger than the reserved
// bytes, it is dropped unread, its size is reserved, and the request is sent again.
func (a *API) ask(ctx context.Context, name string, request any) (*wire.Encoded, error) {
	held := &heldAnswer{budget: a.cfg.Budget, holder: a.holder(ctx)()}
	limit := int64(freeAnswer)
	for range askTries {
		answer := new(wire.Encoded)
		err := a.cfg.Etcd.ProxyConn().Invoke(ctx, name, again(request), answer, grpc.MaxCallRecvMsgSize(int(limit)))
		if err == nil {
			held.attach(answer)
			return answer, nil
		}
		size, large := wire.TooLarge(err)
		if !large {
			held.release()
			return nil, err
		}
		limit = int64(size) + int64(size)/8
		if err := held.resize(limit); err != nil {
			a.reads.chunks.collect()
			return nil, wire.Status(err)
		}
	}
	held.release()
	return nil, wire.Status(&kv.UnavailableError{Why: kv.NotReady, Detail: "the response grows faster than the client reads it: request less"})
}

// again returns a copy of a request, so that the original can be sent again.
func again(request any) any {
	e, ok := request.(*wire.Encoded)
	if !ok {
		return request
	}
	e.Buffers.Ref()
	return &wire.Encoded{Buffers: e.Buffers}
}

// once forwards a call that may write, and so must not be sent twice. Its answer counts against
// the budget from its arrival, and is lost if the budget has no room for it, though etcd has executed
// the request.
func (a *API) once(ctx context.Context, name string, request any) (*wire.Encoded, error) {
	return a.onceWith(ctx, name, request)
}

// onceWide is once for a request whose answer may be large. At most maxWide are sent to
// etcd at a time. An answer that exceeds the budget of all lists together is lost, too.
func (a *API) onceWide(ctx context.Context, name string, request any) (*wire.Encoded, error) {
	leave, err := a.reads.wide.Wait(ctx, a.holder(ctx)().Name)
	if err != nil {
		return nil, err
	}
	defer leave()
	share := a.cfg.Budget.Share(budget.Lists)
	answer, err := a.onceWith(ctx, name, request, grpc.MaxCallRecvMsgSize(int(min(share, math.MaxInt32))))
	if _, large := wire.TooLarge(err); large {
		err = errLost(budget.Flag, share, "it exceeds the memory for lists: read less with each write")
	}
	return answer, err
}

// errLost returns the error of a write whose answer is lost. It has no delay after which to try again: the client
// decides whether to write a second time.
func errLost(limit string, most int64, why string) error {
	return wire.Status(&kv.LimitError{Limit: limit, Max: most, Detail: "etcd has executed the request, but its response is lost: " + why})
}

func (a *API) onceWith(ctx context.Context, name string, request any, opts ...grpc.CallOption) (*wire.Encoded, error) {
	answer := new(wire.Encoded)
	if err := a.cfg.Etcd.ProxyConn().Invoke(ctx, name, request, answer, opts...); err != nil {
		return nil, err
	}
	if size := int64(answer.Buffers.Len()); size > freeAnswer {
		held := &heldAnswer{budget: a.cfg.Budget, holder: a.holder(ctx)()}
		if err := held.resize(size); err != nil {
			answer.Buffers.Free()
			a.reads.chunks.collect()
			var full *kv.LimitError
			if !errors.As(err, &full) {
				return nil, wire.Status(err)
			}
			return nil, errLost(full.Limit, full.Max, "unread responses use the memory for lists: read the pending responses")
		}
		held.attach(answer)
	}
	return answer, nil
}

// heldAnswer is the reservation of an answer of etcd in the budget. It ends when gRPC returns a
// buffer of the sent answer; see answerLease.
type heldAnswer struct {
	budget *budget.Budget
	holder budget.Client
	mu     sync.Mutex
	n      int64 // guarded by mu
}

// resize changes the reservation to n bytes. If it fails, nothing is reserved.
func (h *heldAnswer) resize(n int64) error {
	h.release()
	if err := h.budget.Take(h.holder, budget.Lists, n, 0); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n = n
	return nil
}

func (h *heldAnswer) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n > 0 {
		h.budget.Give(h.holder, budget.Lists, h.n)
	}
	h.n = 0
}

// attach releases the reservation with the last buffer of the answer, or when the
// garbage collector frees that buffer: gRPC does not return the buffers of streams
// whose connection breaks.
func (h *heldAnswer) attach(answer *wire.Encoded) {
	last := len(answer.Buffers) - 1
	if h.n == 0 || last < 0 {
		h.release()
		return
	}
	end := answer.Buffers[last].ReadOnlyData()
	data := append(make([]byte, 0, max(len(end), leastPooled)), end...)
	answer.Buffers[last].Free()
	lease := &answerLease{h}
	runtime.AddCleanup(lease, func(h *heldAnswer) { h.release() }, h)
	answer.Buffers[last] = mem.NewBuffer(&data, lease)
}

// answerLease is the pool of an answer's buffer: gRPC returns the buffer to it when the answer is
// sent.
type answerLease struct{ held *heldAnswer }

// Get implements mem.BufferPool; gRPC does not call it.
func (*answerLease) Get(length int) *[]byte { b := make([]byte, length); return &b }

// Put implements mem.BufferPool: the answer has been sent or dropped.
func (l *answerLease) Put(*[]byte) { l.held.release() }

// deleteResults reports whether an encoded DeleteRangeRequest returns deleted keys, and whether these are the keys of
// a range.
func deleteResults(b []byte) (previous, wide bool) {
	var s txnScan
	var end bool
	s.fields(b, func(tag uint64, f protofields.Field) {
		switch tag {
		case deleteEnd:
			end = len(f.Bytes) > 0
		case deletePrevious:
			previous = f.Uint != 0
		}
	})
	return previous, end && previous
}

// guardedDelete forwards deletes.
func (a *API) guardedDelete() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		b := request.Buffers.MaterializeToBuffer(mem.DefaultBufferPool())
		send := a.once
		if _, wide := deleteResults(b.ReadOnlyData()); wide {
			send = a.onceWide
		}
		b.Free()
		return a.passBy(ctx, etcdserverpb.KV_DeleteRange_FullMethodName, request, send)
	})
}

// asked forwards a read-only method.
func (a *API) asked(name string) method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		return a.passBy(ctx, name, request, a.ask)
	})
}
