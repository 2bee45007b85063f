package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// bare is the minimum work of a grpc-go server for watches: every event is encoded once, all
// watches share its bytes, and one goroutine per connection sends to all of its streams. It has
// etcd's API, as far as a load of watches needs it, and every watch gets every event.
type bare struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer

	mu     sync.Mutex
	events [][]byte             // as fields of a WatchResponse; revision i+1 is at i; guarded by mu
	conns  map[string]*bareConn // by the client's address; guarded by mu
}

// bareConn is a client's connection.
type bareConn struct {
	wake    chan struct{} // capacity 1
	streams int           // guarded by bare.mu
	stop    func()

	mu      sync.Mutex
	watches []*bareWatch // guarded by mu
}

// bareWatch is a watch.
type bareWatch struct {
	stream grpc.ServerStream
	id     []byte // its field of a WatchResponse
	next   int    // index of the next event; belongs to the connection's goroutine
}

// serve runs the server of a side on an address until the process ends. With two more arguments, a
// certificate and its key, it uses TLS.
func serve(args []string) error {
	if len(args) != 2 && len(args) != 4 {
		return fmt.Errorf("serve takes a side, an address, and a certificate and its key; it was given %d arguments", len(args))
	}
	var secure *tls.Config
	if len(args) == 4 {
		certificate, err := tls.LoadX509KeyPair(args[2], args[3])
		if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	}
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return fmt.Errorf("listen on %s: %w", args[1], err)
	}
	switch args[0] {
	case sideBare:
		return serveBare(l, secure)
	case sideTCP:
		return serveFloor(l, secure)
	}
	return fmt.Errorf("serve has no side %q", args[0])
}

func serveBare(l net.Listener, secure *tls.Config) error {
	opts := []grpc.ServerOption{grpc.ForceServerCodecV2(bareCodec{})}
	if secure != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(secure)))
	}
	s, b := grpc.NewServer(opts...), &bare{conns: make(map[string]*bareConn)}
	etcdserverpb.RegisterKVServer(s, b)
	etcdserverpb.RegisterWatchServer(s, b)
	return s.Serve(l)
}

// Range returns the revision and no keys.
func (b *bare) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: int64(len(b.events))}}, nil
}

// Put creates an event.
func (b *bare) Put(_ context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	revision := int64(len(b.events)) + 1
	event, err := encode(string(r.GetKey()), string(r.GetValue()), revision)
	if err != nil {
		return nil, err
	}
	b.events = append(b.events, event)
	for _, c := range b.conns {
		c.poke()
	}
	return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: revision}}, nil
}

// encode returns an event as the fields of a WatchResponse without a watch.
func encode(key, value string, revision int64) ([]byte, error) {
	b, err := proto.Marshal(&etcdserverpb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{
		Key: []byte(key), Value: []byte(value), CreateRevision: revision, ModRevision: revision, Version: 1,
	}}}})
	if err != nil {
		return nil, fmt.Errorf("encode an event: %w", err)
	}
	return b, nil
}

// Watch accepts a stream's watches. Its connection's goroutine serves them.
func (b *bare) Watch(stream etcdserverpb.Watch_WatchServer) error {
	c, leave := b.join(stream.Context())
	defer leave()
	defer c.forget(stream)
	for id := int64(0); ; id++ {
		r, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // grpc-go returns it as it is
			return nil
		}
		if err != nil {
			return err
		}
		create := r.GetCreateRequest()
		if create == nil {
			return fmt.Errorf("a bare server creates watches and nothing else: %v", r)
		}
		if err := c.add(stream, id, create.GetStartRevision()); err != nil {
			return err
		}
	}
}

// join returns the connection of a stream, and starts to serve a new one.
func (b *bare) join(ctx context.Context) (c *bareConn, leave func()) {
	var name string
	if p, ok := peer.FromContext(ctx); ok {
		name = p.Addr.String()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c = b.conns[name]
	if c == nil {
		run, stop := context.WithCancel(context.Background())
		c = &bareConn{wake: make(chan struct{}, 1), stop: stop}
		b.conns[name] = c
		go c.run(run, b)
	}
	c.streams++
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.streams--; c.streams == 0 {
			delete(b.conns, name)
			c.stop()
		}
	}
}

func (c *bareConn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// add creates a watch.
func (c *bareConn) add(stream grpc.ServerStream, id, from int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := stream.SendMsg(&etcdserverpb.WatchResponse{WatchId: id, Created: true}); err != nil {
		return err
	}
	c.watches = append(c.watches, &bareWatch{
		stream: stream, next: int(max(from, 1)) - 1,
		id: protowire.AppendVarint(protowire.AppendTag(nil, watchID, protowire.VarintType), uint64(id)),
	})
	c.poke()
	return nil
}

// forget removes the watches of a stream, which gets no more messages.
func (c *bareConn) forget(stream grpc.ServerStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.watches[:0]
	for _, w := range c.watches {
		if w.stream != stream {
			kept = append(kept, w)
		}
	}
	c.watches = kept
}

// run sends the pending events to all watches whenever there are any.
func (c *bareConn) run(ctx context.Context, b *bare) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		events := b.events
		b.mu.Unlock()
		c.pass(events)
	}
}

// pass sends to each watch its pending events, in messages of a bounded size.
func (c *bareConn) pass(events [][]byte) {
	const enough = 1 << 20
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		for w.next < len(events) {
			m, size := mem.BufferSlice{mem.SliceBuffer(w.id)}, 0
			for ; w.next < len(events) && size < enough; w.next++ {
				m = append(m, mem.SliceBuffer(events[w.next]))
				size += len(events[w.next])
			}
			if w.stream.SendMsg(m) != nil {
				break // the stream's handler gets the error
			}
		}
	}
}

// bareCodec sends encoded messages unchanged.
type bareCodec struct{}

func (bareCodec) Name() string { return "proto" }

func (bareCodec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(mem.BufferSlice); ok {
		return m, nil
	}
	return codec{}.Marshal(v)
}

func (bareCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	return proto.Unmarshal(data.Materialize(), m)
}
