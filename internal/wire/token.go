package wire

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Tokens are opaque to clients. Both kinds begin with a version, the kind, and a checksum over the
// rest, so that truncated, mixed-up or invented tokens are detected. They carry the cluster and
// the range, so that a token of another watch or list is detected. They are not secrets and grant
// no rights.
const (
	tokenVersion = 1
	resumeKind   = 'r'
	pageKind     = 'p'
	tokenHead    = 2 + 8
)

// Position is the content of a token.
type Position struct {
	// Cluster is the ClusterKey of the cluster that issued the token. Lineage is
	// counted by that cluster.
	Cluster uint64
	Lineage uint64
	// Range is the range of the watch or list.
	Range kv.Range
	// Revision of a resume token: everything up to it was delivered; of a page token:
	// the revision of the list.
	Revision kv.Revision
	// Next is the first key of the next page. Page tokens only.
	Next string
}

// ClusterKey returns the hash of a cluster's ID that tokens carry.
func ClusterKey(clusterID string) uint64 { return xxhash.Sum64String(clusterID) }

// ResumeToken encodes a watch's position.
func ResumeToken(p Position) []byte { return token(resumeKind, p) }

// PageToken encodes a list's position.
func PageToken(p Position) []byte { return token(pageKind, p) }

func token(kind byte, p Position) []byte {
	b := make([]byte, tokenHead, tokenHead+8+8+2*binary.MaxVarintLen64+len(p.Next))
	b[0], b[1] = tokenVersion, kind
	b = binary.BigEndian.AppendUint64(b, p.Cluster)
	b = binary.BigEndian.AppendUint64(b, rangeHash(p.Range))
	b = binary.AppendUvarint(b, p.Lineage)
	b = binary.AppendUvarint(b, uint64(p.Revision)) //nolint:gosec // not negative
	b = append(b, p.Next...)
	binary.BigEndian.PutUint64(b[2:], tokenSum(b))
	return b
}

func tokenSum(b []byte) uint64 {
	d := xxhash.New()
	_, _ = d.Write(b[:2])
	_, _ = d.Write(b[tokenHead:])
	return d.Sum64()
}

func rangeHash(r kv.Range) uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(r.Start)
	_, _ = d.Write([]byte{0, 0})
	_, _ = d.WriteString(r.End)
	return d.Sum64()
}

// ParseResumeToken returns the position in b, which must be a token for the range, of
// any cluster. It fails with a *kv.InvalidError.
func ParseResumeToken(b []byte, r kv.Range) (Position, error) {
	return parse("resume_token", resumeKind, b, r)
}

// ParsePageToken is ParseResumeToken for a list's position.
func ParsePageToken(b []byte, r kv.Range) (Position, error) {
	return parse("page_token", pageKind, b, r)
}

func parse(field string, kind byte, b []byte, r kv.Range) (Position, error) {
	bad := func(why string) (Position, error) {
		return Position{}, &kv.InvalidError{Field: field, Reason: why}
	}
	switch {
	case len(b) < tokenHead+16+2:
		return bad("too short: it was truncated, or is not a token")
	case b[0] != tokenVersion:
		return bad("of a version that this node does not know")
	case b[1] != kind:
		return bad("of another kind: resume tokens are for watches, page tokens for lists")
	case binary.BigEndian.Uint64(b[2:]) != tokenSum(b):
		return bad("damaged, or not made by a server")
	case binary.BigEndian.Uint64(b[tokenHead+8:]) != rangeHash(r):
		return bad("made for another key or range_end")
	}
	p := Position{Cluster: binary.BigEndian.Uint64(b[tokenHead:]), Range: r}
	rest := b[tokenHead+16:]
	var n int
	if p.Lineage, n = binary.Uvarint(rest); n <= 0 {
		return bad("damaged")
	}
	rest = rest[n:]
	revision, n := binary.Uvarint(rest)
	if n <= 0 || revision > 1<<62 {
		return bad("damaged")
	}
	p.Revision = kv.Revision(revision)
	p.Next = string(rest[n:])
	return p, nil
}
