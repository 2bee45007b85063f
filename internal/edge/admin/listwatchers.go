package admin

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Bounds of a ListWatchers message.
const (
	watchersPart      = 1000
	watchersPartBytes = 256 << 10
)

// ListWatchers implements shardwatchv1.AdminServiceServer.
func (s *adminService) ListWatchers(r *shardwatchv1.ListWatchersRequest, out grpc.ServerStreamingServer[shardwatchv1.ListWatchersResponse]) error {
	return wire.Status(s.listWatchers(r, out))
}

// listWatchers sends the watches over ranges that the caller may read.
func (s *adminService) listWatchers(r *shardwatchv1.ListWatchersRequest, out grpc.ServerStreamingServer[shardwatchv1.ListWatchersResponse]) error {
	var within kv.Range
	if len(r.GetKey()) > 0 || len(r.GetRangeEnd()) > 0 {
		var err error
		if within, err = wire.Range(r.GetKey(), r.GetRangeEnd()); err != nil {
			return err
		}
	}
	if r.GetMinLag() < 0 {
		return &kv.InvalidError{Field: "min_lag", Reason: fmt.Sprintf("%d: must not be negative", r.GetMinLag())}
	}
	caller, g := "", s.srv.cfg.Callers.Guard
	if !callers.Open(g, kv.Range{}) {
		var err error
		if caller, err = s.srv.cfg.Callers.User(out.Context()); err != nil {
			return callers.Error(err)
		}
	}
	var part []*shardwatchv1.WatcherStatus
	size := 0
	send := func() error {
		m := &shardwatchv1.ListWatchersResponse{Watchers: part}
		part, size = nil, 0
		return out.Send(m)
	}
	figures := s.srv.cfg.Figures()
	for api, w := range s.srv.cfg.Watchers() {
		if !w.Range.Overlaps(within) {
			continue
		}
		f := figures(w.Watch)
		if int64(f.Lag) < r.GetMinLag() || g != nil && g.MayRead(caller, w.Range) != nil {
			continue
		}
		m := watcherMessage(api, w, f)
		m.Node = string(s.srv.cfg.Self)
		part = append(part, m)
		if size += len(m.GetKey()) + len(m.GetRangeEnd()); len(part) == watchersPart || size >= watchersPartBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send() // also if there are none
}

func watcherMessage(api shardwatchv1.WatcherAPI, w watchstats.Watcher, f watchstats.Figures) *shardwatchv1.WatcherStatus {
	m := &shardwatchv1.WatcherStatus{
		User: w.User, Api: api, WatchId: w.ID,
		Revision: int64(f.Revision), LagRevisions: int64(f.Lag), Lag: durationpb.New(f.Behind),
		Bytes: f.Bytes, BytesPerSecond: f.Rate, ServeMode: shardwatchv1.WatcherServeMode(f.Mode),
		Since: timestamppb.New(f.Since), Deltas: f.Deltas, Resyncs: f.Resyncs,
	}
	m.Key, m.RangeEnd = w.Range.Etcd()
	if w.Client != nil {
		m.Client = w.Client.String()
	}
	return m
}
