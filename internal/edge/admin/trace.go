package admin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// TraceRevision implements shardwatchv1.AdminServiceServer.
func (s *adminService) TraceRevision(_ context.Context, r *shardwatchv1.TraceRevisionRequest) (*shardwatchv1.TraceRevisionResponse, error) {
	if r.GetRevision() <= 0 {
		return nil, wire.Status(&kv.InvalidError{Field: "revision", Reason: fmt.Sprintf("%d: must be greater than 0", r.GetRevision())})
	}
	out := &shardwatchv1.TraceRevisionResponse{Node: string(s.srv.cfg.Self)}
	oldest, newest := s.srv.cfg.Trace.Bounds()
	out.Oldest, out.Newest = int64(oldest), int64(newest)
	w, ok := s.srv.cfg.Trace.Of(kv.Revision(r.GetRevision()))
	if !ok {
		return out, nil
	}
	began := w.Received()
	out.Received = timestamppb.New(began)
	for _, h := range w.Hops {
		m := &shardwatchv1.RevisionHop{
			ShardId: h.Shard, Relay: h.Relay,
			Received: durationpb.New(h.Received.Sub(began)), Applied: durationpb.New(h.Applied.Sub(began)),
		}
		switch h.Source {
		case "": // the source has been lost since
		case replica.Etcd:
			m.Source = shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
		default:
			m.Source, m.SourceNode = shardwatchv1.ReplicaSource_REPLICA_SOURCE_PEER, h.Source
		}
		out.Hops = append(out.Hops, m)
	}
	out.Nodes, out.Watches = sentMessage(&w.Nodes, began), sentMessage(&w.Watches, began)
	return out, nil
}

func sentMessage(s *revtrace.Sent, began time.Time) *shardwatchv1.RevisionSent {
	if s.Times == 0 {
		return &shardwatchv1.RevisionSent{}
	}
	return &shardwatchv1.RevisionSent{Times: s.Times, First: durationpb.New(s.First.Sub(began)), Last: durationpb.New(s.Last.Sub(began))}
}
