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

// VerifyRequest says which copies to compare.
type VerifyRequest struct {
	// Shards are the shards; none: all.
	Shards []uint64
	// Etcd compares with etcd, too, which reads all keys of these shards from it.
	Etcd bool
}

// VerifiedShard is what came of comparing the copies of one shard.
type VerifiedShard struct {
	// Checked is how many shards were compared with this one, of Total.
	Checked, Total int64
	Shard          uint64
	// Revision is the one at which all copies were compared.
	Revision int64
	Copies   []VerifiedCopy
	// Etcd: one of them was compared with etcd. EtcdError says why not though it
	// was asked for.
	Etcd      bool
	EtcdError string
	// Differences are the first keys that differ, of those that the caller may
	// read; More differ.
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
	// Keys are in it, in Bytes as etcd encodes them.
	Keys, Bytes int64
	// Digest is equal for equal copies.
	Digest uint64
	// Wrong: it has keys otherwise than etcd, or, when etcd did not answer, than
	// most copies. Its node loads it again.
	Wrong bool
	// Error reports why it was not compared. Empty: it was.
	Error string
}

// Err returns why the copy was not compared, or nil.
func (c *VerifiedCopy) Err() error {
	if c.Error == "" {
		return nil
	}
	return fmt.Errorf("the copy at %s was not compared: %s", c.Node, c.Error)
}

// KeyDifference is a key that a copy has otherwise than it should.
type KeyDifference struct {
	Key []byte
	// Node has the copy; empty: it is unknown which copy is wrong.
	Node string
	// ModRevision is the revision of the key's last change in that copy; 0: it is
	// not there.
	ModRevision int64
}

// verifyTime is how long a node may take to compare everything.
const verifyTime = 24 * time.Hour

// Verify compares the copies of shards with each other, and with etcd if asked to,
// and calls fn with each shard as it is done. An error of fn ends it and comes back
// unchanged. A wrong copy is reloaded by its node. It fails with [client.ErrUnavailable] when no
// node could answer, or the one that compares goes away after its first shard.
func (c *Client) Verify(caller context.Context, r VerifyRequest, fn func(VerifiedShard) error) error {
	var own error // what ends it permanently
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
			case err != nil && told && caller.Err() == nil: // another node would begin again
				fault, retry := client.ErrorFrom(err)
				if retry {
					fault = fmt.Errorf("%w: %w", client.ErrUnavailable, fault)
				}
				own = fmt.Errorf("verify: %w", fault)
				return nil
			case err != nil:
				return err //nolint:wrapcheck // judged by Call, wrapped below
			case m.GetShardId() == 0:
				continue // there is none
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
