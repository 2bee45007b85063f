package etcdapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// learning forwards logins to etcd, and reports each token's user to Config.Learn before
// the client can use the token.
func (a *API) learning() method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		var login etcdserverpb.AuthenticateRequest
		known := peek(request, &login) // before the send, which consumes the request
		answer, err := a.pass(ctx, etcdserverpb.Auth_Authenticate_FullMethodName, request)
		var given etcdserverpb.AuthenticateResponse
		if err == nil && known && a.cfg.Learn != nil && peek(answer, &given) {
			a.cfg.Learn(ctx, login.GetName(), given.GetToken())
		}
		return answer, err
	})
}

// refreshing forwards a change of users or roles to etcd. When the caller gets the
// answer, the change is in effect on the nodes, too.
func (a *API) refreshing(name string) method {
	return answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
		answer, err := a.pass(ctx, name, request)
		if a.cfg.Guard != nil && mayHaveChanged(err) {
			a.cfg.Guard.Refresh(context.WithoutCancel(ctx))
		}
		return answer, err
	})
}

// mayHaveChanged reports whether etcd has or may have applied a change: an
// interrupted call may have been applied.
func mayHaveChanged(err error) bool {
	return err == nil || wire.IsUnavailable(err) || wire.IsTimeout(err) || wire.IsCanceled(err)
}

// auth returns the methods of etcd's Auth service that are not simply forwarded: the
// login and all changes. A method of a newer etcd counts as a change.
func (a *API) auth() methods {
	out := methods{}
	for _, m := range etcdserverpb.Auth_ServiceDesc.Methods {
		switch name := "/" + etcdserverpb.Auth_ServiceDesc.ServiceName + "/" + m.MethodName; name {
		case etcdserverpb.Auth_Authenticate_FullMethodName:
			out[m.MethodName] = a.learning()
		case etcdserverpb.Auth_AuthStatus_FullMethodName, etcdserverpb.Auth_UserGet_FullMethodName, etcdserverpb.Auth_UserList_FullMethodName,
			etcdserverpb.Auth_RoleGet_FullMethodName, etcdserverpb.Auth_RoleList_FullMethodName:
		default:
			out[m.MethodName] = a.refreshing(name)
		}
	}
	return out
}

// peek decodes a message that is forwarded unchanged. It reports whether the
// message could be decoded.
func peek(e *wire.Encoded, m any) bool { return wire.NewCodec().Unmarshal(e.Buffers, m) == nil }

// Nameless refuses a call without a token while etcd's authentication is on, unless
// etcd serves the method without one. etcd would refuse it, too; the error is etcd's own.
func (a *API) Nameless(ctx context.Context, name string) error {
	if a.cfg.Guard == nil || name == etcdserverpb.Auth_Authenticate_FullMethodName || name == etcdserverpb.Auth_AuthStatus_FullMethodName {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(rpctypes.TokenFieldNameGRPC)) > 0 || len(md.Get(rpctypes.TokenFieldNameSwagger)) > 0 {
		return nil // etcd decides
	}
	_, err := a.cfg.Guard.Caller(ctx)
	return err
}
