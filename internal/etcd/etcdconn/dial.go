package etcdconn

import (
	"crypto/tls"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// roundRobin keeps a connection to every endpoint and uses the connected ones in turn.
// With pick_first all nodes would load one member, and a member that is cut from its
// quorum would keep all of its calls.
const roundRobin = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// longestBackoff is the longest pause between two attempts to connect to an endpoint.
// gRPC's default of 2 minutes suits large numbers of clients; the nodes are few, and
// must reconnect at once.
const longestBackoff = time.Second

// Flow control windows for etcd's messages, in bytes. Fixed sizes turn off gRPC's estimator, which
// pings etcd while data arrives.
const (
	streamWindow = 4 << 20
	connWindow   = 16 << 20
)

// dial returns a connection to the endpoints of the roster. It connects at the first
// call, and accepts answers of up to maxBytes.
func dial(cfg *Config, endpoints []endpoint, all *roster, maxBytes int, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	r := all.resolver()
	creds := insecure.NewCredentials()
	if endpoints[0].secure {
		now := cfg.TLS
		if now == nil {
			now = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
		}
		creds = tlsconf.Credentials(now)
	}
	dialer := cfg.Dialer
	if dialer == nil {
		dialer = rawconn.Dial
	}
	conn, err := grpc.NewClient(r.Scheme()+":///"+endpoints[0].addr, append(more,
		grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(roundRobin),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(all.dialer(dialer)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: cfg.KeepaliveTime, Timeout: cfg.KeepaliveTimeout,
			PermitWithoutStream: false, // etcd does not permit it (embed/etcd.go)
		}),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff},
			MinConnectTimeout: cfg.DialTimeout,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxBytes),
			grpc.MaxCallSendMsgSize(math.MaxInt32), // etcd itself rejects requests that are too large
		),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", endpoints[0].name, err)
	}
	return conn, nil
}

// dialOne returns a connection to one endpoint.
func dialOne(cfg *Config, e endpoint) (*grpc.ClientConn, error) {
	only := []endpoint{e}
	return dial(cfg, only, newRoster(only, 0, nil), maxAnswer)
}
