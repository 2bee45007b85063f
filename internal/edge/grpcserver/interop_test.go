package grpcserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// gRPC's interop cases, with grpc-go's client. The names are those of
// https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md
func interopCases() map[string]func(*testing.T, *grpc.ClientConn, pb.TestServiceClient) {
	return map[string]func(*testing.T, *grpc.ClientConn, pb.TestServiceClient){
		"empty_unary":                 emptyUnary,
		"large_unary":                 largeUnary,
		"client_compressed_unary":     compressedUnary,
		"client_streaming":            clientStreaming,
		"server_streaming":            serverStreaming,
		"ping_pong":                   pingPong,
		"empty_stream":                emptyStream,
		"timeout_on_sleeping_server":  timeout,
		"cancel_after_begin":          cancelAfterBegin,
		"cancel_after_first_response": cancelAfterFirst,
		"custom_metadata":             customMetadata,
		"status_code_and_message":     statusAndMessage,
		"special_status_message":      specialStatus,
		"unimplemented_method":        unimplementedMethod,
		"unimplemented_service":       unimplementedService,
	}
}

func TestInterop(t *testing.T) {
	address, _ := serve(t, config())
	for name, run := range interopCases() {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, address)
			run(t, conn, pb.NewTestServiceClient(conn))
		})
	}
}

func emptyUnary(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	if _, err := c.EmptyCall(t.Context(), new(pb.Empty)); err != nil {
		t.Error(err)
	}
}

func largeUnary(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	for range 3 {
		r, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 314159, Payload: payload(271828)})
		if err != nil || len(r.GetPayload().GetBody()) != 314159 {
			t.Errorf("%d bytes, %v", len(r.GetPayload().GetBody()), err)
		}
	}
	// Larger than the windows of the stream, of the connection, and of the client for both.
	r, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 3 << 20, Payload: payload(4 << 20)})
	if err != nil || len(r.GetPayload().GetBody()) != 3<<20 {
		t.Errorf("%d bytes, %v", len(r.GetPayload().GetBody()), err)
	}
}

func compressedUnary(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	r, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 1000, Payload: payload(271828)}, grpc.UseCompressor(gzip.Name))
	if err != nil || len(r.GetPayload().GetBody()) != 1000 {
		t.Errorf("%d bytes, %v", len(r.GetPayload().GetBody()), err)
	}
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{Payload: payload(9 << 20)}, grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large message that compresses well: %v", err)
	}
}

func clientStreaming(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	s, err := c.StreamingInputCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int32{27182, 8, 1828, 45904} {
		if err := s.Send(&pb.StreamingInputCallRequest{Payload: payload(n)}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.CloseAndRecv()
	if err != nil || r.GetAggregatedPayloadSize() != 74922 {
		t.Errorf("%d, %v", r.GetAggregatedPayloadSize(), err)
	}
}

func sizes(n ...int32) (all []*pb.ResponseParameters) {
	for _, n := range n {
		all = append(all, &pb.ResponseParameters{Size: n})
	}
	return all
}

func serverStreaming(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	want := []int32{31415, 9, 2653, 58979, 0, 700_000}
	s, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{ResponseParameters: sizes(want...)})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range want {
		r, err := s.Recv()
		if err != nil || len(r.GetPayload().GetBody()) != int(n) {
			t.Fatalf("%d bytes, want %d, %v", len(r.GetPayload().GetBody()), n, err)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func pingPong(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int32{31415, 9, 2653, 58979} {
		sent := []int32{27182, 8, 1828, 45904}[i]
		if err := s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(n), Payload: payload(sent)}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil || len(r.GetPayload().GetBody()) != int(n) {
			t.Fatalf("%d bytes, want %d, %v", len(r.GetPayload().GetBody()), n, err)
		}
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func emptyStream(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func timeout(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	s, err := c.FullDuplexCall(ctx)
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
}

func cancelAfterBegin(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	// The call is not closed, because the server could answer the end before it sees the cancellation.
	if err := s.RecvMsg(&pb.StreamingInputCallResponse{}); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func cancelAfterFirst(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(31415)})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func customMetadata(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	const first, last = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
	ctx := metadata.AppendToOutgoingContext(t.Context(), first, "test_initial_metadata_value", last, "\xab\xab\xab")
	check := func(header, trailer metadata.MD) {
		t.Helper()
		if fmt.Sprint(header[first]) != "[test_initial_metadata_value]" || fmt.Sprint(trailer[last]) != "[\xab\xab\xab]" {
			t.Errorf("header %v, trailer %v", header, trailer)
		}
	}
	var header, trailer metadata.MD
	if _, err := c.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: 1, Payload: payload(1)}, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	check(header, trailer)
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(1)})
	header, _ = s.Header()
	_ = s.CloseSend()
	for err == nil {
		_, err = s.Recv()
	}
	check(header, s.Trailer())
}

func expectStatus(t *testing.T, c pb.TestServiceClient, code codes.Code, text string) {
	t.Helper()
	want := &pb.EchoStatus{Code: int32(code), Message: text}
	if _, err := c.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseStatus: want}); status.Code(err) != code || status.Convert(err).Message() != text {
		t.Errorf("%v, want %v %q", err, code, text)
	}
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamingOutputCallRequest{ResponseStatus: want})
	if _, err = s.Recv(); status.Code(err) != code || status.Convert(err).Message() != text {
		t.Errorf("%v, want %v %q", err, code, text)
	}
}

func statusAndMessage(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	expectStatus(t, c, codes.Unknown, "test status message")
	expectStatus(t, c, codes.PermissionDenied, "")
}

func specialStatus(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	expectStatus(t, c, codes.Unknown, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")
	expectStatus(t, c, codes.Unknown, "100 % of %41")
	// Larger than a frame, so it needs CONTINUATION.
	expectStatus(t, c, codes.Unknown, strings.Repeat("ä long status! ", 1500))
}

func unimplementedMethod(t *testing.T, _ *grpc.ClientConn, c pb.TestServiceClient) {
	if _, err := c.UnimplementedCall(t.Context(), new(pb.Empty)); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

func unimplementedService(t *testing.T, conn *grpc.ClientConn, _ pb.TestServiceClient) {
	for path, want := range map[string]string{
		"/grpc.testing.UnimplementedService/UnimplementedCall": "unknown service grpc.testing.UnimplementedService",
		"/grpc.testing.TestService/Other":                      "unknown method Other for service grpc.testing.TestService",
		"/x":                                                   `malformed method name: "/x"`,
	} {
		err := conn.Invoke(t.Context(), path, new(pb.Empty), new(pb.Empty))
		if status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != want {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// detailed is a service whose calls fail with details.
type detailed struct{ testService }

func (detailed) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-status-details-bin", "not ours"))
	s, err := status.New(codes.Unavailable, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7)})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

func TestStatusDetails(t *testing.T) {
	cfg := config()
	address, _ := serve(t, cfg, func(s *grpcserver.Server) {
		pb.RegisterTestServiceServer(s, &detailed{})
	})
	_, err := pb.NewTestServiceClient(dial(t, address)).EmptyCall(t.Context(), new(pb.Empty))
	details := status.Convert(err).Details()
	if len(details) != 1 || details[0].(*errdetails.RetryInfo).GetRetryDelay().GetNanos() != 7 {
		t.Errorf("%v with %v", err, details)
	}
}
