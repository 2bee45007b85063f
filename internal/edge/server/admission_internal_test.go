package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// lateStream is a stream whose request arrives just after the end of the call.
type lateStream struct {
	grpc.ServerStream
	size int
	end  func()
}

func (*lateStream) Context() context.Context { return context.Background() }

func (l *lateStream) RecvMsg(m any) error {
	into, _ := m.(*healthgrpc.HealthCheckRequest)
	into.Service = strings.Repeat("s", l.size)
	l.end()
	return nil
}

// A request that arrived just after the end of its call held bytes of the budget forever: a call that is forwarded
// to etcd receives requests concurrently with its handler.
func TestARequestAfterTheEndOfItsCallHoldsNothing(t *testing.T) {
	b := budget.New(128 << 20) // 16 MiB of it for requests, 8 MiB for each client
	late := &lateStream{size: 1 << 20, end: func() {}}
	keeps := &keeping{ServerStream: late, budget: b}
	if err := keeps.RecvMsg(new(healthgrpc.HealthCheckRequest)); err != nil || b.Held(budget.Requests) < copies<<20 {
		t.Errorf("before the end: %v, %d bytes are held", err, b.Held(budget.Requests))
	}
	late.end = keeps.end
	if err := keeps.RecvMsg(new(healthgrpc.HealthCheckRequest)); !wire.IsCanceled(err) {
		t.Errorf("after the end: %v", err)
	}
	if held := b.Held(budget.Requests); held != 0 {
		t.Errorf("%d bytes are held after the end", held)
	}
}
