package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// services calls the methods of gRPC services within the process. It is the grpc.ServiceRegistrar of these
// services, and the grpc.ClientConnInterface through which the translation calls them. A call has the peer of
// its HTTP connection. There is no gRPC connection in between, so calls of two connections share nothing.
type services struct {
	Config
	codec   wire.Codec
	paths   map[string]*method // by HTTP path
	methods map[string]*method // by full name
	// Messages that are translated without being decoded: lists and watch messages.
	list, watch *form
	translators translators
}

// method is a callable gRPC method.
type method struct {
	name string // in gRPC's form: /package.Service/Method
	// many: a request is a stream of messages.
	many bool
	// limit bounds each message of a request, in bytes of JSON.
	limit int
	impl  any
	unary grpc.MethodHandler
	info  grpc.UnaryServerInfo
	// For streams.
	stream grpc.StreamHandler
	desc   grpc.StreamServerInfo
}

// RegisterService implements grpc.ServiceRegistrar. The google.api.http option of a method gives its path.
func (s *services) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + m.MethodName
		s.add(desc.ServiceName, m.MethodName, &method{
			name: name, impl: impl, unary: m.Handler, info: grpc.UnaryServerInfo{Server: impl, FullMethod: name},
		})
	}
	for _, m := range desc.Streams {
		name := "/" + desc.ServiceName + "/" + m.StreamName
		s.add(desc.ServiceName, m.StreamName, &method{
			name: name, impl: impl, many: m.ClientStreams, stream: m.Handler,
			desc: grpc.StreamServerInfo{FullMethod: name, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams},
		})
	}
}

// newServices returns services without methods.
func newServices(cfg Config) *services {
	return &services{
		Config: cfg, codec: wire.NewCodec(), paths: make(map[string]*method), methods: make(map[string]*method),
		list:  formOf((*etcdserverpb.RangeResponse)(nil).ProtoReflect().Descriptor()),
		watch: formOf((*etcdserverpb.WatchResponse)(nil).ProtoReflect().Descriptor()),
	}
}

// translate writes a kept answer. Each answer of a stream is wrapped in an object {"result": …}, as
// grpc-gateway does.
func (s *services) translate(to io.Writer, m mem.BufferSlice, f *form) error {
	if f == s.watch {
		return s.translators.translate(to, f, m, `{"result":`, `}`)
	}
	return s.translators.translate(to, f, m, "", "")
}

// small bounds requests that carry few or no keys and values, in bytes.
const small = 64 << 10

func (s *services) add(service, name string, m *method) {
	m.limit = small
	switch service {
	case "etcdserverpb.KV", "v3electionpb.Election": // they carry values
		m.limit = s.MaxRequest
	}
	s.methods[m.name] = m
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return // it has no HTTP binding
	}
	rule, _ := proto.GetExtension(d.Options(), annotations.E_Http).(*annotations.HttpRule)
	for _, rule := range append(rule.GetAdditionalBindings(), rule) {
		if path := rule.GetPost(); path != "" {
			s.paths[path] = m
		}
	}
}

// call returns the exchange of ctx and the named method, if the exchange was admitted for it.
func (s *services) call(ctx context.Context, name string) (*exchange, *method, error) {
	m := s.methods[name]
	if m == nil {
		return nil, nil, wire.Unimplemented("unknown method " + name)
	}
	x := exchangeOf(ctx)
	if x == nil || x.method != m {
		return nil, nil, fmt.Errorf("%s is called without admission", name)
	}
	return x, m, nil
}

// Invoke implements grpc.ClientConnInterface.
func (s *services) Invoke(ctx context.Context, name string, request, answer any, opts ...grpc.CallOption) error {
	x, m, err := s.call(ctx, name)
	if err != nil {
		return wire.Status(err)
	}
	if m.unary == nil {
		return wire.Unimplemented(name + " is a streaming method")
	}
	data, err := s.codec.Marshal(request)
	if err != nil {
		return wire.Status(err)
	}
	defer data.Free()
	t := newTransport(name)
	ctx, cancel := served(ctx, t)
	defer cancel()
	out, err := m.unary(m.impl, ctx, func(into any) error { return s.codec.Unmarshal(data, into) }, s.Unary)
	t.tell(opts)
	if err != nil {
		return wire.Status(err)
	}
	got, err := s.codec.Marshal(out)
	if err != nil {
		return wire.Status(err)
	}
	if _, ok := answer.(*etcdserverpb.RangeResponse); ok {
		return wire.Status(x.keep(ctx, s.list, got, true))
	}
	defer got.Free()
	if err := x.hold(ctx, answerCost*int64(got.Len()), true); err != nil {
		return wire.Status(err)
	}
	return wire.Status(s.codec.Unmarshal(got, answer))
}

// NewStream implements grpc.ClientConnInterface.
func (s *services) NewStream(ctx context.Context, _ *grpc.StreamDesc, name string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	x, m, err := s.call(ctx, name)
	if err != nil {
		return nil, wire.Status(err)
	}
	if m.stream == nil {
		return nil, wire.Unimplemented(name + " is not a streaming method")
	}
	st := &stream{
		services: s, x: x, transport: newTransport(name), client: ctx,
		toServer: make(chan mem.BufferSlice), toClient: make(chan message), written: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{}),
	}
	st.wrote = func() { st.written <- struct{}{} }
	st.closeSend = sync.OnceFunc(func() { close(st.closed) })
	var cancel context.CancelFunc
	st.server, cancel = served(ctx, st.transport)
	x.streams.Go(func() {
		defer close(st.done)
		defer cancel()
		if s.Stream == nil {
			st.err = m.stream(m.impl, serverStream{st})
		} else {
			st.err = s.Stream(m.impl, serverStream{st}, &m.desc, m.stream)
		}
		st.err = wire.Status(st.err)
	})
	return st, nil
}

// served returns the context of a handler, with only the peer, metadata and deadline of the caller. cancel must
// be called.
func served(caller context.Context, t *transport) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(caller, cancel)
	if end, ok := caller.Deadline(); ok {
		ctx, cancel = withDeadline(ctx, end, cancel)
	}
	if p, ok := peer.FromContext(caller); ok {
		ctx = peer.NewContext(ctx, p)
	}
	md, _ := metadata.FromOutgoingContext(caller)
	ctx = grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), t)
	return ctx, func() { stop(); cancel() }
}

// withDeadline is context.WithDeadline; the returned function also calls before.
func withDeadline(ctx context.Context, end time.Time, before func()) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, end)
	return ctx, func() { cancel(); before() }
}

// transport collects the headers and trailers of a handler. It is the grpc.ServerTransportStream of a call.
type transport struct {
	name string

	mu              sync.Mutex
	header, trailer metadata.MD   // guarded by mu
	sent            chan struct{} // closed when the header is final
	isSent          bool          // guarded by mu

	wait func() // owned by the sending goroutine; see Announce. nil: not set
}

func newTransport(name string) *transport { return &transport{name: name, sent: make(chan struct{})} }

// Method implements grpc.ServerTransportStream.
func (t *transport) Method() string { return t.name }

var errHeaderSent = errors.New("the header has been sent")

// SetHeader implements grpc.ServerTransportStream.
func (t *transport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isSent {
		return errHeaderSent
	}
	t.header = metadata.Join(t.header, md)
	return nil
}

// SendHeader implements grpc.ServerTransportStream.
func (t *transport) SendHeader(md metadata.MD) error {
	if err := t.SetHeader(md); err != nil {
		return err
	}
	t.send()
	return nil
}

// SetTrailer implements grpc.ServerTransportStream.
func (t *transport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}

// send marks the header as final.
func (t *transport) send() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isSent {
		t.isSent = true
		close(t.sent)
	}
}

// Announce has each SendMsg of the handler call wait before it blocks: see pump.Announcer.
func (t *transport) Announce(wait func()) { t.wait = wait }

// tell passes the handler's headers and trailers to the caller of a unary method.
func (t *transport) tell(opts []grpc.CallOption) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = t.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = t.trailer
		}
	}
}

// stream connects a caller with a handler. It is the caller's grpc.ClientStream. Channels are unbuffered: a
// side that does not receive blocks the other one.
type stream struct {
	services       *services
	x              *exchange
	transport      *transport
	client, server context.Context //nolint:containedctx // of both sides

	toServer  chan mem.BufferSlice
	toClient  chan message
	wrote     func()
	written   chan struct{} // receives a value once a message sent in a turn is written, or its write waits for the client
	closed    chan struct{} // the caller has closed its side
	closeSend func()
	done      chan struct{} // the handler has returned
	err       error         // of the handler; set before done is closed
}

// Context implements grpc.ClientStream.
func (st *stream) Context() context.Context { return st.client }

// CloseSend implements grpc.ClientStream.
func (st *stream) CloseSend() error {
	st.closeSend()
	return nil
}

// Header implements grpc.ClientStream. If the handler has failed, there is no header, and RecvMsg returns the
// error.
func (st *stream) Header() (metadata.MD, error) {
	select {
	case <-st.transport.sent:
	case <-st.done:
	case <-st.client.Done():
		return nil, nil
	}
	st.transport.mu.Lock()
	defer st.transport.mu.Unlock()
	return st.transport.header, nil
}

// Trailer implements grpc.ClientStream.
func (st *stream) Trailer() metadata.MD {
	st.transport.mu.Lock()
	defer st.transport.mu.Unlock()
	return st.transport.trailer
}

// SendMsg implements grpc.ClientStream. After the handler has returned, it fails with
// io.EOF.
func (st *stream) SendMsg(m any) error {
	data, err := st.services.codec.Marshal(m)
	if err != nil {
		return wire.Status(err)
	}
	select {
	case st.toServer <- data:
		return nil
	case <-st.done:
	case <-st.server.Done():
	}
	data.Free()
	return io.EOF
}

// RecvMsg implements grpc.ClientStream.
func (st *stream) RecvMsg(into any) error {
	st.x.endTurn() // the previous message has been written
	select {
	case m := <-st.toClient:
		data := m.data
		if m.inTurn {
			st.x.pace.leave = st.wrote
		}
		if _, ok := into.(*etcdserverpb.WatchResponse); ok {
			return wire.Status(st.x.keep(st.client, st.services.watch, data, false))
		}
		defer data.Free()
		if err := st.x.hold(st.client, answerCost*int64(data.Len()), false); err != nil {
			return wire.Status(err)
		}
		return wire.Status(st.services.codec.Unmarshal(data, into))
	case <-st.done:
		if st.err == nil {
			return io.EOF
		}
		return st.err
	case <-st.client.Done():
		return wire.Status(context.Cause(st.client))
	}
}

// serverStream is the handler's side of a stream.
type serverStream struct{ st *stream }

// Context implements grpc.ServerStream.
func (s serverStream) Context() context.Context { return s.st.server }

// SetHeader implements grpc.ServerStream.
func (s serverStream) SetHeader(md metadata.MD) error { return s.st.transport.SetHeader(md) }

// SendHeader implements grpc.ServerStream.
func (s serverStream) SendHeader(md metadata.MD) error { return s.st.transport.SendHeader(md) }

// SetTrailer implements grpc.ServerStream.
func (s serverStream) SetTrailer(md metadata.MD) { _ = s.st.transport.SetTrailer(md) }

// message is a message on its way to the caller.
type message struct {
	data mem.BufferSlice
	// inTurn: the sender holds a turn, and waits until the message is written or its write blocks.
	inTurn bool
}

// SendMsg implements grpc.ServerStream. It blocks while the client does not read. A pump waits until the
// message is written, so that only one of pump and writer computes at a time.
func (s serverStream) SendMsg(m any) error {
	data, err := s.st.services.codec.Marshal(m)
	if err != nil {
		return wire.Status(err)
	}
	s.st.transport.send()
	announce := s.st.transport.wait
	inTurn := announce != nil && s.st.x.pace != nil
	select {
	case s.st.toClient <- message{data, inTurn}: // the client has read all previous messages
		if inTurn {
			wait.For(s.st.server, s.st.written)
		}
		return nil
	default:
	}
	if announce != nil {
		announce()
	}
	select {
	case s.st.toClient <- message{data: data}:
		return nil
	case <-s.st.server.Done():
		data.Free()
		return wire.Status(s.st.server.Err())
	}
}

// RecvMsg implements grpc.ServerStream.
func (s serverStream) RecvMsg(into any) error {
	select {
	case data := <-s.st.toServer:
		defer data.Free()
		return wire.Status(s.st.services.codec.Unmarshal(data, into))
	case <-s.st.closed:
		return io.EOF
	case <-s.st.server.Done():
		return wire.Status(s.st.server.Err())
	}
}
