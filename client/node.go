package client

import (
	"context"
	"fmt"
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

const (
	// maxMessage bounds a message from a node. An event with its previous
	// value is up to twice etcd's request limit (1.5 MiB).
	maxMessage = 16 << 20
	// maxMap bounds a shard map: 100,000 shards take some 21 MB.
	maxMap = 64 << 20
	// maxWatches bounds the watches of one stream; more open another one.
	maxWatches = 1000
)

// node is the connection to one address.
type node struct {
	addr string
	conn *grpc.ClientConn

	streams []*stream // guarded by Client.mu
}

// dial builds the connection; nothing is sent yet.
func dial(cfg Config, files *files, addr string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	switch {
	case files != nil:
		creds = tlsconf.Credentials(files.config)
	case cfg.TLS != nil:
		creds = credentials.NewTLS(cfg.TLS.Clone())
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
	}
	if cfg.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{cfg.Token}))
	}
	target := addr
	if cfg.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(cfg.Dialer))
		target = "passthrough:///" + addr
	}
	conn, err := grpc.NewClient(target, slices.Concat(opts, more, cfg.DialOptions)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

// connected waits until the connection stands. It fails when the first
// attempt does, or when ctx ends.
func (n *node) connected(ctx context.Context) error {
	for {
		state := n.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("connect to %s: %w", n.addr, outcome.ErrRefused)
		case connectivity.Idle:
			n.conn.Connect()
		case connectivity.Connecting:
		}
		if !n.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to %s: %w", n.addr, context.Cause(ctx))
		}
	}
}
