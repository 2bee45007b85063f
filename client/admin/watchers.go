package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// WatcherAPI is the API that a watch came by.
type WatcherAPI int32

// The APIs. The values are those of the API.
const (
	NativeAPI WatcherAPI = 1
	EtcdAPI   WatcherAPI = 2
)

// String returns the API in small letters.
func (a WatcherAPI) String() string {
	switch a {
	case NativeAPI:
		return "native"
	case EtcdAPI:
		return "etcd"
	}
	return "unknown"
}

// ServeMode says how a watch is served.
type ServeMode int32

// The modes. The values are those of the API.
const (
	// ServeWindow: it is sent events from the window.
	ServeWindow ServeMode = 1
	// ServeDelta: it is sent what has changed since its position.
	ServeDelta ServeMode = 2
	// ServeResync: it is sent, or waits for, the whole state.
	ServeResync ServeMode = 3
	// ServeConflated: it is sent the latest values at an interval, as it asked for.
	ServeConflated ServeMode = 4
	// ServeLog: it is sent what etcd's log has and the window has not.
	ServeLog ServeMode = 5
)

// String returns the mode in small letters.
func (r ServeMode) String() string {
	switch r {
	case ServeWindow:
		return "window"
	case ServeDelta:
		return "delta"
	case ServeResync:
		return "resync"
	case ServeConflated:
		return "conflated"
	case ServeLog:
		return "log"
	}
	return "unknown"
}

// WatcherStatus is one watch of a client, as the node that serves it tells.
type WatcherStatus struct {
	Node string
	// Client is host:port that it comes from; User is etcd's, while its
	// authentication is on.
	Client, User string
	API          WatcherAPI
	// ID is the watch's on its stream.
	ID    int64
	Range client.Range
	// Revision: everything up to it was sent. Lag is how many revisions of the
	// store lie between that and the newest that the node has, and Behind for how
	// long some have.
	Revision, Lag int64
	Behind        time.Duration
	// Bytes were sent in all, BytesPerSecond lately.
	Bytes          int64
	BytesPerSecond float64
	Mode           ServeMode
	// Since is when it began at this node.
	Since time.Time
	// Deltas and Resyncs are how often it was sent what has changed, and the
	// whole state.
	Deltas, Resyncs int64
}

// WatcherFilter narrows what [Client.Watchers] returns. The zero WatcherFilter
// takes all.
type WatcherFilter struct {
	// Range: only watches that touch it.
	Range client.Range
	// MinLag: only watches that lag by at least so many revisions.
	MinLag int64
}

// Watchers asks the node at an address for the watches that it serves, those of
// etcd's API too. Where etcd's authentication is on, it tells of those whose
// keys the caller may read. They come in no order.
func (c *Client) Watchers(ctx context.Context, address string, f WatcherFilter) ([]WatcherStatus, error) {
	var out []WatcherStatus
	err := c.c.CallNode(ctx, address, listTime, func(ctx context.Context, node grpc.ClientConnInterface) (err error) {
		out, err = watchers(ctx, node, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watchers of %s: %w", address, err)
	}
	return out, nil
}

// listTime is how long a node may take to list its watches, beyond an attempt.
const listTime = time.Minute

func watchers(ctx context.Context, node grpc.ClientConnInterface, f WatcherFilter) ([]WatcherStatus, error) {
	req := &pb.ListWatchersRequest{MinLag: f.MinLag}
	req.Key, req.RangeEnd = keyrange.Encode(f.Range.Start, f.Range.End)
	stream, err := pb.NewAdminServiceClient(node).ListWatchers(ctx, req)
	var out []WatcherStatus
	for err == nil {
		var m *pb.ListWatchersResponse
		if m, err = stream.Recv(); err == nil {
			for _, w := range m.GetWatchers() {
				out = append(out, watcherFrom(w))
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return out, nil
	}
	return nil, err //nolint:wrapcheck // judged by CallNode, wrapped by the caller
}

func watcherFrom(w *pb.WatcherStatus) WatcherStatus {
	return WatcherStatus{
		Node: w.GetNode(), Client: w.GetClient(), User: w.GetUser(), API: WatcherAPI(w.GetApi()), ID: w.GetWatchId(),
		Range: rangeFrom(w.GetKey(), w.GetRangeEnd()), Revision: w.GetRevision(), Lag: w.GetLagRevisions(), Behind: w.GetLag().AsDuration(),
		Bytes: w.GetBytes(), BytesPerSecond: w.GetBytesPerSecond(), Mode: ServeMode(w.GetServeMode()), Since: w.GetSince().AsTime(),
		Deltas: w.GetDeltas(), Resyncs: w.GetResyncs(),
	}
}
