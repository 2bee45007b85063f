package client

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Put writes a key through to etcd and returns the revision of the change. It
// is sent once: an error after that leaves open whether it was done, and says
// so.
func (c *Client) Put(ctx context.Context, key string, value []byte) (int64, error) {
	if err := Key(key).validate(); err != nil {
		return 0, fmt.Errorf("put: %w", err)
	}
	var revision int64
	err := c.write(ctx, Key(key), func(ctx context.Context, kv etcdserverpb.KVClient) error {
		r, err := kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: value})
		revision = r.GetHeader().GetRevision()
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return 0, fmt.Errorf("put %q: %w", key, err)
	}
	return revision, nil
}

// Delete deletes all keys of a range in etcd, in one revision. It returns that
// revision and how many keys there were. As for errors, see [Client.Put].
func (c *Client) Delete(ctx context.Context, r Range) (revision, deleted int64, err error) {
	if err := r.validate(); err != nil {
		return 0, 0, fmt.Errorf("delete: %w", err)
	}
	key, end := r.wire()
	err = c.write(ctx, r, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		resp, err := kv.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: key, RangeEnd: end})
		revision, deleted = resp.GetHeader().GetRevision(), resp.GetDeleted()
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return 0, 0, fmt.Errorf("delete %v: %w", r, err)
	}
	return revision, deleted, nil
}

// write sends a write to a node whose connection stands. Looking for one may
// take several attempts; sending takes one, of Config.AttemptTimeout.
func (c *Client) write(ctx context.Context, r Range, send func(context.Context, etcdserverpb.KVClient) error) error {
	a, err := c.attempts(ctx, r)
	if err != nil {
		return err
	}
	for {
		n, err := a.node()
		if err == nil {
			attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.Silence, errSlow)
			err = n.connected(attempt)
			cancel()
		}
		if err != nil {
			if err := a.failed(ctx, err); err != nil {
				return err
			}
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
		defer cancel()
		if err := send(attempt, etcdserverpb.NewKVClient(n.conn)); err != nil {
			v := judge(err)
			if v.login && c.login.user != "" { // it was not even looked at
				if err := a.failed(ctx, err); err != nil {
					return err
				}
				continue
			}
			if v.penalise {
				c.penalise(a.addr, 0)
			}
			if v.retry {
				return fmt.Errorf("sent to %s, which did not confirm it; it may have been done: %w", a.addr, v.err)
			}
			return v.err
		}
		c.praise(a.addr)
		return nil
	}
}
