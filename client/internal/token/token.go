// Package token writes resume tokens as nodes do (CreateWatch.resume_token).
package token

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// Of returns the token of a revision in a lineage of a cluster, for a range. Nodes
// verify it. It has a version, a kind, a checksum over all else, the cluster, the range,
// the lineage, and the revision.
func Of(r keyrange.Range, cluster string, lineage uint64, revision int64) []byte {
	r.Start, r.End = keyrange.Decode(keyrange.Encode(r.Start, r.End)) // equal ranges have one form
	var sum xxhash.Digest
	sum.Reset()
	_, _ = sum.WriteString(r.Start)
	_, _ = sum.Write([]byte{0, 0})
	_, _ = sum.WriteString(r.End)
	b := append(make([]byte, 0, 48), 1, 'r')
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64String(cluster))
	b = binary.BigEndian.AppendUint64(b, sum.Sum64())
	b = binary.AppendUvarint(b, lineage)
	b = binary.AppendUvarint(b, uint64(revision)) //nolint:gosec // not negative
	sum.Reset()
	_, _ = sum.Write(b[:2])
	_, _ = sum.Write(b[10:])
	binary.BigEndian.PutUint64(b[2:], sum.Sum64())
	return b
}
