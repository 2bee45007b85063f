package server

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// grpcServer serves gRPC at a port: grpc-go's server, or ours.
type grpcServer interface {
	Serve(l net.Listener) error
	Stop()
}

// clientServer is the one of the client port.
type clientServer interface {
	grpcServer
	reflection.GRPCServer
	// Drain takes no more connections, and waits until all calls have ended, or ctx has.
	Drain(ctx context.Context) error
}

// grpcGo is grpc-go's server as a clientServer.
type grpcGo struct{ *grpc.Server }

// Drain implements clientServer.
func (g grpcGo) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.GracefulStop() // Stop ends it
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newClientServer returns the server of the client port, without services.
func (s *Server) newClientServer(creds credentials.TransportCredentials) (clientServer, error) {
	creds = told(creds, s.cfg.ClientFailed)
	if s.cfg.GRPCGo {
		return grpcGo{grpc.NewServer(append(s.options(creds, idleTimeout),
			grpc.ChainUnaryInterceptor(s.called.unary, s.admitUnary), grpc.StreamInterceptor(s.interceptStream))...)}, nil
	}
	var web http.Handler
	if s.gateway != nil { // not the nil of another type
		web = s.gateway
	}
	return grpcserver.New(grpcserver.Config{
		Credentials: creds, Codec: wire.NewCodec(), HTTP: web, Before: s.before,
		Unary: []grpc.UnaryServerInterceptor{s.called.unary, s.admitUnary}, Stream: s.admitStream, Failed: s.failed,
		MaxReceive: s.cfg.MaxMessageBytes, MaxStreams: s.cfg.MaxStreamsPerConnection, MaxHeader: maxHeader,
		StreamWindow: streamWindow, ConnWindow: connWindow, Hold: s.holdUnread, Turn: s.turn, Flooded: netlimit.Punish,
		HandshakeTimeout: handshakeTimeout, Idle: idleTimeout, Age: s.cfg.MaxConnectionAge, Grace: ageGrace,
		PingAfter: keepaliveTime, PingTimeout: keepaliveTimeout, PingLeast: keepaliveLeast,
	})
}

// turn waits for a client's turn to compute, which it has by its address: the caller may not
// be known yet.
func (s *Server) turn(ctx context.Context, from net.Addr) (leave func(), err error) {
	return s.cfg.Turns.Take(ctx, netlimit.SourceOf(from))
}

// webTurn is turn for a pump that serves a client's watches in JSON.
func (s *Server) webTurn(client string) (leave func()) {
	leave, _ = s.cfg.Turns.Take(context.Background(), client) // it fails when a context ends
	return leave
}

// holdUnread takes bytes from the budget for what calls have not read of their requests, or
// gives them back. They count for an address: the caller may not be known yet.
func (s *Server) holdUnread(from net.Addr, n int) bool {
	return s.cfg.Budget.Unread(budget.Client{Name: netlimit.SourceOf(from), Max: budget.HalfOfTotal}, n)
}
