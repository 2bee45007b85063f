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

// WatcherAPI is the API that a watch uses.
type WatcherAPI int32

// The APIs. The values are those of the API.
const (
	NativeAPI WatcherAPI = 1
	EtcdAPI   WatcherAPI = 2
)

// String returns the API in lower case.
func (a WatcherAPI) String() string {
	switch a {
	case NativeAPI:
		return "native"
	case EtcdAPI:
		return "etcd"
	}
	return "unknown"
}

// ServeMode is the way a watch is served.
type ServeMode int32

// The modes. The values are those of the API.
const (
	// ServeWindow: the watch gets events from the window.
	ServeWindow ServeMode = 1
	// ServeDelta: the watch gets the changes since its position.
	ServeDelta ServeMode = 2
	// ServeResync: the watch gets, or waits for, the full state.
	ServeResync ServeMode = 3
	// ServeConflated: the watch gets the latest values at the interval that it requested.
	ServeConflated ServeMode = 4
	// ServeLog: the watch gets events from etcd's log that the window does not have.
	ServeLog ServeMode = 5
)

// String returns the mode in lower case.
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

// WatcherStatus is one watch of a client, as the node that serves it reports it.
type WatcherStatus struct {
	Node string
	// Client is the host:port of the client; User is the etcd user, if etcd's
	// authentication is on.
	Client, User string
	API          WatcherAPI
	// ID is the watch's on its stream.
	ID    int64
	Range client.Range
	// Revision: everything up to it was sent. Lag is how many revisions of the store
	// lie between it and the node's newest, and Behind how long the watch has lagged.
	Revision, Lag int64
	Behind        time.Duration
	// Bytes is how many bytes were sent in total, BytesPerSecond the recent rate.
	Bytes          int64
	BytesPerSecond float64
	Mode           ServeMode
	// Since is when the watch started at this node.
	Since time.Time
	// Deltas and Resyncs count the deltas and full states that were sent.
	Deltas, Resyncs int64
}

// WatcherFilter limits the result of [Client.Watchers]. The zero WatcherFilter selects all.
type WatcherFilter struct {
	// Range selects watches that overlap it.
	Range client.Range
	// MinLag selects watches that lag by at least so many revisions.
	MinLag int64
}

// Watchers lists the watches that the node at an address serves, including those of
// etcd's API, in no order. If etcd's authentication is on, it lists only those whose
// keys the caller may read.
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
