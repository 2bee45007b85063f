package main

import (
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// writer writes the events of a load. Its methods may be called from any goroutine.
type writer interface {
	// put writes an event and returns its revision after the server's acknowledgement.
	put(ctx context.Context, key, value string) (revision int64, err error)
	// revision returns the revision of the last event.
	revision(ctx context.Context) (int64, error)
	io.Closer
}

// writer returns a new writer with a separate connection.
func (s *side) writer() (writer, error) {
	if s.messaging() {
		return s.publisher()
	}
	cli, err := s.client()
	return etcdWriter{cli}, err
}

// client returns a client of the store of a side with etcd's API.
func (s *side) client() (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: []string{s.store}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}
	if s.tls != nil && s.kind == sideBare { // a bare side has one port
		cfg.TLS = s.tls.client()
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return cli, nil
}

// etcdWriter writes to an etcd.
type etcdWriter struct{ *clientv3.Client }

func (w etcdWriter) put(ctx context.Context, key, value string) (int64, error) {
	r, err := w.Put(ctx, key, value)
	if err != nil {
		return 0, err
	}
	return r.Header.GetRevision(), nil
}

func (w etcdWriter) revision(ctx context.Context) (int64, error) {
	r, err := w.Get(ctx, "x")
	if err != nil {
		return 0, fmt.Errorf("ask for the revision: %w", err)
	}
	return r.Header.GetRevision(), nil
}

// connection is a connection for watches.
type connection interface {
	open(ctx context.Context, method string) (stream, error)
	io.Closer
}

// stream carries the watches of a client: it sends requests and scans received answers.
type stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// connect opens a connection for watches.
func (s *side) connect(end string, more ...grpc.DialOption) (connection, error) {
	if s.messaging() {
		return s.subscriber(end)
	}
	conn, err := s.dial(end, more...)
	return grpcConnection{conn}, err
}

// grpcConnection is a connection to a gRPC server.
type grpcConnection struct{ *grpc.ClientConn }

func (c grpcConnection) open(ctx context.Context, method string) (stream, error) {
	return c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
}
