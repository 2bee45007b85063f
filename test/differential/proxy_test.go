package differential_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// plant is a planted mistake of a tier.
type plant struct {
	// method is the affected method, such as "KV.Range".
	method string
	// request and response change passing messages; nil: unchanged.
	request  func(m proto.Message)
	response func(c *call, m proto.Message) []proto.Message
	end      func(err error) error
	// token replaces the caller's token.
	token string
	// late delays matching messages for a moment.
	late func(m proto.Message) bool
	// strict: etcd itself may do it at times, so the run must not be loose.
	strict bool
	// want is part of the expected difference.
	want string
}

// call is one call through the proxy.
type call struct {
	requests []proto.Message
	n        int // responses so far
	kept     proto.Message
}

// serve runs a proxy with the mistake in front of an etcd, until the test ends.
func (p plant) serve(t *testing.T, etcd *grpc.ClientConn) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(
		grpc.ForceServerCodec(frames{}), grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error { return p.pass(in, etcd) }),
	)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-served })
	return l.Addr().String()
}

// pass forwards one call.
func (p plant) pass(in grpc.ServerStream, etcd *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(in)
	md, _ := metadata.FromIncomingContext(in.Context())
	wrong := method == "/etcdserverpb."+strings.ReplaceAll(p.method, ".", "/")
	if md = md.Copy(); wrong && p.token != "" {
		md.Set("token", p.token)
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), md))
	defer cancel()
	out, err := etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(frames{}))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	c := &call{}
	var all sync.WaitGroup
	defer all.Wait()
	go func() { // ends after this call
		for {
			var f []byte
			if err := in.RecvMsg(&f); err != nil {
				if errors.Is(err, io.EOF) {
					_ = out.CloseSend()
				} else {
					cancel()
				}
				return
			}
			if m := message(method, false, f); wrong && m != nil {
				mu.Lock()
				c.requests = append(c.requests, clone(m))
				mu.Unlock()
				if p.request != nil {
					p.request(m)
					f = bytesOf(m)
				}
			}
			if err := out.SendMsg(f); err != nil {
				return
			}
		}
	}()
	lines := make(chan []byte, 1000) // delayed messages, in order
	defer close(lines)
	all.Go(func() {
		for f := range lines {
			time.Sleep(10 * time.Millisecond) // the delay
			mu.Lock()
			_ = in.SendMsg(f)
			mu.Unlock()
		}
	})
	for {
		var f []byte
		err := out.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			cancel()
			return nil
		}
		if err != nil {
			if wrong && p.end != nil {
				err = p.end(err)
			}
			cancel()
			return err
		}
		fs := [][]byte{f}
		if m := message(method, true, f); wrong && m != nil {
			if p.late != nil && p.late(m) {
				lines <- f
				continue
			}
			if p.response != nil {
				mu.Lock()
				c.n++
				fs = nil
				for _, changed := range p.response(c, m) {
					if changed == nil {
						mu.Unlock()
						cancel()
						return status.Error(codes.Unavailable, "the end")
					}
					fs = append(fs, bytesOf(changed))
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		for _, f := range fs {
			if err := in.SendMsg(f); err != nil {
				mu.Unlock()
				return err
			}
		}
		mu.Unlock()
	}
}

// message decodes a frame; nil: it is invalid, or of a method that etcd does not have.
func message(method string, response bool, frame []byte) proto.Message {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	kind := d.(protoreflect.MethodDescriptor).Input()
	if response {
		kind = d.(protoreflect.MethodDescriptor).Output()
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(kind.FullName())
	if err != nil {
		return nil
	}
	m := mt.New().Interface()
	if proto.Unmarshal(frame, m) != nil {
		return nil
	}
	return m
}

func bytesOf(m proto.Message) []byte {
	f, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return f
}

// frames forwards messages as raw bytes.
type frames struct{}

func (frames) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (frames) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (frames) Name() string                       { return "proto" }
