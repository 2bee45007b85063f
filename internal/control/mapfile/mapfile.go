// Package mapfile keeps the last shard map on disk, so that a node can serve before it
// has reached other nodes. Read [File] first.
package mapfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/files/durable"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// ErrInvalid reports that a map file cannot be used.
var ErrInvalid = errors.New("map file cannot be used")

// magic begins the file. The xxhash of the rest (8 bytes, big-endian) and the encoded map
// follow. The map's own first byte is its feature level.
const magic = "shardwatch map 1\n"

// Encode returns the bytes of the file.
func Encode(m *shard.Map) ([]byte, error) {
	body, err := shard.EncodeMap(m)
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint64([]byte(magic), xxhash.Sum64(body))
	return append(b, body...), nil
}

// Decode decodes the bytes of the file. It fails with ErrInvalid and a reason.
func Decode(b []byte) (*shard.Map, error) {
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: it has no map header", ErrInvalid)
	case len(rest) < 8:
		return nil, fmt.Errorf("%w: it is cut off", ErrInvalid)
	case binary.BigEndian.Uint64(rest) != xxhash.Sum64(rest[8:]):
		return nil, fmt.Errorf("%w: its checksum does not match; it is torn or was changed", ErrInvalid)
	}
	m, err := shard.DecodeMap(rest[8:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return m, nil
}

// File is the map file of a data directory.
type File struct{ path string }

// New returns the map file of a data directory.
func New(dataDir string) File {
	return File{path: filepath.Join(dataDir, "shardmap")}
}

// Load returns the map, or nil without an error when there is no file.
func (f File) Load() (*shard.Map, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read map file: %w", err)
	}
	m, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.path, err)
	}
	return m, nil
}

// Save replaces the file atomically: after a crash at any point it is the old
// or the new one.
func (f File) Save(m *shard.Map) error {
	b, err := Encode(m)
	if err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	if err := durable.MakeDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	if err := durable.WriteFile(f.path, b); err != nil {
		return fmt.Errorf("write map file: %w", err)
	}
	return nil
}

// Refuse moves an unusable file aside and returns its new path.
func (f File) Refuse() (string, error) {
	to := f.path + ".refused"
	if err := durable.Rename(f.path, to); err != nil {
		return to, fmt.Errorf("move the map file aside: %w", err)
	}
	return to, nil
}
