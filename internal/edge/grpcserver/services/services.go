// Package services is the registry of the services of a gRPC server.
package services

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Registry holds registered services. It is a grpc.ServiceRegistrar and a reflection.GRPCServer. Create it
// with New. It must not be changed concurrently.
type Registry struct {
	all   map[string]*service // by name
	unary grpc.UnaryServerInterceptor
}

// service is a registered service.
type service struct {
	impl    any
	methods map[string]*grpc.StreamDesc
	info    grpc.ServiceInfo
}

// New returns a Registry without services. The interceptors wrap the handlers of unary calls, the first
// interceptor outermost.
func New(unary []grpc.UnaryServerInterceptor) *Registry {
	return &Registry{all: make(map[string]*service), unary: chain(unary)}
}

// RegisterService implements grpc.ServiceRegistrar. Like grpc-go's server, it panics if the
// implementation does not implement the service.
func (r *Registry) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if err := implements(desc, impl); err != nil {
		panic(err)
	}
	sv := &service{impl: impl, methods: make(map[string]*grpc.StreamDesc), info: grpc.ServiceInfo{Metadata: desc.Metadata}}
	add := func(d *grpc.StreamDesc) {
		sv.methods[d.StreamName] = d
		sv.info.Methods = append(sv.info.Methods, grpc.MethodInfo{Name: d.StreamName, IsClientStream: d.ClientStreams, IsServerStream: d.ServerStreams})
	}
	for i := range desc.Methods {
		add(r.asStream(&desc.Methods[i]))
	}
	for i := range desc.Streams {
		add(&desc.Streams[i])
	}
	r.all[desc.ServiceName] = sv
}

// asStream returns a unary method as a streaming method with one message in each direction.
func (r *Registry) asStream(m *grpc.MethodDesc) *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: m.MethodName, Handler: func(impl any, stream grpc.ServerStream) error {
		answer, err := m.Handler(impl, stream.Context(), stream.RecvMsg, r.unary)
		if err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}}
}

// GetServiceInfo returns the registered services, for reflection.
func (r *Registry) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := make(map[string]grpc.ServiceInfo, len(r.all))
	for name, sv := range r.all {
		all[name] = sv.info
	}
	return all
}

// Find returns the method of a path and its implementation, or the error status in grpc-go's wording.
func (r *Registry) Find(path string) (impl any, desc *grpc.StreamDesc, unknown *status.Status) {
	at := strings.LastIndexByte(path, '/')
	if at <= 0 || path[0] != '/' {
		return nil, nil, status.Newf(codes.Unimplemented, "malformed method name: %q", path)
	}
	name, method := path[1:at], path[at+1:]
	sv := r.all[name]
	if sv == nil {
		return nil, nil, status.Newf(codes.Unimplemented, "unknown service %v", name)
	}
	if d := sv.methods[method]; d != nil {
		return sv.impl, d, nil
	}
	return nil, nil, status.Newf(codes.Unimplemented, "unknown method %v for service %v", method, name)
}

func chain(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for _, inner := range slices.Backward(all[1:]) {
			next := handler
			handler = func(ctx context.Context, request any) (any, error) { return inner(ctx, request, info, next) }
		}
		return all[0](ctx, request, info, handler)
	}
}

// implements checks an implementation against the type of its service.
func implements(desc *grpc.ServiceDesc, impl any) error {
	if impl == nil || desc.HandlerType == nil {
		return nil
	}
	if want := reflect.TypeOf(desc.HandlerType).Elem(); !reflect.TypeOf(impl).Implements(want) {
		return fmt.Errorf("%s is registered with a %T, which is not a %v", desc.ServiceName, impl, want)
	}
	return nil
}
