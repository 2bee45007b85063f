package client

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// token writes a position as nodes do (CreateWatch.resume_token), which check it:
// a version, a kind, a checksum over all else, what cluster and what range it
// belongs to, lineage, and revision.
func token(r Range, at Position) []byte {
	var sum xxhash.Digest
	sum.Reset()
	_, _ = sum.WriteString(r.Start)
	_, _ = sum.Write([]byte{0, 0})
	_, _ = sum.WriteString(r.End)
	b := append(make([]byte, 0, 48), 1, 'r')
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64String(at.Cluster))
	b = binary.BigEndian.AppendUint64(b, sum.Sum64())
	b = binary.AppendUvarint(b, at.Lineage)
	b = binary.AppendUvarint(b, uint64(at.Revision)) //nolint:gosec // not negative
	sum.Reset()
	_, _ = sum.Write(b[:2])
	_, _ = sum.Write(b[10:])
	binary.BigEndian.PutUint64(b[2:], sum.Sum64())
	return b
}
