package client

import (
	"google.golang.org/grpc"
)

const (
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
