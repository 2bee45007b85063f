package etcdapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// learning passes logins on to etcd, and tells whose token it gave out before
// the client can use it.
func (d *Door) learning() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		var login etcdserverpb.AuthenticateRequest
		known := peek(request, &login) // before it is sent: that uses it up
		answer, err := d.pass(ctx, etcdserverpb.Auth_Authenticate_FullMethodName, request)
		var given etcdserverpb.AuthenticateResponse
		if err == nil && known && d.cfg.Learn != nil && peek(answer, &given) {
			d.cfg.Learn(ctx, login.GetName(), given.GetToken())
		}
		return answer, err
	})
}

// peek decodes a message that is passed on as it is. It reports whether that
// worked.
func peek(e *wire.Encoded, m any) bool { return wire.NewCodec().Unmarshal(e.Buffers, m) == nil }
