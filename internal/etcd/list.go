package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// maxListRestarts bounds the restarts of a list whose revision etcd compacted while it
// was read.
const maxListRestarts = 5

// errListCompacted reports that etcd compacted the revision of a list before the list ended.
var errListCompacted = errors.New("etcd was compacted beyond the revision of the list while it was read")

// list reads the state of r at one revision, in pages ordered by key. The pages are
// kept until all have come: when etcd compacts their revision, the list starts again,
// and no reader has seen the first half of another revision.
func (c *Client) list(ctx context.Context, r kv.Range) (pages [][]*kv.KeyValue, revision kv.Revision, err error) {
	c.count.lists.Add(1)
	release, err := c.permits.Acquire(ctx, fmt.Sprintf("list %v", r))
	if err != nil {
		return nil, 0, err
	}
	defer release()
	err = c.whileNotCompacted(func() error {
		pages = pages[:0]
		revision, err = c.page(ctx, r, false, func(kvs []*mvccpb.KeyValue, _ kv.Revision) error {
			pages = append(pages, keyValues(kvs))
			return nil
		})
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list %v: %w", r, err)
	}
	return pages, revision, nil
}

// whileNotCompacted runs a function that reads pages, and runs it again when etcd is
// compacted during the reads.
func (c *Client) whileNotCompacted(read func() error) error {
	for again := 0; ; again++ {
		err := read()
		if !errors.Is(err, errListCompacted) || again == maxListRestarts {
			return err
		}
		c.count.listRestarts.Add(1)
	}
}

// Keys calls fn with every key of r at one revision, in order. fn may keep the key. An
// error of fn ends the list and is returned unchanged. Keys fails when etcd compacts
// the revision meanwhile; the keys so far were those of one revision.
func (c *Client) Keys(ctx context.Context, r kv.Range, fn func(key []byte) error) error {
	c.count.keyLists.Add(1)
	release, err := c.permits.Acquire(ctx, fmt.Sprintf("list the keys of %v", r))
	if err != nil {
		return err
	}
	defer release()
	var own error
	_, err = c.page(ctx, r, true, func(kvs []*mvccpb.KeyValue, _ kv.Revision) error {
		for _, k := range kvs {
			if own = fn(k.GetKey()); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	if err != nil {
		return fmt.Errorf("list the keys of %v: %w", r, err)
	}
	return nil
}

// At calls fn with the key/values of r at a revision, in order, page by page. fn may
// keep them, and may be slow: the permit is held meanwhile. Its error is returned
// unchanged. At fails when etcd has compacted the revision.
func (c *Client) At(ctx context.Context, r kv.Range, revision kv.Revision, fn func([]*kv.KeyValue) error) error {
	release, err := c.permits.Acquire(ctx, fmt.Sprintf("compare %v", r))
	if err != nil {
		return err
	}
	defer release()
	var own error
	_, err = c.pageAt(ctx, r, revision, false, func(kvs []*mvccpb.KeyValue, _ kv.Revision) error {
		own = fn(keyValues(kvs))
		return own
	})
	if own != nil {
		return own
	}
	if err != nil {
		return fmt.Errorf("read %v at revision %d: %w", r, revision, err)
	}
	return nil
}

// page reads r page by page, all at the revision of the first, and calls fn with each
// page and that revision. The caller has a permit.
func (c *Client) page(ctx context.Context, r kv.Range, keysOnly bool, fn func([]*mvccpb.KeyValue, kv.Revision) error) (kv.Revision, error) {
	return c.pageAt(ctx, r, 0, keysOnly, fn)
}

// pageAt is page at a given revision; 0: that of the first page.
func (c *Client) pageAt(ctx context.Context, r kv.Range, revision kv.Revision, keysOnly bool, fn func([]*mvccpb.KeyValue, kv.Revision) error) (kv.Revision, error) {
	req := &etcdserverpb.RangeRequest{KeysOnly: keysOnly, Limit: firstPage(c.cfg.PageKeys), Revision: int64(revision)}
	req.Key, req.RangeEnd = r.Etcd()
	for {
		var resp *etcdserverpb.RangeResponse
		err := c.Call(ctx, "read a page", c.cfg.PageTimeout, func(ctx context.Context) (err error) {
			c.count.pages.Add(1)
			resp, err = c.Lists.Range(ctx, req)
			return listError(err)
		})
		if err != nil {
			return 0, err
		}
		if req.Revision == 0 {
			req.Revision = resp.GetHeader().GetRevision()
		}
		kvs := resp.GetKvs()
		bytes := 0
		for _, k := range kvs {
			bytes += len(k.GetKey()) + len(k.GetValue())
		}
		c.count.listedKeys.Add(int64(len(kvs)))
		c.count.listedBytes.Add(int64(bytes))
		if len(kvs) > 0 {
			if err := fn(kvs, kv.Revision(req.GetRevision())); err != nil {
				return 0, err
			}
		}
		if !resp.GetMore() || len(kvs) == 0 {
			return kv.Revision(req.GetRevision()), nil
		}
		req.Key = append(slices.Clip(kvs[len(kvs)-1].GetKey()), 0)
		req.Limit = nextPage(len(kvs), bytes, c.cfg.PageKeys, c.cfg.PageBytes)
	}
}

// listError detects a page whose revision is compacted.
func listError(err error) error {
	if etcdconn.Is(err, rpctypes.ErrGRPCCompacted) {
		return errListCompacted
	}
	return err
}

// firstPage returns the number of keys to request while their size is unknown: 16
// values of etcd's default limit, 1.5 MiB, are still acceptable.
func firstPage(maxKeys int) int64 { return int64(min(16, maxKeys)) }

// nextPage returns the number of keys to request for a page of about maxBytes, when the
// last page had n keys and this many bytes. It grows at most eightfold, since the next
// keys may be larger.
func nextPage(n, bytes, maxKeys, maxBytes int) int64 {
	const overhead = 32 // per key: revisions and framing
	fits := maxBytes / (bytes/max(n, 1) + overhead)
	return int64(max(1, min(fits, 8*n, maxKeys)))
}

func keyValues(kvs []*mvccpb.KeyValue) []*kv.KeyValue {
	page := make([]*kv.KeyValue, len(kvs))
	for i, k := range kvs {
		page[i] = keyValue(k)
	}
	return page
}

// keyValue converts a key of etcd's API.
func keyValue(k *mvccpb.KeyValue) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{
		Key: k.GetKey(), Value: k.GetValue(),
		CreateRevision: kv.Revision(k.GetCreateRevision()), ModRevision: kv.Revision(k.GetModRevision()),
		Version: k.GetVersion(), Lease: k.GetLease(),
	})
}
