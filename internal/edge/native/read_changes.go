package native

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// checkChangedSince fails if changed_since does not fit the other fields of a list.
// local: another node forwards a client's request.
func checkChangedSince(r *shardwatchv1.ListRequest, local bool) error {
	since := r.GetChangedSince()
	if since == 0 {
		return nil
	}
	wrong := func(field, format string, args ...any) error {
		return &kv.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case since < 0:
		return wrong("changed_since", "%d: must not be negative", since)
	case !local && r.GetRevision() > 0 && since > r.GetRevision():
		return wrong("changed_since", "%d is after revision %d", since, r.GetRevision())
	case r.GetLimit() != 0:
		return wrong("limit", "leave it out with changed_since")
	case len(r.GetPageToken()) > 0:
		return wrong("page_token", "leave it out with changed_since")
	case r.GetKeysOnly():
		return wrong("keys_only", "leave it out with changed_since")
	case r.GetCount():
		return wrong("count", "leave it out with changed_since")
	case r.GetCountOnly():
		return wrong("count_only", "leave it out with changed_since")
	}
	return nil
}

// listChanges sends the changes since a revision. It fails if the node has not reached that
// revision.
func (s *service) listChanges(ctx context.Context, reading *router.Reading, cluster string, since kv.Revision, out grpc.ServerStream) error {
	body, err := reading.Changes(ctx, since)
	if err != nil {
		return err
	}
	defer body.Release()
	of := kv.HistoryID{Cluster: cluster, Lineage: body.Lineage}
	for at := (router.Place{}); !body.End(at); {
		var chunk router.Chunk
		chunk, at = body.Chunk(at, s.api.cfg.FragmentBytes)
		if len(chunk.KVs) > 0 {
			if err := out.SendMsg(wire.ListChunk(body.Revision, of, chunk.KVs)); err != nil {
				return err
			}
		}
		if len(chunk.Deleted) > 0 {
			if err := out.SendMsg(wire.ListDeleted(body.Revision, of, chunk.Deleted)); err != nil {
				return err
			}
		}
	}
	return out.SendMsg(wire.ListEnd(body.Revision, of, nil, -1, ageOf(reading)))
}
