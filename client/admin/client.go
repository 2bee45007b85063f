package admin

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// Client operates the cluster that a client of package client is connected to.
type Client struct{ c *client.Client }

// New returns a Client that uses the connections of c, until c is closed.
func New(c *client.Client) *Client { return &Client{c} }

// anyNode tries one node after another until one answers an RPC of the admin service.
// An attempt may take extra beyond the client's AttemptTimeout.
func (c *Client) anyNode(ctx context.Context, extra time.Duration, ask func(context.Context, pb.AdminServiceClient) error) error {
	return refused(c.c.Call(ctx, extra, func(ctx context.Context, node grpc.ClientConnInterface) error {
		return ask(ctx, pb.NewAdminServiceClient(node))
	}))
}

// rangeFrom converts a range of the API.
func rangeFrom(key, end []byte) client.Range {
	start, stop := keyrange.Decode(key, end)
	return client.Between(start, stop)
}
