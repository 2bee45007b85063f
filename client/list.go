package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/calls"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// Listing is a list of a range at one revision, which is read as it arrives. It serves
// one goroutine.
type Listing struct {
	c   *Client
	ctx context.Context //nolint:containedctx // of the call that the iterator continues
	rng Range
	o   readOptions

	at       Position // its revision is 0 before the first answer
	last     string   // the last key yielded; "": none
	nextPage []byte
	deleted  [][]byte
	freshAt  time.Time
}

// List lists a range in key order, all at one revision. Reading starts when [Listing.All]
// is ranged over. A list that breaks resumes on another node, at the same revision, after
// the last key; one with [ChangedSince] yields its keys once it is complete.
func (c *Client) List(ctx context.Context, r Range, opts ...ListOption) *Listing {
	l := &Listing{c: c, ctx: ctx, rng: r}
	for _, o := range opts {
		o.list(&l.o)
	}
	return l
}

// Revision returns the revision of the list; 0 until the first key, or the end, has arrived.
func (l *Listing) Revision() int64 { return l.at.Revision }

// Position returns [Listing.Revision] with the history it belongs to.
func (l *Listing) Position() Position { return l.at }

// NextPage returns the token for [Page] to continue with, once [Listing.All] has ended
// and if [Limit] cut the list; nil if the list is complete.
func (l *Listing) NextPage() []byte { return l.nextPage }

// Deleted returns the keys that do not exist at the revision but may have existed after
// the position of [ChangedSince], once [Listing.All] has ended.
func (l *Listing) Deleted() [][]byte { return l.deleted }

// FreshAt returns a time at which etcd had no revision newer than the list's, once
// [Listing.All] has ended; the zero time if it is not known.
func (l *Listing) FreshAt() time.Time { return l.freshAt }

// All yields the keys, in order except with [ChangedSince], and at most one error,
// last. It may be ranged over once.
func (l *Listing) All() iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		if err := l.run(yield); err != nil {
			yield(KeyValue{}, fmt.Errorf("list %v: %w", l.rng, err))
		}
	}
}

// errStop reports that the consumer has left the loop.
var errStop = errors.New("stop")

func (l *Listing) run(yield func(KeyValue, error) bool) error {
	if err := l.rng.validate(); err != nil {
		return err
	}
	switch {
	case l.o.limit < 0:
		return fmt.Errorf("%w: limit %d is negative", ErrInvalid, l.o.limit)
	case l.o.changes && l.o.since <= 0:
		return fmt.Errorf("%w: changed since revision %d: it must be positive", ErrInvalid, l.o.since)
	case l.o.changes && (l.o.limit > 0 || l.o.page != nil || l.o.keysOnly):
		return fmt.Errorf("%w: ChangedSince excludes Limit, Page and KeysOnly", ErrInvalid)
	}
	a, err := l.c.calls.Begin(l.ctx, l.rng.keys())
	if err != nil {
		return err
	}
	for {
		n, err := a.Node()
		if err == nil {
			err = l.attempt(n, a, yield)
		}
		if errors.Is(err, errStop) {
			a.Observe(nil)
			return nil
		}
		a.Observe(err)
		var future *FutureRevisionError
		switch {
		case err == nil:
			return nil
		case l.at.Revision != 0 && errors.As(judge(err).Err, &future):
			// Another node served the list's revision: this one lags.
			err = outcome.ErrLags
		}
		if err := a.Failed(l.ctx, err); err != nil {
			return err
		}
	}
}

// attempt reads the rest of the list from one node.
func (l *Listing) attempt(n *nodes.Node, a *calls.Attempts, yield func(KeyValue, error) bool) error {
	ctx, cancel := context.WithCancelCause(l.ctx)
	defer cancel(nil)
	// Only the wait for the node counts, not the consumer's time.
	patience := time.AfterFunc(l.c.cfg.AttemptTimeout, func() { cancel(outcome.ErrSilent) })
	defer patience.Stop()
	failed := func(err error) error {
		if errors.Is(context.Cause(ctx), outcome.ErrSilent) {
			return outcome.ErrSlow
		}
		return err
	}
	var changed []KeyValue
	if l.deleted = nil; l.o.changes { // nothing has been yielded yet
		l.at = Position{}
	}
	l.c.lists.Add(1)
	stream, err := pb.NewCacheServiceClient(n.Conn).List(ctx, l.request())
	if err != nil {
		return failed(err)
	}
	for {
		r, more, err := receive(stream)
		if err != nil {
			return failed(err)
		}
		if !more {
			for _, kv := range changed {
				if !yield(kv, nil) {
					return errStop
				}
			}
			return nil
		}
		patience.Stop()
		// The last key again is no progress: a node may send only that one.
		if kvs := r.GetKvs(); l.last == "" || len(kvs) == 0 || string(kvs[len(kvs)-1].GetKey()) > l.last {
			a.Worked()
		}
		at := Position{r.GetClusterId(), r.GetLineage(), r.GetRevision()}
		if l.at.Revision == 0 {
			l.at = at
		}
		switch h := l.o.history; {
		case at != l.at:
			return fmt.Errorf("%w: began at %v, continued at %v", l.at.history().wrong(at.history()), l.at, at)
		case !h.fits(at.history()):
			return fmt.Errorf("%w: asked for lineage %d of cluster %s, got %v", h.wrong(at.history()), h.lineage, h.cluster, at)
		}
		l.nextPage = r.GetNextPageToken()
		if age := r.GetAge(); age != nil {
			l.freshAt = time.Now().Add(-age.AsDuration())
		}
		if l.o.changes {
			for _, p := range r.GetKvs() {
				changed = append(changed, keyValueFrom(p))
			}
			l.deleted = append(l.deleted, r.GetDeleted()...)
			patience.Reset(l.c.cfg.AttemptTimeout)
			continue
		}
		for _, p := range r.GetKvs() {
			if kv := keyValueFrom(p); string(kv.Key) > l.last { // others were yielded before the break
				l.last = string(kv.Key)
				if !yield(kv, nil) {
					return errStop
				}
			}
		}
		patience.Reset(l.c.cfg.AttemptTimeout)
	}
}

// request returns the request for the rest. A page that broke is requested again whole, as its
// token, and the next one, belong to the original range. Without a limit the range starts at
// the last yielded key: there may be no key after it, and nodes reject an empty range.
func (l *Listing) request() *pb.ListRequest {
	r := l.rng
	req := &pb.ListRequest{
		Consistency: l.o.consistency(), Revision: l.o.revision,
		Limit: l.o.limit, PageToken: l.o.page, KeysOnly: l.o.keysOnly, ChangedSince: l.o.since,
		ClusterId: l.o.history.cluster, Lineage: l.o.history.lineage,
	}
	if l.o.maxStaleness > 0 {
		req.MaxStaleness = durationpb.New(l.o.maxStaleness)
	}
	if l.at.Revision != 0 { // the rest belongs to the same history
		req.ClusterId, req.Lineage = l.at.Cluster, l.at.Lineage
	}
	if l.at.Revision != 0 && l.o.page == nil {
		req.Revision = l.at.Revision
		req.Consistency, req.MaxStaleness = pb.Consistency_CONSISTENCY_UNSPECIFIED, nil
	}
	if l.last != "" && l.o.limit == 0 {
		r.Start = l.last
		req.Revision, req.PageToken = l.at.Revision, nil
	}
	req.Key, req.RangeEnd = r.wire()
	return req
}

// receive receives the next message of a stream; false at its end.
func receive[T any](stream interface{ Recv() (T, error) }) (T, bool, error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err //nolint:wrapcheck // judged and wrapped by the caller
	}
	return m, true, nil
}
