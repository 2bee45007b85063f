package authz

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Audit records administrative actions and refused calls: identity, address, action and result; never a value,
// a token or a password. Refusals beyond a rate are only counted, and the next written refusal has their
// number. A nil Audit writes nothing.
type Audit struct {
	log      *slog.Logger
	refusals *rate.Limiter

	mu         sync.Mutex
	suppressed int64 // guarded by mu; refusals since the last written one

	written, dropped atomic.Int64
}

// Refusals are written at this rate, per second, after a burst.
const (
	refusalRate  = 10
	refusalBurst = 100
)

// maxRequest bounds the recorded part of a request, in bytes.
const maxRequest = 2 << 10

// NewAudit returns an Audit whose records go to log.
func NewAudit(log *slog.Logger) *Audit {
	return &Audit{log: log, refusals: rate.NewLimiter(refusalRate, refusalBurst)}
}

// Admin records the request of an administrator and its result: the code of the response, and the reason. If
// the caller has no identity, as without a policy, it records the name in the certificate. It records at most 2
// KiB of the request.
func (a *Audit) Admin(ctx context.Context, who, method, request string, err error) {
	if a == nil {
		return
	}
	result, level := "done", slog.LevelInfo
	if err != nil {
		result, level = wire.Plain(wire.Error(err)), slog.LevelWarn
	}
	a.written.Add(1)
	a.log.Log(ctx, level, "administration", "identity", cmp.Or(who, ShownBy(ctx)), "client", clientOf(ctx),
		"method", method, "request", request[:min(len(request), maxRequest)], "code", wire.CodeName(err), "result", result)
}

// Refused records a refused call; who may be "", as in Admin.
func (a *Audit) Refused(ctx context.Context, who string, err error) {
	if a != nil && (errors.As(err, new(*kv.DeniedError)) || errors.As(err, new(*kv.UnauthenticatedError))) {
		a.refused(ctx, who, err)
	}
}

func (a *Audit) refused(ctx context.Context, who string, err error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	if !a.refusals.Allow() {
		a.suppressed++
		a.mu.Unlock()
		a.dropped.Add(1)
		return
	}
	suppressed := a.suppressed
	a.suppressed = 0
	a.mu.Unlock()
	a.written.Add(1)
	a.log.WarnContext(ctx, "refused", "identity", cmp.Or(who, ShownBy(ctx)), "client", clientOf(ctx), "reason", wire.Plain(err), "suppressed", suppressed)
}

// Figures returns the numbers of written records and of suppressed refusals.
func (a *Audit) Figures() (written, suppressed int64) {
	if a == nil {
		return 0, 0
	}
	return a.written.Load(), a.dropped.Load()
}

// ShownBy returns the first name of the caller's certificate, or "".
func ShownBy(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if names := namesOf(p.AuthInfo); len(names) > 0 {
			return names.First()
		}
	}
	return ""
}

// clientOf returns the address of the caller.
func clientOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}
