package server

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// calls counts the ended calls of a port, by method and outcome. A stream counts once,
// when it ends; its messages cost nothing. The number of keys is small, because gRPC itself
// answers calls of unknown methods.
type calls struct{ ended sync.Map } // of callKey, an *atomic.Int64

type callKey struct{ method, code string }

func (c *calls) count(method string, err error) {
	key := callKey{method, wire.CodeName(err)}
	n, ok := c.ended.Load(key)
	if !ok {
		n, _ = c.ended.LoadOrStore(key, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // nothing else is in it
}

func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	out, err := next(ctx, req)
	c.count(info.FullMethod, err)
	return out, err
}

// Calls calls fn with the number of ended calls of clients, by method and status
// code.
func (s *Server) Calls(fn func(method, code string, times int64)) {
	s.called.ended.Range(func(key, n any) bool {
		k := key.(callKey)                             //nolint:forcetypeassert // nothing else is in it
		fn(k.method, k.code, n.(*atomic.Int64).Load()) //nolint:forcetypeassert // as above
		return true
	})
}
