package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// errTooManyOps reports that etcd accepts only smaller transactions.
var errTooManyOps = errors.New("etcd takes fewer operations in a transaction")

// maxLeapOps is the initial number of ranges that one transaction fetches. By default
// etcd refuses more than 128 operations (embed.DefaultMaxTxnOps), and the limit may be
// configured lower.
const maxLeapOps = 64

// leap finds the differences from the follower's state: it lists the keys without their
// values, which etcd 3.7 answers from its index, and fetches the values of only those
// keys whose mod revision differs. All reads are at one revision.
func (c *Client) leap(ctx context.Context, req kv.FollowRequest) (difference, error) {
	c.count.leaps.Add(1)
	release, err := c.permits.Acquire(ctx, fmt.Sprintf("leap %v", req.Range))
	if err != nil {
		return difference{}, err
	}
	defer release()
	var l *leap
	err = c.whileNotCompacted(func() error {
		next, stop := iter.Pull(req.Held)
		defer stop()
		l = &leap{c: c, ctx: ctx, next: next, at: req.HeldAt, ops: maxLeapOps, keys: int(firstPage(c.cfg.PageKeys))}
		l.head, _ = next()
		revision, err := c.page(ctx, req.Range, true, l.take)
		if err != nil {
			return err
		}
		l.revision = revision
		return l.end()
	})
	if err != nil {
		return difference{}, fmt.Errorf("leap %v from %d: %w", req.Range, req.HeldAt, err)
	}
	l.floor = l.revision + 1
	return l.difference, nil
}

// leap walks through the pages of keys and the held keys, side by side.
type leap struct {
	difference
	c    *Client
	ctx  context.Context //nolint:containedctx // of one call of Client.leap
	next func() (*kv.KeyValue, bool)
	head *kv.KeyValue // the next held key; nil: none
	at   kv.Revision  // the revision of the held state

	ops, keys int // bounds of the next transaction
}

// run is a sequence of adjacent keys of the list that all differ.
type run []*mvccpb.KeyValue

// take compares one page of keys and fetches the differing ones.
func (l *leap) take(page []*mvccpb.KeyValue, revision kv.Revision) error {
	l.revision = revision
	if revision < l.at {
		return l.ahead(revision)
	}
	var runs []run
	inRun := false
	for i, k := range page {
		differs, err := l.differs(k)
		switch {
		case err != nil:
			return err
		case differs && inRun:
			last := &runs[len(runs)-1]
			*last = page[i-len(*last) : i+1]
		case differs:
			runs = append(runs, page[i:i+1])
		}
		inRun = differs
	}
	return l.fetch(runs)
}

// differs advances the held keys up to k, and reports whether k is new.
func (l *leap) differs(k *mvccpb.KeyValue) (bool, error) {
	for l.head != nil && bytes.Compare(l.head.Key(), k.GetKey()) < 0 {
		l.gone = append(l.gone, string(l.head.Key()))
		l.head, _ = l.next()
	}
	listed := kv.Revision(k.GetModRevision())
	if l.head == nil || !bytes.Equal(l.head.Key(), k.GetKey()) {
		if listed <= l.at {
			return false, l.contradicted(k, nil, fmt.Sprintf("key %q has mod revision %d, but is not held at %d", k.GetKey(), listed, l.at))
		}
		return true, nil
	}
	held := l.head
	l.head, _ = l.next()
	switch {
	case listed == held.ModRevision() && k.GetVersion() == held.Version() && kv.Revision(k.GetCreateRevision()) == held.CreateRevision():
		return false, nil
	case listed <= l.at:
		return false, l.contradicted(k, held, fmt.Sprintf("key %q has mod revision %d in etcd, version %d, created at %d; at %d it is held with mod revision %d, version %d, created at %d",
			k.GetKey(), listed, k.GetVersion(), k.GetCreateRevision(), l.at, held.ModRevision(), held.Version(), held.CreateRevision()))
	}
	return true, nil
}

// contradicted returns the error for a key that cannot have changed from its held state to its state in etcd.
func (l *leap) contradicted(k *mvccpb.KeyValue, held *kv.KeyValue, detail string) error {
	return &kv.ContradictionError{Detail: detail, Claims: []kv.Claim{{Key: string(k.GetKey()), Revision: l.at, Held: held}}}
}

// ahead returns the error for an etcd that has not reached the held revision.
func (l *leap) ahead(revision kv.Revision) error {
	return &kv.ContradictionError{Detail: fmt.Sprintf("it is at revision %d, but %d is held", revision, l.at), Ahead: true}
}

// end handles the held keys after the last key of the list.
func (l *leap) end() error {
	if l.revision < l.at { // there was no page
		return l.ahead(l.revision)
	}
	for ; l.head != nil; l.head, _ = l.next() {
		l.gone = append(l.gone, string(l.head.Key()))
	}
	return nil
}

// fetch reads the values of runs, many runs in one transaction.
func (l *leap) fetch(runs []run) error {
	for len(runs) > 0 {
		piece, rest := cut(runs, l.ops, l.keys)
		got, err := l.c.readRuns(l.ctx, piece, l.revision)
		if errors.Is(err, errTooManyOps) && l.ops > 1 {
			l.ops /= 2
			continue
		}
		if err != nil {
			return err
		}
		size := 0
		for _, k := range got {
			size += len(k.GetKey()) + len(k.GetValue())
		}
		l.c.count.leapKeys.Add(int64(len(got)))
		l.c.count.leapBytes.Add(int64(size))
		l.pages = append(l.pages, keyValues(got))
		l.keys = int(nextPage(len(got), size, l.c.cfg.PageKeys, l.c.cfg.PageBytes))
		runs = rest
	}
	return nil
}

// cut returns the first runs, of at most so many keys in all, and the rest. It
// cuts a run that is too long.
func cut(runs []run, ops, keys int) (piece, rest []run) {
	for i, r := range runs {
		switch {
		case i == ops || keys == 0:
			return piece, runs[i:]
		case len(r) > keys:
			rest = slices.Clone(runs[i:])
			rest[0] = r[keys:]
			return append(piece, r[:keys]), rest
		}
		piece = append(piece, r)
		keys -= len(r)
	}
	return piece, nil
}

// readRuns reads the key/values of runs as of a revision: a range for each run.
func (c *Client) readRuns(ctx context.Context, runs []run, revision kv.Revision) ([]*mvccpb.KeyValue, error) {
	req := &etcdserverpb.TxnRequest{}
	for _, r := range runs {
		one := &etcdserverpb.RangeRequest{Key: r[0].GetKey(), Revision: int64(revision)}
		if len(r) > 1 {
			one.RangeEnd = append(slices.Clip(r[len(r)-1].GetKey()), 0)
		}
		req.Success = append(req.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: one}})
	}
	var resp *etcdserverpb.TxnResponse
	err := c.Call(ctx, "read what has changed", c.cfg.PageTimeout, func(ctx context.Context) (err error) {
		c.count.pages.Add(1)
		resp, err = c.Lists.Txn(ctx, req)
		if etcdconn.Is(err, rpctypes.ErrGRPCTooManyOps) {
			return errTooManyOps
		}
		return listError(err)
	})
	if err != nil {
		return nil, err
	}
	var out []*mvccpb.KeyValue
	for i, r := range runs {
		if i >= len(resp.GetResponses()) {
			return nil, fmt.Errorf("%w: %d of %d requests were answered", errProtocol, i, len(runs))
		}
		got := resp.GetResponses()[i].GetResponseRange().GetKvs()
		same := func(a, b *mvccpb.KeyValue) bool {
			return bytes.Equal(a.GetKey(), b.GetKey()) && a.GetModRevision() == b.GetModRevision()
		}
		if !slices.EqualFunc(got, r, same) {
			return nil, fmt.Errorf("%w: the keys from %q on differ in two reads of revision %d", errProtocol, r[0].GetKey(), revision)
		}
		out = append(out, got...)
	}
	return out, nil
}
