// Package interoptest implements the server of gRPC's interop cases, for tests of a gRPC server with
// clients in several languages:
// https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md
package interoptest

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Service implements grpc.testing.TestService. The zero Service is ready for use.
type Service struct {
	pb.UnimplementedTestServiceServer
}

// echo returns the metadata that the interop cases send.
func echo(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md["x-grpc-test-echo-initial"]; len(v) > 0 {
		_ = grpc.SendHeader(ctx, metadata.Pairs("x-grpc-test-echo-initial", v[0]))
	}
	if v := md["x-grpc-test-echo-trailing-bin"]; len(v) > 0 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-grpc-test-echo-trailing-bin", v[0]))
	}
}

func payload(n int32) *pb.Payload { return &pb.Payload{Body: make([]byte, n)} }

// EmptyCall returns an empty message.
func (*Service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	return new(pb.Empty), nil
}

// UnaryCall returns a payload of the requested size, or the requested status.
func (*Service) UnaryCall(ctx context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	echo(ctx)
	if st := in.GetResponseStatus(); st.GetCode() != 0 {
		return nil, status.Error(codes.Code(st.GetCode()), st.GetMessage()) //nolint:gosec // a status code
	}
	return &pb.SimpleResponse{Payload: payload(in.GetResponseSize())}, nil
}

// StreamingOutputCall sends the requested payloads.
func (*Service) StreamingOutputCall(in *pb.StreamingOutputCallRequest, out pb.TestService_StreamingOutputCallServer) error {
	for _, p := range in.GetResponseParameters() {
		if err := out.Send(&pb.StreamingOutputCallResponse{Payload: payload(p.GetSize())}); err != nil {
			return err
		}
	}
	return nil
}

// StreamingInputCall returns the number of received payload bytes.
func (*Service) StreamingInputCall(in pb.TestService_StreamingInputCallServer) error {
	var sum int32
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return in.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: sum})
		}
		if err != nil {
			return err
		}
		sum += int32(len(m.GetPayload().GetBody())) //nolint:gosec // a message of less than 2 GiB
	}
}

// FullDuplexCall sends the payloads that each message requests.
func (*Service) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	echo(both.Context())
	for {
		in, err := both.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if st := in.GetResponseStatus(); st.GetCode() != 0 {
			return status.Error(codes.Code(st.GetCode()), st.GetMessage()) //nolint:gosec // a status code
		}
		for _, p := range in.GetResponseParameters() {
			if err := both.Send(&pb.StreamingOutputCallResponse{Payload: payload(p.GetSize())}); err != nil {
				return err
			}
		}
	}
}
