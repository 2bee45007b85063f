package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// since reads the events from req.HistoryFrom up to the state's revision, or only the
// newer part when etcd has compacted the rest, or when these are more than MaxHistory
// revisions: most clients that resume are not as far behind as the saved state. It
// returns the oldest revision from which the events are complete: revision+1, without
// events, when they are too large.
func (c *Client) since(ctx context.Context, req kv.FollowRequest, revision kv.Revision) (past []kv.Batch, floor kv.Revision, err error) {
	from, nothing := req.HistoryFrom, revision+1
	switch {
	case from == 0:
		return nil, nothing, nil
	case from > nothing:
		return nil, 0, &kv.ContradictionError{Detail: fmt.Sprintf("it is at revision %d, but this node is complete up to %d", revision, from-1), Ahead: true}
	}
	if oldest := nothing - kv.Revision(c.cfg.MaxHistory); from < oldest {
		if from = oldest; req.HistoryFrom > 1 { // it is 1 if this node has saved nothing
			c.noHistory(req, oldest-1, fmt.Sprintf("it has more than %d revisions", c.cfg.MaxHistory))
		}
	}
	for left, next := c.cfg.MaxHistoryBytes, from; next <= revision; {
		h, err := c.History(ctx, HistoryRequest{Range: req.Range, From: next, Before: nothing, PrevKV: true, MaxBytes: left})
		var compacted *kv.CompactedError
		switch {
		case errors.As(err, &compacted) && compacted.Floor > next && compacted.Floor <= revision:
			past, from, next, left = nil, compacted.Floor, compacted.Floor, c.cfg.MaxHistoryBytes
			continue
		case errors.As(err, &compacted), errors.Is(err, etcdconn.ErrTooLarge):
			c.noHistory(req, revision, err.Error())
			return nil, nothing, nil
		case err != nil:
			return nil, 0, err
		}
		next = h.Next
		known := 0 // batches before this index lack previous values
		for i := range h.Batches {
			if left -= h.Batches[i].Size(); h.Batches[i].LacksPrevious() { // etcd was compacted there
				known, from, past = i+1, h.Batches[i].Revision+1, nil
			}
		}
		if left <= 0 {
			c.noHistory(req, revision, "it is too large")
			return nil, nothing, nil
		}
		past = append(past, h.Batches[known:]...)
	}
	return past, from, nil
}

func (c *Client) noHistory(req kv.FollowRequest, revision kv.Revision, why string) {
	c.cfg.Logger.Info("etcd's history since this node stopped is not read: watches from before get a delta or a resync",
		"range", req.Range, "from", req.HistoryFrom, "to", revision, "reason", why)
}
