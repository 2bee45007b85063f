package clienttest

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// ListWatchers reports the same watches in every run: n1 has one that lags, and all but
// the last node have one of etcd's API. It applies the filter.
func (s *adminServer) ListWatchers(r *pb.ListWatchersRequest, out pb.AdminService_ListWatchersServer) error {
	from, to, filtered := span(r.GetKey(), r.GetRangeEnd())
	for _, w := range s.n.watchers() {
		start, end, _ := span(w.GetKey(), w.GetRangeEnd())
		apart := end != "" && end <= from || to != "" && to <= start
		if filtered && apart || w.GetLagRevisions() < r.GetMinLag() {
			continue
		}
		if err := out.Send(&pb.ListWatchersResponse{Watchers: []*pb.WatcherStatus{w}}); err != nil {
			return err //nolint:wrapcheck // gRPC's own
		}
	}
	return nil
}

func (n *Node) watchers() []*pb.WatcherStatus {
	nodes := n.c.nodes
	since := timestamppb.New(time.Now().Add(-90 * time.Minute))
	var out []*pb.WatcherStatus
	if n == nodes[0] {
		out = append(out, &pb.WatcherStatus{
			Node: n.Name, Client: "10.0.0.7:40112", User: "ann", Api: pb.WatcherAPI_WATCHER_API_NATIVE, WatchId: 1,
			Key: []byte("/pods/"), RangeEnd: []byte("/pods0"), Revision: 41_000, LagRevisions: 1200, Lag: durationpb.New(4500 * time.Millisecond),
			Bytes: 5 << 20, BytesPerSecond: 2048, ServeMode: pb.WatcherServeMode_WATCHER_SERVE_MODE_DELTA, Since: since, Deltas: 2, Resyncs: 1,
		})
	}
	if n != nodes[len(nodes)-1] {
		out = append(out, &pb.WatcherStatus{
			Node: n.Name, Client: "10.0.0.9:51007", Api: pb.WatcherAPI_WATCHER_API_ETCD, WatchId: 0,
			Key: []byte("/nodes/a"), Revision: 42_200, Lag: durationpb.New(0),
			Bytes: 900, ServeMode: pb.WatcherServeMode_WATCHER_SERVE_MODE_WINDOW, Since: since,
		})
	}
	return out
}
