package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
)

// VerifyRequest selects the copies to compare.
type VerifyRequest struct {
	// Shards has the IDs of the shards; none: all.
	Shards []uint64
	// Etcd also compares with etcd, which reads all keys of these shards from it.
	Etcd bool
}

// VerifiedShard is the result of comparing the copies of one shard.
type VerifiedShard struct {
	// Checked is how many shards of Total were compared, including this one.
	Checked, Total int64
	Shard          uint64
	// Revision is the revision at which the copies were compared.
	Revision int64
	Copies   []VerifiedCopy
	// Etcd: one of the copies was compared with etcd. EtcdError is the reason why not,
	// although it was requested.
	Etcd      bool
	EtcdError string
	// Differences has the first differing keys that the caller may read. More: further
	// keys differ.
	Differences []KeyDifference
	More        bool
}

// Differs reports whether copies differ, from each other or from etcd.
func (v *VerifiedShard) Differs() bool {
	for _, c := range v.Copies {
		if c.Wrong {
			return true
		}
	}
	return len(v.Differences) > 0 || v.More
}

// VerifiedCopy is one copy of a shard.
type VerifiedCopy struct {
	Node string
	// Keys is the number of keys, and Bytes their size as etcd encodes them.
	Keys, Bytes int64
	// Digest is equal for equal copies.
	Digest uint64
	// Wrong: the copy differs from etcd or, if etcd did not answer, from most copies.
	// Its node reloads it.
	Wrong bool
	// Error is the reason why the copy was not compared; empty: it was.
	Error string
}

// Err returns the reason why the copy was not compared, or nil.
func (c *VerifiedCopy) Err() error {
	if c.Error == "" {
		return nil
	}
	return fmt.Errorf("the copy at %s was not compared: %s", c.Node, c.Error)
}

// KeyDifference is a key that is wrong in a copy.
type KeyDifference struct {
	Key []byte
	// Node is the node of the copy; empty: it is unknown which copy is wrong.
	Node string
	// ModRevision is the revision of the key's last change in that copy; 0: the copy
	// does not have the key.
	ModRevision int64
}

// verifyTime bounds the comparison of all shards.
const verifyTime = 24 * time.Hour

// Verify compares the copies of shards with each other, and with etcd if requested, and calls fn
// with each shard as it is done. An error of fn ends it and is returned unchanged. Nodes reload
// their wrong copies. Verify fails with [client.ErrUnavailable] if no node answered, or if the
// comparing node fails after its first shard.
func (c *Client) Verify(caller context.Context, r VerifyRequest, fn func(VerifiedShard) error) error {
	var own error // the error that ends it without a retry
	err := c.anyNode(caller, verifyTime, func(ctx context.Context, node pb.AdminServiceClient) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := node.Verify(ctx, &pb.VerifyRequest{ShardIds: r.Shards, Etcd: r.Etcd})
		if err != nil {
			return err //nolint:wrapcheck // judged by Call, wrapped below
		}
		for told := false; ; told = true {
			m, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && told && caller.Err() == nil: // another node would start again
				fault, retry := client.ErrorFrom(err)
				if retry {
					fault = fmt.Errorf("%w: %w", client.ErrUnavailable, fault)
				}
				own = fmt.Errorf("verify: %w", fault)
				return nil
			case err != nil:
				return err //nolint:wrapcheck // judged by Call, wrapped below
			case m.GetShardId() == 0:
				continue // no shard
			}
			if own = fn(verifiedFrom(m)); own != nil {
				return nil
			}
		}
	})
	if own != nil {
		return own
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

func verifiedFrom(m *pb.VerifyResponse) VerifiedShard {
	out := VerifiedShard{
		Checked: m.GetChecked(), Total: m.GetTotal(), Shard: m.GetShardId(), Revision: m.GetRevision(),
		Etcd: m.GetEtcd(), EtcdError: m.GetEtcdError(), More: m.GetMore(),
	}
	for _, c := range m.GetCopies() {
		out.Copies = append(out.Copies, VerifiedCopy{
			Node: c.GetNode(), Keys: c.GetKeys(), Bytes: c.GetBytes(), Digest: c.GetDigest(), Wrong: c.GetWrong(), Error: c.GetError(),
		})
	}
	for _, d := range m.GetDifferences() {
		out.Differences = append(out.Differences, KeyDifference{Key: d.GetKey(), Node: d.GetNode(), ModRevision: d.GetModRevision()})
	}
	return out
}
