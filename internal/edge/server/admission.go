package server

import (
	"context"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Calls of clients are admitted in two steps. This file checks the caller, its number
// of calls and whether it is an operator, before the call is served. Packages native and
// etcdapi check the keys, after they have the request.

// admitUnary admits every unary call at the client port.
func (s *Server) admitUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	caller, done, err := s.admit(ctx, info.FullMethod)
	if err != nil {
		s.audit(ctx, caller, info.FullMethod, request, err)
		return nil, wire.Status(err)
	}
	if call, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ AtEnd(fn func()) }); ok {
		call.AtEnd(done) // the answer may be unread for long
	} else {
		defer done()
	}
	var answer any
	if err = fits(caller, request); err == nil {
		answer, err = serve(ctx, request)
	}
	s.audit(ctx, caller, info.FullMethod, request, err)
	return answer, err
}

// admitStream is admitUnary for streams: it is called before a stream is served. The caller
// passes the outcome of the call to over.
func (s *Server) admitStream(stream grpc.ServerStream, info *grpc.StreamServerInfo) (admitted grpc.ServerStream, over func(error), err error) {
	ctx, method := stream.Context(), info.FullMethod
	caller, done, err := s.admit(ctx, method)
	if err != nil {
		s.audit(ctx, caller, method, nil, err)
		err = wire.Status(err)
		s.called.count(method, err)
		return nil, nil, err
	}
	if !info.IsClientStream {
		keeps, end := &keeping{ServerStream: stream, budget: s.cfg.Budget, caller: caller}, done
		stream, done = keeps, func() { keeps.end(); end() }
	}
	if caller.Bounded() {
		stream = &bounded{stream, caller}
	}
	if !audited(method) {
		return stream, func(err error) {
			done()
			s.called.count(method, err)
		}, nil
	}
	heard := &overheard{ServerStream: stream}
	return heard, func(err error) {
		done()
		s.audit(ctx, caller, method, heard.first, err)
		s.called.count(method, err)
	}, nil
}

// interceptStream is admitStream for grpc-go's server.
func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	admitted, over, err := s.admitStream(stream, info)
	if err != nil {
		return err
	}
	err = serve(srv, admitted)
	over(err)
	return err
}

// admit admits a call, until done is called, or returns the reason for its refusal.
func (s *Server) admit(ctx context.Context, method string) (caller *authz.Caller, done func(), err error) {
	if method == healthgrpc.Health_Check_FullMethodName { // probes do not authenticate
		return nil, func() {}, nil
	}
	if caller, err = s.cfg.Access.Caller(ctx); err != nil {
		return nil, nil, err
	}
	switch {
	case of(method, &shardwatchv1.AdminService_ServiceDesc):
		verb := policy.OperatorRead
		if audited(method) {
			verb = policy.OperatorWrite
		}
		err = caller.May(ctx, verb, kv.Range{})
	case of(method, &shardwatchv1.ClusterService_ServiceDesc), of(method, &healthgrpc.Health_ServiceDesc), strings.HasPrefix(method, "/grpc.reflection."):
		err = caller.Known(ctx)
	}
	if err == nil && (of(method, &shardwatchv1.AdminService_ServiceDesc) || of(method, &shardwatchv1.ClusterService_ServiceDesc)) {
		_, err = s.callers.MayLook(ctx, caller)
	}
	if err == nil {
		done, err = caller.Call()
	}
	return caller, done, err
}

// before refuses a call before its request is received, if its caller is unknown or has none of the rights
// that the method could need: a request of 2 MiB costs the node memory and garbage collection.
// Calls to the operators' services are refused later, because the audit log includes their requests.
func (s *Server) before(ctx context.Context, method string) error {
	for _, later := range []*grpc.ServiceDesc{&healthgrpc.Health_ServiceDesc, &shardwatchv1.AdminService_ServiceDesc, &shardwatchv1.ClusterService_ServiceDesc} {
		if of(method, later) {
			return nil
		}
	}
	caller, err := s.cfg.Access.Caller(ctx)
	if err == nil {
		err = mayNeed(ctx, caller, method)
	}
	if err == nil {
		return nil
	}
	if of(method, &shardwatchv1.CacheService_ServiceDesc) {
		err = wire.Status(err)
	} else {
		err = etcdview.InEtcdsWords(err)
	}
	s.called.count(method, err)
	return err
}

// mayNeed fails unless the caller has a right without which the method refuses every request.
func mayNeed(ctx context.Context, caller *authz.Caller, method string) error {
	switch {
	case reads(method):
		return caller.MaySome(ctx, policy.Read)
	case method == etcdserverpb.KV_Put_FullMethodName, method == etcdserverpb.KV_DeleteRange_FullMethodName:
		return caller.MaySome(ctx, policy.Write)
	}
	return caller.Known(ctx)
}

// reads reports whether a method only reads keys.
func reads(method string) bool {
	switch method {
	case etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName,
		shardwatchv1.CacheService_List_FullMethodName, shardwatchv1.CacheService_Get_FullMethodName:
		return true
	}
	return false
}

// failed slows down a caller that is refused repeatedly.
func (s *Server) failed(ctx context.Context, err error) {
	if !wire.IsDenied(err) {
		return
	}
	if caller, err := s.cfg.Access.Caller(ctx); err == nil {
		caller.Refused(ctx)
	}
}

// admitJSON is admit for a call of the JSON API, before its request is read. It also refuses
// callers without a token if etcd's authentication is on.
func (s *Server) admitJSON(ctx context.Context, method string) (holder budget.Client, done func(), err error) {
	caller, done, err := s.admit(ctx, method)
	if err != nil {
		return holder, nil, err
	}
	if err = s.cfg.Etcd.Nameless(s.cfg.Access.Forward(ctx), method); err != nil {
		done()
		return holder, nil, err
	}
	return authz.Holder(ctx, caller), done, nil
}

// of reports whether a method belongs to the service.
func of(method string, service *grpc.ServiceDesc) bool {
	return strings.HasPrefix(method, "/"+service.ServiceName+"/")
}

// audited reports whether the audit log records a call: it does for changes by operators,
// but not for reads of the cluster, which are repeated often.
func audited(method string) bool {
	switch method {
	case shardwatchv1.AdminService_ClusterStatus_FullMethodName, shardwatchv1.AdminService_ListWatchers_FullMethodName,
		shardwatchv1.AdminService_TraceRevision_FullMethodName:
		return false
	}
	return of(method, &shardwatchv1.AdminService_ServiceDesc)
}

func (s *Server) audit(ctx context.Context, caller *authz.Caller, method string, request any, err error) {
	if !audited(method) {
		return
	}
	text := ""
	if m, ok := request.(proto.Message); ok {
		b, _ := protojson.Marshal(m) // empty if m cannot be encoded
		text = string(b)
	}
	s.cfg.Audit.Admin(ctx, s.callers.Name(ctx, caller), method, text, err)
}

// overheard is a stream that keeps its first request for the audit log.
type overheard struct {
	grpc.ServerStream
	first any
}

// RecvMsg implements grpc.ServerStream.
func (o *overheard) RecvMsg(m any) error {
	err := o.ServerStream.RecvMsg(m)
	if err == nil && o.first == nil {
		o.first = m
	}
	return err
}

// fits fails when a message is larger than the caller may send.
func fits(caller *authz.Caller, message any) error {
	if !caller.Bounded() {
		return nil
	}
	return wire.Status(caller.Fits(sizeOf(message)))
}

// sizeOf returns the size of an encoded message, in bytes.
func sizeOf(message any) int {
	switch m := message.(type) {
	case *wire.Encoded:
		return m.Buffers.Len()
	case proto.Message:
		return proto.Size(m)
	}
	return 0
}

// keeping is the stream of a call with one request: a list, or a watch of the shard map or of health.
// Its handler keeps the keys of the request until it ends, so the budget counts them.
type keeping struct {
	grpc.ServerStream
	budget *budget.Budget
	caller *authz.Caller

	mu     sync.Mutex
	ended  bool          // guarded by mu; RecvMsg takes no more bytes
	holder budget.Client // guarded by mu
	held   int64         // guarded by mu
}

const (
	// freeRequest is the largest request that takes nothing from the budget, in bytes.
	freeRequest = 8 << 10
	// copies bounds how many copies of the keys a handler has: in the request, and in the ends of
	// their range.
	copies = 3
)

// RecvMsg implements grpc.ServerStream. A call that is forwarded to etcd receives concurrently with its
// handler. RecvMsg fails if the request arrives after the call has ended.
func (k *keeping) RecvMsg(m any) error {
	if err := k.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	size := int64(sizeOf(m))
	if size <= freeRequest {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return wire.Status(context.Canceled)
	}
	k.holder = authz.Holder(k.Context(), k.caller)
	if err := k.budget.Take(k.holder, budget.Requests, copies*size, k.held); err != nil {
		return wire.Status(err)
	}
	k.held += copies * size
	return nil
}

// end returns the bytes to the budget.
func (k *keeping) end() {
	k.mu.Lock()
	k.ended = true
	holder, held := k.holder, k.held
	k.mu.Unlock()
	k.budget.Give(holder, budget.Requests, held)
}

// bounded is a stream whose received messages are bounded by the policy of the caller.
type bounded struct {
	grpc.ServerStream
	caller *authz.Caller
}

// RecvMsg implements grpc.ServerStream.
func (b *bounded) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return fits(b.caller, m)
}

// unaryJSON and streamJSON intercept the calls of the JSON API that admitJSON has admitted.
func (s *Server) unaryJSON(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	return s.called.unary(ctx, request, info, func(ctx context.Context, request any) (any, error) {
		caller, err := s.cfg.Access.Caller(ctx)
		if err == nil {
			err = fits(caller, request)
		}
		if err != nil {
			return nil, wire.Status(err)
		}
		return serve(ctx, request)
	})
}

func (s *Server) streamJSON(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
	caller, err := s.cfg.Access.Caller(stream.Context())
	if err != nil {
		return wire.Status(err)
	}
	if caller.Bounded() {
		stream = &bounded{stream, caller}
	}
	err = serve(srv, stream)
	s.called.count(info.FullMethod, err)
	return err
}
