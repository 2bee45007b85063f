package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// uncompressed makes gRPC send answers uncompressed. By default, gRPC answers a client that
// compresses its requests with the same encoding, and compresses each message for each stream,
// at the node's expense. Compressed requests are still accepted.
func uncompressed() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
			if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
				return nil, err
			}
			return serve(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
			if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
				return err
			}
			return serve(srv, stream)
		}),
	}
}
