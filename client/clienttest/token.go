package clienttest

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// position is the content of a resume token.
type position struct {
	ours     bool // issued by this cluster
	lineage  uint64
	revision int64
}

// parseToken parses a resume token as nodes do.
func parseToken(b []byte, clusterID, start, end string) (position, error) {
	const head = 10 // version, kind, checksum
	if start == "\x00" {
		start = ""
	}
	switch {
	case len(b) < head+18:
		return position{}, errors.New("resume_token: too short")
	case binary.BigEndian.Uint64(b[2:]) != xxhash.Sum64String(string(b[:2])+string(b[head:])):
		return position{}, errors.New("resume_token: damaged, or not made by a server")
	case binary.BigEndian.Uint64(b[head+8:]) != xxhash.Sum64String(start+"\x00\x00"+end):
		return position{}, errors.New("resume_token: made for another key or range_end")
	}
	rest := b[head+16:]
	lineage, n := binary.Uvarint(rest)
	revision, _ := binary.Uvarint(rest[n:])
	return position{binary.BigEndian.Uint64(b[head:]) == xxhash.Sum64String(clusterID), lineage, int64(revision)}, nil
}
