package etcdapi

import (
	"context"
	"errors"
	"io"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Register adds etcd's services to a gRPC server, which must use wire.Codec.
// Watches are served by pumps.
//
// Methods that are not named here are forwarded unchanged, byte for byte, in both
// directions: unknown fields are kept, and errors are etcd's. Only reads
// are retried: a write may have been applied. Unread messages of a stream stay at
// etcd, by gRPC's flow control; other answers count against the budget.
func (a *API) Register(r grpc.ServiceRegistrar, pumps *pump.Pumps) {
	for _, s := range []struct {
		desc *grpc.ServiceDesc
		own  methods
	}{
		{&etcdserverpb.KV_ServiceDesc, methods{"Range": answered(a.Range), "RangeStream": a.streamedRange(), "Txn": a.guardedTxn(), "DeleteRange": a.guardedDelete()}},
		{&etcdserverpb.Lease_ServiceDesc, methods{
			"LeaseTimeToLive": a.asked(etcdserverpb.Lease_LeaseTimeToLive_FullMethodName), "LeaseLeases": a.asked(etcdserverpb.Lease_LeaseLeases_FullMethodName),
		}},
		{&etcdserverpb.Auth_ServiceDesc, a.auth()},
		{&etcdserverpb.Maintenance_ServiceDesc, memberMaintenance()},
		{&etcdserverpb.Cluster_ServiceDesc, a.cluster()},
		{&v3lockpb.Lock_ServiceDesc, nil},
		{&v3electionpb.Election_ServiceDesc, nil},
	} {
		r.RegisterService(a.serve(s.desc, s.own), nil)
	}
	etcdserverpb.RegisterWatchServer(r, a.Service(pumps))
}

// methods are the methods of a service that are not simply forwarded to etcd, by name.
type methods map[string]method

// method serves one RPC: a unary RPC by answer, a streaming RPC by stream.
type method struct {
	request func() any // returns the message into which the request is decoded
	answer  func(ctx context.Context, request any) (any, error)
	stream  grpc.StreamHandler
}

// answered serves a unary method by f.
func answered[Request, Answer any](f func(ctx context.Context, request *Request) (Answer, error)) method {
	return method{
		request: func() any { return new(Request) },
		answer:  func(ctx context.Context, request any) (any, error) { return f(ctx, request.(*Request)) },
	}
}

// refused serves a unary or streaming method with the reason why it is not offered.
func refused(why string) method {
	m := answered(func(context.Context, *wire.Encoded) (any, error) { return nil, wire.Unimplemented(why) })
	m.stream = func(any, grpc.ServerStream) error { return wire.Unimplemented(why) }
	return m
}

// serve returns the service that desc describes: with own methods, and all others
// forwarded. It keeps desc.Metadata, which reflection needs.
func (a *API) serve(desc *grpc.ServiceDesc, own methods) *grpc.ServiceDesc {
	out := &grpc.ServiceDesc{ServiceName: desc.ServiceName, Metadata: desc.Metadata}
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		how, ok := own[m.MethodName]
		if !ok {
			how = answered(func(ctx context.Context, request *wire.Encoded) (*wire.Encoded, error) {
				return a.pass(ctx, name, request)
			})
		}
		out.Methods = append(out.Methods, grpc.MethodDesc{MethodName: m.MethodName, Handler: how.unary(name)})
	}
	for _, s := range desc.Streams {
		how, ok := own[s.StreamName]
		if !ok {
			how.stream = a.passStream("/"+desc.ServiceName+"/"+s.StreamName, s)
		}
		s.Handler = how.stream
		out.Streams = append(out.Streams, s)
	}
	return out
}

// unary returns the handler of a unary method for gRPC.
func (m method) unary(name string) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		request := m.request()
		if err := decode(request); err != nil {
			return nil, err
		}
		if intercept == nil {
			return m.answer(ctx, request)
		}
		return intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: name}, m.answer)
	}
}

// pass forwards a request to etcd and returns its answer.
func (a *API) pass(ctx context.Context, name string, request any) (*wire.Encoded, error) {
	return a.passBy(ctx, name, request, a.once)
}

// passBy forwards a request with send, after the checks.
func (a *API) passBy(ctx context.Context, name string, request any, send func(ctx context.Context, name string, request any) (*wire.Encoded, error)) (*wire.Encoded, error) {
	caller, err := a.view.Caller(ctx)
	forward := a.cfg.Access.Forward(ctx)
	if err == nil {
		err = a.Nameless(forward, name)
	}
	if err == nil {
		err = a.judge(ctx, caller, name, request)
	}
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(forward, holderKey{}, authz.Holder(ctx, caller))
	if strings.HasPrefix(name, "/"+etcdserverpb.KV_ServiceDesc.ServiceName+"/") {
		a.tellHistory(ctx)
	}
	if e, ok := request.(*wire.Encoded); ok { // Range has counted its decoded request
		release, err := a.carry(a.holder(ctx), e.Buffers.Len())
		if err != nil {
			return nil, err
		}
		defer release()
	}
	over := a.cfg.administered(ctx, caller, name, request)
	answer, err := send(ctx, name, request)
	over(err)
	return answer, err
}

// freeRequest is the largest request that takes nothing from the budget, in bytes.
const freeRequest = 64 << 10

// carry reserves size bytes for a request that is kept until etcd has answered.
func (a *API) carry(holder func() budget.Client, size int) (release func(), err error) {
	if size <= freeRequest {
		return func() {}, nil
	}
	who, n := holder(), int64(size)
	if err := a.cfg.Budget.Take(who, budget.Requests, n, 0); err != nil {
		return nil, wire.Status(err)
	}
	return func() { a.cfg.Budget.Give(who, budget.Requests, n) }, nil
}

// passStream forwards the messages between a client's stream and a stream to etcd.
func (a *API) passStream(name string, desc grpc.StreamDesc) grpc.StreamHandler {
	return func(_ any, client grpc.ServerStream) error {
		caller, err := a.view.Caller(client.Context())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(a.cfg.Access.Forward(client.Context()))
		defer cancel(nil)
		if err := a.Nameless(ctx, name); err != nil {
			return err
		}
		etcd, err := a.cfg.Etcd.ProxyConn().NewStream(ctx, &desc, name)
		if err != nil {
			return err
		}
		// Ends with the handler at the latest, because then both streams fail.
		go func() {
			if err := a.requests(ctx, client, etcd, caller, name, cancel); err != nil {
				cancel(err)
			}
		}()
		err = a.answers(client, func() (*wire.Encoded, error) {
			m := new(wire.Encoded)
			return m, etcd.RecvMsg(m)
		})
		if cause := context.Cause(ctx); cause != nil && client.Context().Err() == nil {
			return cause // the error of the requests, not the cancellation that it has caused
		}
		return err
	}
}

// requests forwards the client's messages that the policy allows, until the client has closed its
// side.
func (a *API) requests(ctx context.Context, client grpc.ServerStream, etcd grpc.ClientStream, caller *authz.Caller, name string, end context.CancelCauseFunc) error {
	for {
		m := new(wire.Encoded)
		switch err := client.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return etcd.CloseSend()
		case err != nil:
			return err
		}
		if err := a.judge(ctx, caller, name, m); err != nil {
			return err
		}
		if caller != nil && name == v3electionpb.Election_Observe_FullMethodName {
			a.observed(ctx, caller, m, end)
		}
		if err := etcd.SendMsg(m); err != nil {
			return nil //nolint:nilerr // etcd has ended the stream: RecvMsg returns the reason
		}
	}
}

// answers forwards the messages that receive returns until etcd ends the stream. While the client does not
// read, one message is kept, and counts against the client's share of the budget.
func (a *API) answers(client grpc.ServerStream, receive func() (*wire.Encoded, error)) error {
	holder := a.holder(client.Context())
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := a.sendHeld(holder, client, m, m.Buffers.Len()); err != nil {
			return err
		}
	}
}

// sendHeld sends a message of size bytes, which count against holder's share of the budget until it is sent.
func (a *API) sendHeld(holder func() budget.Client, client grpc.ServerStream, m any, size int) error {
	if size <= freeAnswer {
		return client.SendMsg(m)
	}
	who, n := holder(), int64(size)
	if err := a.cfg.Budget.Take(who, budget.Lists, n, 0); err != nil {
		return wire.Status(err)
	}
	defer a.cfg.Budget.Give(who, budget.Lists, n)
	return client.SendMsg(m)
}
