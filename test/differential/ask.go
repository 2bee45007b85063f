package differential

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	_ "go.etcd.io/etcd/api/v3/etcdserverpb" // the descriptors of the methods
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// patience bounds the wait for an answer. Correct servers never reach it.
const patience = 30 * time.Second

// question is one call: a method such as "etcdserverpb.KV.Range" and the sent messages, one unless
// the method takes a stream.
type question struct {
	method string
	sent   []proto.Message
	// raw, if set, is sent instead of a message. It may be malformed.
	raw []byte
	// who is the caller: an index of people, root by default.
	who int
}

func ask(method string, sent ...proto.Message) question {
	return question{method: "etcdserverpb." + method, sent: sent}
}

// String returns the question in words.
func (q question) String() string {
	var b strings.Builder
	b.WriteString(q.method)
	for _, m := range q.sent {
		fmt.Fprintf(&b, " {%s}", cut(oneLine(m), 600))
	}
	if q.raw != nil {
		fmt.Fprintf(&b, " raw %x", q.raw[:min(len(q.raw), 100)])
	}
	if q.who > 0 {
		fmt.Fprintf(&b, " of person %d", q.who)
	}
	return b.String()
}

// path returns the method's path in gRPC.
func (q question) path() string {
	at := strings.LastIndexByte(q.method, '.')
	return "/" + q.method[:at] + "/" + q.method[at+1:]
}

// answer is the complete response: messages, and the end of the call.
type answer struct {
	messages []proto.Message
	end      *status.Status
}

// first returns the first message of an answer, or nil.
func (a answer) first() proto.Message {
	if len(a.messages) == 0 {
		return nil
	}
	return a.messages[0]
}

// put sends the question over a connection and waits for the whole answer.
func (q question) put(ctx context.Context, cc grpc.ClientConnInterface) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if q.raw != nil {
		var out []byte
		err := cc.Invoke(ctx, q.path(), q.raw, &out, grpc.ForceCodec(rawCodec{}))
		return answer{end: status.Convert(err)}
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(q.method))
	if err != nil {
		return answer{end: status.Convert(cc.Invoke(ctx, q.path(), q.sent[0], q.sent[0]))}
	}
	method := d.(protoreflect.MethodDescriptor)
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return answer{end: status.Convert(err)}
	}
	if !method.IsStreamingServer() {
		resp := kind.New().Interface()
		if err := cc.Invoke(ctx, q.path(), q.sent[0], resp); err != nil {
			return answer{end: status.Convert(err)}
		}
		return answer{messages: []proto.Message{resp}}
	}
	return q.stream(ctx, cc, method, kind)
}

// stream sends all messages, closes its side, and waits for the end.
func (q question) stream(ctx context.Context, cc grpc.ClientConnInterface, method protoreflect.MethodDescriptor, kind protoreflect.MessageType) (a answer) {
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: method.IsStreamingClient()}, q.path())
	if err != nil {
		return answer{end: status.Convert(err)}
	}
	for _, m := range q.sent {
		if err := s.SendMsg(m); err != nil {
			break // Recv returns the error
		}
	}
	_ = s.CloseSend() // never fails
	for {
		resp := kind.New().Interface()
		err := s.RecvMsg(resp)
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.end = status.Convert(err)
			return a
		}
		a.messages = append(a.messages, resp)
	}
}

// rawCodec sends bytes unchanged and names itself protobuf.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawCodec) Name() string                       { return "proto" }
