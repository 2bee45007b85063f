package native

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// service serves clients. With local set it serves other nodes: it answers only from this node's
// shards and forwards nothing.
type service struct {
	shardwatchv1.UnimplementedCacheServiceServer
	api   *API
	pumps *pump.Pumps
	local bool
}

// staleness checks a read's consistency and sets it in the router's request.
func staleness(req *router.ReadRequest, c shardwatchv1.Consistency, bound *durationpb.Duration, pinned bool) error {
	switch c {
	case shardwatchv1.Consistency_CONSISTENCY_UNSPECIFIED, shardwatchv1.Consistency_CONSISTENCY_LINEARIZABLE:
		if bound != nil {
			return &kv.InvalidError{Field: "max_staleness", Reason: "is valid only with CONSISTENCY_SERIALIZABLE"}
		}
	case shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE:
		req.Serializable = true
		if bound != nil {
			if !bound.IsValid() || bound.AsDuration() < 0 {
				return &kv.InvalidError{Field: "max_staleness", Reason: "must not be negative"}
			}
			req.MaxStaleness = bound.AsDuration()
		}
	default:
		return &kv.InvalidError{Field: "consistency", Reason: fmt.Sprintf("%d is not known", c)}
	}
	if pinned && c != shardwatchv1.Consistency_CONSISTENCY_UNSPECIFIED {
		return &kv.InvalidError{Field: "consistency", Reason: "leave it out with a revision or a page token: they fix the revision"}
	}
	return nil
}

// List implements shardwatchv1.CacheServiceServer.
func (s *service) List(r *shardwatchv1.ListRequest, out grpc.ServerStreamingServer[shardwatchv1.ListResponse]) error {
	return wire.Status(s.list(out.Context(), r, out))
}

func (s *service) list(ctx context.Context, r *shardwatchv1.ListRequest, out grpc.ServerStream) error {
	known := s.api.cfg.Router.History()
	req, options, err := s.listRequest(r, historyOf(known))
	if err != nil {
		return err
	}
	caller, err := s.permit(ctx, req.Range)
	if err != nil {
		return err
	}
	done, err := caller.List(int64(s.api.cfg.FragmentBytes)) // one chunk exists at a time
	if err != nil {
		return err
	}
	defer done()
	reading, err := s.api.cfg.Router.Read(ctx, req)
	if err != nil {
		return err
	}
	if since := kv.Revision(r.GetChangedSince()); since > 0 {
		return s.listChanges(ctx, reading, known.Cluster, since, out)
	}
	of := kv.HistoryID{Cluster: known.Cluster, Lineage: reading.Lineage}
	count := int64(-1)
	if r.GetCount() || r.GetCountOnly() {
		if count, err = reading.Count(ctx); err != nil {
			return err
		}
	}
	var token []byte
	if !r.GetCountOnly() {
		next, err := s.sendPage(ctx, caller, reading, options, of, out)
		if err != nil {
			return err
		}
		if next != "" {
			token = wire.PageToken(wire.Position{Cluster: wire.ClusterKey(known.Cluster), Lineage: reading.Lineage, Range: req.Range, Revision: reading.Revision, Next: next})
		}
	}
	// The last message carries the token, and the revision of an empty list.
	return out.SendMsg(wire.ListEnd(reading.Revision, of, token, count, ageOf(reading)))
}

// listRequest checks a request, and translates it for the router. here is the history that this
// node serves.
func (s *service) listRequest(r *shardwatchv1.ListRequest, here history) (req router.ReadRequest, options router.Options, err error) {
	rng, err := wire.Range(r.GetKey(), r.GetRangeEnd())
	if err != nil {
		return req, options, err
	}
	if r.GetLimit() < 0 {
		return req, options, &kv.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: must not be negative", r.GetLimit())}
	}
	if r.GetRevision() < 0 {
		return req, options, &kv.InvalidError{Field: "revision", Reason: fmt.Sprintf("%d: must not be negative", r.GetRevision())}
	}
	if err := checkChangedSince(r, s.local); err != nil {
		return req, options, err
	}
	if r.GetRevision() > 0 || r.GetChangedSince() > 0 {
		if err := s.learnedHere(r.GetClusterId(), r.GetLineage()); err != nil {
			return req, options, err
		}
	}
	req = router.ReadRequest{Range: rng, Revision: kv.Revision(r.GetRevision()), Local: s.local, Exists: s.local}
	options = router.Options{Limit: r.GetLimit(), KeysOnly: r.GetKeysOnly(), ChunkBytes: s.api.cfg.FragmentBytes}
	if token := r.GetPageToken(); len(token) > 0 {
		if here.lineage == 0 {
			return req, options, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: "this node has no shard map yet"}
		}
		if r.GetRevision() != 0 {
			return req, options, &kv.InvalidError{Field: "page_token", Reason: "fixes the revision: leave revision out"}
		}
		p, err := wire.ParsePageToken(token, rng)
		if err != nil {
			return req, options, err
		}
		if err := (history{p.Cluster, p.Lineage}).judge(here, "page token"); err != nil {
			return req, options, err
		}
		req.Revision, options.From = p.Revision, p.Next
	}
	err = staleness(&req, r.GetConsistency(), r.GetMaxStaleness(), req.Revision != 0)
	return req, options, err
}

// copiedChunk bounds a chunk of a list whose keys are copied for that list, in bytes; copying it takes
// about 0.3 ms. Other chunks refer to keys that the node holds anyway.
const copiedChunk = 16 << 10

// sendPage sends the keys of a page, and returns the first key of the next page; "": this
// is the last page. Chunks of keys without values, or from other nodes, count against the caller's
// share of the budget until the client reads them.
func (s *service) sendPage(ctx context.Context, caller *authz.Caller, reading *router.Reading, options router.Options, of kv.HistoryID, out grpc.ServerStream) (next string, err error) {
	limit := options.Limit
	// One key more than requested shows whether there is another page.
	if limit > 0 && limit < math.MaxInt64 {
		options.Limit++
	}
	left := limit
	copied := !s.local && (options.KeysOnly || !reading.Here())
	if copied {
		options.ChunkBytes = min(options.ChunkBytes, copiedChunk)
	}
	holder, leave := authz.Holder(ctx, caller), func() {}
	turn := func() error { return nil }
	if copied && reading.Here() { // chunks are copied only in the client's turn
		turn = func() error {
			end, err := s.api.cfg.Turns.Take(ctx, holder.Name)
			if err == nil {
				leave = end
			}
			return err
		}
	}
	if err := turn(); err != nil {
		return "", err
	}
	defer func() { leave() }()
	err = reading.Each(ctx, options, func(chunk []*kv.KeyValue) error {
		if limit > 0 {
			if int64(len(chunk)) > left {
				next = string(chunk[left].Key())
				chunk = chunk[:left]
			}
			left -= int64(len(chunk))
		}
		if len(chunk) == 0 {
			return nil
		}
		if copied {
			size := sizeOf(chunk)
			if err := s.api.cfg.Budget.Take(holder, budget.Lists, size, 0); err != nil {
				return err
			}
			defer s.api.cfg.Budget.Give(holder, budget.Lists, size)
		}
		leave()
		leave = func() {}
		if err := out.SendMsg(wire.ListChunk(reading.Revision, of, chunk)); err != nil {
			return err
		}
		return turn()
	})
	return next, err //nolint:wrapcheck // the caller converts it into a status
}

// sizeOf returns the approximate size of a chunk's keys in bytes.
func sizeOf(chunk []*kv.KeyValue) (size int64) {
	const each = 128 // overhead of one key
	for _, item := range chunk {
		size += int64(len(item.Encoded())) + each
	}
	return size
}

// learnedHere fails with a *kv.LineageError when a read's revision was learned in
// another history.
func (s *service) learnedHere(clusterID string, lineage uint64) error {
	here := historyOf(s.api.cfg.Router.History())
	if here.lineage == 0 {
		return nil // no shard map yet: the read itself fails
	}
	return claimed(clusterID, lineage, here).judge(here, "revision")
}

// Get implements shardwatchv1.CacheServiceServer.
func (s *service) Get(ctx context.Context, r *shardwatchv1.GetRequest) (*shardwatchv1.GetResponse, error) {
	out, err := s.get(ctx, r)
	return out, wire.Status(err)
}

func (s *service) get(ctx context.Context, r *shardwatchv1.GetRequest) (*shardwatchv1.GetResponse, error) {
	rng, err := wire.Range(r.GetKey(), nil)
	if err != nil {
		return nil, err
	}
	if r.GetRevision() < 0 {
		return nil, &kv.InvalidError{Field: "revision", Reason: fmt.Sprintf("%d: must not be negative", r.GetRevision())}
	}
	req := router.ReadRequest{Range: rng, Revision: kv.Revision(r.GetRevision()), Local: s.local}
	if err := staleness(&req, r.GetConsistency(), r.GetMaxStaleness(), req.Revision != 0); err != nil {
		return nil, err
	}
	if r.GetRevision() > 0 {
		if err := s.learnedHere(r.GetClusterId(), r.GetLineage()); err != nil {
			return nil, err
		}
	}
	if _, err := s.permit(ctx, rng); err != nil {
		return nil, err
	}
	known := s.api.cfg.Router.History()
	reading, err := s.api.cfg.Router.Read(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &shardwatchv1.GetResponse{ClusterId: known.Cluster, Lineage: reading.Lineage}
	err = reading.Each(ctx, router.Options{ChunkBytes: s.api.cfg.FragmentBytes}, func(chunk []*kv.KeyValue) error {
		out.Kv = wire.KeyValueMessage(chunk[0])
		return nil
	})
	out.Revision = int64(reading.Revision)
	out.Age = ageMessage(reading.Age())
	return out, err
}
