package server

import (
	"context"
	"errors"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// grpcServer serves gRPC at a port: grpc-go's server, or ours.
type grpcServer interface {
	Serve(l net.Listener) error
	Stop()
}

// clientServer is the server of the client port.
type clientServer interface {
	grpcServer
	reflection.GRPCServer
	// Drain accepts no more connections, and waits until all calls or ctx have ended.
	Drain(ctx context.Context) error
}

// grpcGo adapts grpc-go's server to clientServer.
type grpcGo struct{ *grpc.Server }

// Drain implements clientServer.
func (g grpcGo) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.GracefulStop() // returns on Stop at the latest
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
	if s.gateway != nil { // else web would be a non-nil interface of a nil pointer
		web = s.gateway
	}
	return grpcserver.New(grpcserver.Config{
		Credentials: creds, Codec: wire.NewCodec(), HTTP: web, Before: s.before,
		Unary: []grpc.UnaryServerInterceptor{s.called.unary, s.admitUnary}, Stream: s.admitStream, Failed: s.failed,
		MaxReceive: s.cfg.MaxMessageBytes, MaxStreams: s.cfg.MaxStreamsPerConnection, MaxHeader: maxHeader,
		StreamWindow: streamWindow, ConnWindow: connWindow, Hold: s.holdUnread, Unread: s.unreadAnswer, Turn: s.turn, Flooded: netlimit.Punish,
		HandshakeTimeout: handshakeTimeout, Idle: idleTimeout, Age: s.cfg.MaxConnectionAge, Grace: ageGrace,
		PingAfter: keepaliveTime, PingTimeout: keepaliveTimeout, PingLeast: keepaliveLeast,
	})
}

// countedAnswer is the size from which package etcdapi has counted an encoded answer already, in bytes: twice the size
// above which it does so, because it counts keys without their frames.
const countedAnswer = 128 << 10

// freeUnread is the largest unread answer that takes nothing from the budget, in bytes: its call takes more.
const freeUnread = 4 << 10

// unreadAnswer takes an answer of n bytes from the budget of its client, which does not read it. The bytes count as
// those of requests: a client that slowly reads its list may use all of its part of the lists.
func (s *Server) unreadAnswer(ctx context.Context, answer any, n int) (release func(), err error) {
	if _, ok := answer.(*wire.Encoded); n <= freeUnread || ok && n >= countedAnswer {
		return nil, nil //nolint:nilnil // there is nothing to release
	}
	caller, err := s.cfg.Access.Caller(ctx)
	if err != nil {
		caller = nil // the token has expired meanwhile: use the address
	}
	holder := authz.Holder(ctx, caller)
	if err := s.cfg.Budget.Take(holder, budget.Requests, int64(n), 0); err != nil {
		method, _ := grpc.Method(ctx)
		return nil, wire.Status(lost(method, err))
	}
	return func() { s.cfg.Budget.Give(holder, budget.Requests, int64(n)) }, nil
}

// lost returns the error of a call whose answer the budget has refused with err. For a call that may write, the error
// says that it was executed and has no retry delay: the client decides whether to write again.
func lost(method string, err error) error {
	var full *kv.LimitError
	if reads(method) || !errors.As(err, &full) {
		return err
	}
	return &kv.LimitError{Limit: full.Limit, Max: full.Max, Detail: "the call was executed, but its response is lost: read the pending responses"}
}

// turn waits for the turn of a client to compute. Turns are per address, because the caller
// may not be known yet.
func (s *Server) turn(ctx context.Context, from net.Addr) (leave func(), err error) {
	return s.cfg.Turns.Take(ctx, netlimit.SourceOf(from))
}

// webTurn is turn for a pump that serves the JSON watches of a client.
func (s *Server) webTurn(client string) (leave func()) {
	leave, _ = s.cfg.Turns.Take(context.Background(), client) // fails only if the context ends
	return leave
}

// holdUnread takes bytes from the budget for unread parts of requests, or returns them if n is
// negative. They count for the address, because the caller may not be known yet.
func (s *Server) holdUnread(from net.Addr, n int) bool {
	return s.cfg.Budget.Unread(budget.Client{Name: netlimit.SourceOf(from), Max: budget.HalfOfTotal}, n)
}
