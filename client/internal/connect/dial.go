// Package connect makes connections to nodes, secured and with the credentials of a program:
// TLS from files ([Files]), bearer tokens, and the tokens of etcd users ([Login]).
//
// Read [Dial] first. A Login and Files are shared by all connections of a client, and are
// safe for use by several goroutines.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// maxMessage bounds a message from a node. An event with its previous value is up to
// twice etcd's request limit (1.5 MiB).
const maxMessage = 16 << 20

// Options configure connections. The zero value of a field other than Login means none.
type Options struct {
	TLS         *tls.Config
	Files       *Files // in place of TLS
	Token       func() (string, error)
	Login       *Login
	Renews      bool // the program may provide other credentials later
	Dialer      func(ctx context.Context, address string) (net.Conn, error)
	DialOptions []grpc.DialOption // added to those of the client
}

// Renewed records that a call or stream, which began at a time, has failed with v. It
// reports whether it lacked valid credentials and others are available.
func (o *Options) Renewed(v outcome.Verdict, began time.Time) bool {
	if !errors.Is(v.Err, outcome.ErrUnauthenticated) {
		return false
	}
	another := v.Refused && o.Login.Again(began)
	return another || o.Renews
}

// Dial builds the connection; nothing is sent yet.
func Dial(addr string, o Options) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	switch {
	case o.Files != nil:
		creds = tlsconf.Credentials(o.Files.config)
	case o.TLS != nil:
		creds = credentials.NewTLS(o.TLS.Clone())
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
	}
	if o.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{o.Token}))
	}
	target := addr
	if o.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dialer))
		target = "passthrough:///" + addr
	}
	conn, err := grpc.NewClient(target, slices.Concat(opts, o.Login.options(), o.DialOptions)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

// Connected waits until the connection is established. It fails when the first attempt
// does, or when ctx ends.
func Connected(ctx context.Context, conn *grpc.ClientConn, addr string) error {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("connect to %s: %w", addr, outcome.ErrRefused)
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Connecting:
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to %s: %w", addr, context.Cause(ctx))
		}
	}
}
