package clients_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"  // a case sends compressed messages
	_ "google.golang.org/grpc/encoding/proto" // the codec
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/interoptest"
)

// The cases of testdata/interop.*, with their names in
// https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md
var interopCases = []string{
	"empty_unary", "large_unary", "client_compressed_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
	"cancel_after_begin", "cancel_after_first_response", "timeout_on_sleeping_server", "custom_metadata", "status_code_and_message",
	"special_status_message", "unimplemented_method", "unimplemented_service",
}

// interoperates runs gRPC's interop cases with another language's gRPC library against the
// HTTP/2 server of the client port. The command gets the server's address and the file of the
// service's descriptors.
func interoperates(t *testing.T, env []string, command ...string) {
	t.Helper()
	address := interopServer(t)
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(pb.File_grpc_testing_empty_proto), protodesc.ToFileDescriptorProto(pb.File_grpc_testing_messages_proto),
		protodesc.ToFileDescriptorProto(pb.File_grpc_testing_test_proto),
	}})
	if err != nil {
		t.Fatal(err)
	}
	descriptors := filepath.Join(t.TempDir(), "descriptors")
	if err := os.WriteFile(descriptors, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], address, descriptors)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range interopCases {
		if !strings.Contains(string(out), "ok "+name+"\n") {
			t.Errorf("%s did not pass", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// interopServer serves gRPC's interop service, with the limits of a node.
func interopServer(t *testing.T) (address string) {
	t.Helper()
	s, err := grpcserver.New(grpcserver.Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 8 << 20, MaxStreams: 100, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 4 << 20,
		HandshakeTimeout: time.Minute, PingAfter: 30 * time.Second, PingTimeout: time.Minute, PingLeast: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, new(interoptest.Service))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // until Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return l.Addr().String()
}
