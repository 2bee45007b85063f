package clienttest

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

type cacheServer struct {
	pb.UnimplementedCacheServiceServer
	n *Node
}

func failure(code codes.Code, reason, message string, meta map[string]string) error {
	s, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "shardwatch.dev", Metadata: meta})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return s.Err()
}

// at waits for, or checks, the revision of a read.
func (s *cacheServer) at(ctx context.Context, revision int64, serializable bool) (int64, uint64, error) {
	s.n.mu.Lock()
	notHere := s.n.notHere
	s.n.mu.Unlock()
	if notHere != nil {
		return 0, 0, failure(codes.Unavailable, "NOT_HERE", "the shard is not here", map[string]string{"endpoints": strings.Join(notHere, ","), "epoch": "1"})
	}
	c := s.n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.hist.revision()
	for {
		visible := s.n.visible(c.hist.revision())
		switch {
		case revision != 0 && revision < c.hist.floor:
			return 0, 0, failure(codes.OutOfRange, "COMPACTED", "compacted", map[string]string{"requested": fmt.Sprint(revision), "floor": fmt.Sprint(c.hist.floor)})
		case revision > visible:
			return 0, 0, failure(codes.OutOfRange, "FUTURE_REVISION", "future revision", map[string]string{"requested": fmt.Sprint(revision), "current": fmt.Sprint(visible)})
		case revision != 0:
			return revision, c.lineage, nil
		case serializable || visible >= head:
			return visible, c.lineage, nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return 0, 0, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (s *cacheServer) Get(ctx context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	start, end, ok := span(r.GetKey(), nil)
	if !ok {
		return nil, failure(codes.InvalidArgument, "INVALID_REQUEST", "key is empty", map[string]string{"field": "key"})
	}
	if err := s.judge(r.GetRevision(), r.GetClusterId(), r.GetLineage()); err != nil {
		return nil, err
	}
	rev, lineage, err := s.at(ctx, r.GetRevision(), r.GetConsistency() == pb.Consistency_CONSISTENCY_SERIALIZABLE)
	if err != nil {
		return nil, err
	}
	out := &pb.GetResponse{Revision: rev, ClusterId: s.n.c.cfg.ID, Lineage: lineage}
	if kvs := s.state(rev, start, end); len(kvs) > 0 {
		out.Kv = kvs[0]
	}
	return out, nil
}

// judge rejects a revision of another history, as nodes do.
func (s *cacheServer) judge(revision int64, cluster string, lineage uint64) error {
	current := s.n.c.Lineage()
	if revision == 0 || (cluster == "" || cluster == s.n.c.cfg.ID) && (lineage == 0 || lineage == current) {
		return nil
	}
	meta := map[string]string{"requested": fmt.Sprint(lineage), "current": fmt.Sprint(current)}
	if cluster != "" && cluster != s.n.c.cfg.ID {
		meta["foreign"] = "revision"
	}
	return failure(codes.FailedPrecondition, "WRONG_LINEAGE", "the revision is of another history", meta)
}

func (s *cacheServer) state(rev int64, start, end string) []*pb.KeyValue {
	s.n.c.mu.Lock()
	defer s.n.c.mu.Unlock()
	return s.n.c.hist.state(rev, start, end)
}

func (s *cacheServer) List(r *pb.ListRequest, stream pb.CacheService_ListServer) error {
	s.n.c.lists.Add(1)
	start, end, ok := span(r.GetKey(), r.GetRangeEnd())
	if !ok {
		return failure(codes.InvalidArgument, "INVALID_REQUEST", "range is wrong", map[string]string{"field": "key"})
	}
	if err := s.judge(max(r.GetRevision(), r.GetChangedSince()), r.GetClusterId(), r.GetLineage()); err != nil {
		return err
	}
	rev, from := r.GetRevision(), start
	if t := string(r.GetPageToken()); t != "" {
		var of string
		if _, err := fmt.Sscanf(t, "%d %q %q", &rev, &of, &from); err != nil || of != start+"-"+end {
			return failure(codes.InvalidArgument, "INVALID_REQUEST", "the page token is of another list", map[string]string{"field": "page_token"})
		}
	}
	rev, lineage, err := s.at(stream.Context(), rev, r.GetConsistency() == pb.Consistency_CONSISTENCY_SERIALIZABLE)
	if err != nil {
		return err
	}
	if since := r.GetChangedSince(); since > 0 {
		return s.changes(since, rev, lineage, start, end, stream)
	}
	kvs := s.state(rev, from, end)
	var next []byte
	if l := r.GetLimit(); l > 0 && int64(len(kvs)) > l {
		kvs = kvs[:l]
		next = fmt.Appendf(nil, "%d %q %q", rev, start+"-"+end, string(kvs[l-1].GetKey())+"\x00")
	}
	if r.GetKeysOnly() {
		for i, kv := range kvs {
			kvs[i] = &pb.KeyValue{Key: kv.GetKey(), CreateRevision: kv.GetCreateRevision(), ModRevision: kv.GetModRevision(), Version: kv.GetVersion()}
		}
	}
	for chunk := range chunks(kvs, s.n.c.cfg.ChunkKeys) {
		if due(&s.n.cut) {
			return status.Error(codes.Unavailable, "cut")
		}
		out := &pb.ListResponse{Revision: rev, ClusterId: s.n.c.cfg.ID, Lineage: lineage, Kvs: chunk.part}
		if chunk.last {
			out.NextPageToken = next
		}
		if err := stream.Send(out); err != nil {
			return err //nolint:wrapcheck // gRPC's own
		}
	}
	return nil
}

// changes lists the changes since a revision.
func (s *cacheServer) changes(since, rev int64, lineage uint64, start, end string, stream pb.CacheService_ListServer) error {
	c := s.n.c
	c.mu.Lock()
	floor := c.hist.deletes
	var kvs []*pb.KeyValue
	var deleted [][]byte
	if since < rev {
		kvs, deleted = c.hist.changes(since, rev, start, end)
	}
	c.mu.Unlock()
	if since+1 < floor {
		return failure(codes.OutOfRange, "COMPACTED", "compacted", map[string]string{"requested": fmt.Sprint(since + 1), "floor": fmt.Sprint(floor)})
	}
	for chunk := range chunks(kvs, c.cfg.ChunkKeys) {
		if due(&s.n.cut) {
			return status.Error(codes.Unavailable, "cut")
		}
		out := &pb.ListResponse{Revision: rev, ClusterId: s.n.c.cfg.ID, Lineage: lineage, Kvs: chunk.part}
		if chunk.first {
			out.Deleted = deleted
		}
		if chunk.last {
			out.Age = durationpb.New(s.n.ageNow())
		}
		if err := stream.Send(out); err != nil {
			return err //nolint:wrapcheck // gRPC's own
		}
	}
	return nil
}

type chunk[T any] struct {
	part        []T
	first, last bool
}

// chunks splits all into parts of n (0: one part); at least one.
func chunks[T any](all []T, n int) func(func(chunk[T]) bool) {
	return func(yield func(chunk[T]) bool) {
		if n <= 0 {
			n = max(len(all), 1)
		}
		for at := 0; ; at += n {
			to := min(at+n, len(all))
			last := to == len(all)
			if !yield(chunk[T]{part: all[at:to], first: at == 0, last: last}) || last {
				return
			}
		}
	}
}
